/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static const char *log_program = "shoal";
static _Atomic int log_level_max = LOG_INFO;

void
log_init(const char *program, enum log_level level)
{
    log_program = program;
    log_set_level(level);
}

void
log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_level_max, (int)level, memory_order_relaxed);
}

int
log_level_from_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(level_names); i++)
        if (strcmp(name, level_names[i]) == 0)
            return (int)i;
    return -1;
}

static size_t
clamp_written(int written, size_t room)
{
    if (written < 0)
        return 0;
    return (size_t)written < room ? (size_t)written : room - 1;
}

void
log_line(enum log_level level, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&log_level_max, memory_order_relaxed))
        return;
    char line[1024];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    size_t used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    used += clamp_written(snprintf(line + used, sizeof(line) - used, ".%03ldZ %s %s ",
                                   now.tv_nsec / 1000000, level_names[level], log_program),
                          sizeof(line) - used);
    va_list args;
    va_start(args, format);
    used += clamp_written(vsnprintf(line + used, sizeof(line) - 1 - used, format, args),
                          sizeof(line) - 1 - used);
    va_end(args);
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    line[used++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, used); /* nowhere is left to report a failure */
    (void)ignored;
}
