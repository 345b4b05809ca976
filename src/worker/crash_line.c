/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/crash_line.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { QUOTE_AND_END = 2, ROOM_MS = 100, SECONDS_PER_DAY = 86400 };

static void
put(struct crash_line *line, char c)
{
    if (line->used < sizeof(line->text) - QUOTE_AND_END)
        line->text[line->used++] = c;
}

static void
put_plain(struct crash_line *line, const char *text)
{
    for (; *text != '\0'; text++)
        put(line, *text);
}

/* Writes leading zeros up to `digits`. */
static void
put_unsigned(struct crash_line *line, uint64_t value, uint32_t base, uint32_t digits)
{
    char reversed[24];
    uint32_t count = 0;
    do {
        reversed[count++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value > 0);
    for (; digits > count; digits--)
        put(line, '0');
    while (count > 0)
        put(line, reversed[--count]);
}

/* The C library's gmtime_r may take a lock. Days are counted from 1 March of the year 0, so that a
 * leap day is the last of its year; 146,097 of them are 400 years. */
static void
put_date(struct crash_line *line, uint64_t days_since_1970)
{
    uint64_t days = days_since_1970 + 719468;
    uint64_t of_era = days % 146097;
    uint64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint64_t from_march = (5 * of_year + 2) / 153;
    uint64_t month = from_march < 10 ? from_march + 3 : from_march - 9;
    put_unsigned(line, days / 146097 * 400 + year_of_era + (month <= 2 ? 1 : 0), 10, 4);
    put(line, '-');
    put_unsigned(line, month, 10, 2);
    put(line, '-');
    put_unsigned(line, of_year - (153 * from_march + 2) / 5 + 1, 10, 2);
}

void
crash_line_begin(struct crash_line *line, const char *program, const char *event)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t of_day = (uint64_t)now.tv_sec % SECONDS_PER_DAY;
    line->used = 0;
    put_date(line, (uint64_t)now.tv_sec / SECONDS_PER_DAY);
    put(line, 'T');
    put_unsigned(line, of_day / 3600, 10, 2);
    put(line, ':');
    put_unsigned(line, of_day / 60 % 60, 10, 2);
    put(line, ':');
    put_unsigned(line, of_day % 60, 10, 2);
    put(line, '.');
    put_unsigned(line, (uint64_t)now.tv_nsec / 1000000, 10, 3);
    put_plain(line, "Z error ");
    put_plain(line, program);
    put(line, ' ');
    put_plain(line, event);
}

static void
put_name(struct crash_line *line, const char *name)
{
    put(line, ' ');
    put_plain(line, name);
    put(line, '=');
}

void
crash_line_number(struct crash_line *line, const char *name, int64_t value)
{
    put_name(line, name);
    if (value < 0)
        put(line, '-');
    put_unsigned(line, value < 0 ? -(uint64_t)value : (uint64_t)value, 10, 1);
}

void
crash_line_address(struct crash_line *line, const char *name, uintptr_t value)
{
    put_name(line, name);
    crash_line_add_hex(line, value);
}

void
crash_line_text(struct crash_line *line, const char *name, const char *value)
{
    crash_line_open(line, name);
    crash_line_add(line, value);
    crash_line_close(line);
}

void
crash_line_open(struct crash_line *line, const char *name)
{
    put_name(line, name);
    put(line, '"');
}

void
crash_line_add(struct crash_line *line, const char *text)
{
    for (; *text != '\0'; text++)
        put(line, (unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? '?' : *text);
}

void
crash_line_add_decimal(struct crash_line *line, uint64_t value)
{
    put_unsigned(line, value, 10, 1);
}

void
crash_line_add_hex(struct crash_line *line, uintptr_t value)
{
    put_plain(line, "0x");
    put_unsigned(line, value, 16, 1);
}

/* Closes the line in the room that the others leave. */
void
crash_line_close(struct crash_line *line)
{
    if (line->used < sizeof(line->text) - 1)
        line->text[line->used++] = '"';
}

static bool
is_pipe(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode);
}

/* Both are the coordinator's pipe, but a modelet may have redirected one while it loads, to silence
 * an engine. */
static int
log_fd(void)
{
    return !is_pipe(STDERR_FILENO) && is_pipe(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO;
}

void
crash_line_write(struct crash_line *line)
{
    struct pollfd room = {.fd = log_fd(), .events = POLLOUT};
    line->text[line->used] = '\n';
    ssize_t written = write(room.fd, line->text, line->used + 1);
    if (written < 0 && errno == EAGAIN && poll(&room, 1, ROOM_MS) > 0)
        written = write(room.fd, line->text, line->used + 1);
    (void)written;
}
