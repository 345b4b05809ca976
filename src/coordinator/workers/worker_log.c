/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/worker_log.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "ipc/counters.h"

enum {
    SAID_BYTES_MAX = 700,   /* a longer line is split, unless it may be of the worker's own log */
    ROUND_BYTES = 64 << 10, /* the capacity of a pipe */
    ROUND_MS = 10,
    BURST_S = 4,
    LAST_BYTES = 16 << 10,
    QUOTED_BYTES = 128, /* what `worker_said` adds to a line */
};

/* Programs of workers have names that begin so. */
#define PROGRAM "shoal"
/* A container's process has one of its own beside it (worker/keep.h). */
#define KEEPER "shoal-container"

struct worker_log {
    struct worker_log_options options;
    struct loop_watch *watch; /* NULL: until the timer goes off */
    struct loop_timer *timer;
    int64_t filled_ns;
    uint64_t budget_bytes;
    uint64_t unreported; /* dropped lines that no log line has reported yet */
    bool is_last;        /* logs without a budget */
    size_t used;         /* of an incomplete line */
    char line[LOG_LINE_BYTES_MAX];
};

/* ---- lines ---- */

static void
refill(struct worker_log *log)
{
    const uint64_t rate = log->options.bytes_per_s;
    int64_t now_ns = clock_now_ns();
    uint64_t us = (uint64_t)((now_ns - log->filled_ns) / NS_PER_US);
    if (us > BURST_S * UINT64_C(1000000))
        us = BURST_S * UINT64_C(1000000);
    uint64_t more = rate * us / 1000000;
    if (more == 0)
        return;
    log->filled_ns = now_ns;
    log->budget_bytes += more;
    if (log->budget_bytes > BURST_S * rate)
        log->budget_bytes = BURST_S * rate;
}

static bool
is_container(const struct worker_log *log)
{
    return log->options.source == WORKER_LOG_OF_CONTAINER;
}

/* Returns the program whose lines go through unchanged: their names begin so. */
static const char *
program_of(const struct worker_log *log)
{
    return is_container(log) ? KEEPER : PROGRAM;
}

static void
notify_dropped(struct worker_log *log)
{
    if (log->unreported > 0 && is_container(log))
        log_warn("container_log_dropped runtime=%s container=%s pid=%d lines=%" PRIu64,
                 log->options.pipeline, log->options.stage, (int)log->options.pid, log->unreported);
    else if (log->unreported > 0)
        log_warn("worker_log_dropped pipeline=%s stage=%s worker=%u pid=%d lines=%" PRIu64,
                 log->options.pipeline, log->options.stage, log->options.worker,
                 (int)log->options.pid, log->unreported);
    log->unreported = 0;
}

/* Returns whether a line may be logged. After a dropped line none is logged until a quarter of a
 * burst is free, so that lines are missing in rows, not every second one. */
static bool
pays(struct worker_log *log, size_t bytes)
{
    const uint64_t rate = log->options.bytes_per_s;
    if (rate == 0)
        return true;
    refill(log);
    if (log->is_last)
        bytes = bytes < log->budget_bytes ? bytes : log->budget_bytes;
    else if (bytes > log->budget_bytes || (log->unreported > 0 && log->budget_bytes < rate))
        return false;
    log->budget_bytes -= bytes;
    return true;
}

/* Signal handlers write logfmt in any case. `*passed`: as for pass_on. */
static bool
translate(const struct worker_log *log, bool *passed)
{
    struct bytes json = {0};
    bool is_own = log_format() == LOG_FORMAT_JSON &&
                  log_line_translate(&json, program_of(log), log->line, log->used) &&
                  !json.failed && json.used < LOG_LINE_BYTES_MAX;
    if (is_own)
        *passed = log_pass_on(json.data, json.used);
    bytes_fini(&json);
    return is_own;
}

/* A line of the worker's own log goes through as it is. A modelet may imitate one, but it is a line
 * of that worker all the same. */
static bool
pass_on(struct worker_log *log)
{
    const struct worker_log_options *options = &log->options;
    bool passed;
    if (log_line_is_valid(log_format(), program_of(log), log->line, log->used))
        return log_pass_on(log->line, log->used);
    if (translate(log, &passed))
        return passed;
    if (is_container(log))
        return log_beside(LOG_INFO, "container_said runtime=%s container=%s pid=%d text=\"%.*s\"",
                          options->pipeline, options->stage, (int)options->pid, (int)log->used,
                          log->line);
    return log_beside(LOG_ERROR, "worker_said pipeline=%s stage=%s worker=%u pid=%d text=\"%.*s\"",
                      options->pipeline, options->stage, options->worker, (int)options->pid,
                      (int)log->used, log->line);
}

static void
end_line(struct worker_log *log)
{
    if (log->used == 0)
        return;
    if (log->options.on_line != NULL)
        log->options.on_line(log->options.context, log->line, log->used);
    bool pass = pays(log, log->used + QUOTED_BYTES);
    if (pass)
        notify_dropped(log);
    if (!pass || !pass_on(log)) {
        log->unreported++;
        counter_add(log->options.counters, log->options.dropped, 1);
    }
    log->used = 0;
}

/* The bytes of a line at most, by its first byte: a digit of the time, or of JSON a brace. */
static size_t
line_max(const struct worker_log *log)
{
    char first = log->line[0];
    bool may_be_own = first == '2' || (first == '{' && log_format() == LOG_FORMAT_JSON);
    return may_be_own ? sizeof(log->line) - 1 : SAID_BYTES_MAX;
}

static void
take(struct worker_log *log, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != '\n')
            log->line[log->used++] = text[i];
        if (text[i] == '\n' || log->used == line_max(log))
            end_line(log);
    }
}

/* ---- reading ---- */

/* Reads as much as a pipe holds, at most; false: no writer is left. */
static bool
read_round(struct worker_log *log, char *text, size_t *used)
{
    ssize_t got = 1;
    *used = 0;
    while (got > 0 && *used < ROUND_BYTES) {
        got = read(log->options.fd, text + *used, ROUND_BYTES - *used);
        *used += got > 0 ? (size_t)got : 0;
    }
    return got != 0;
}

static void
on_readable(void *context)
{
    struct worker_log *log = context;
    static char text[ROUND_BYTES]; /* the loop thread's */
    size_t used;
    bool is_open = read_round(log, text, &used);
    take(log, text, used);
    loop_watch_remove(log->watch);
    log->watch = NULL;
    if (is_open)
        loop_timer_set(log->timer, ROUND_MS * (int64_t)NS_PER_MS);
}

static void
on_time(void *context)
{
    struct worker_log *log = context;
    log->watch = loop_watch_add(log->options.loop, log->options.fd, on_readable, log);
}

struct worker_log *
worker_log_create(const struct worker_log_options *options)
{
    struct worker_log *log = calloc(1, sizeof(*log));
    CHECK(log != NULL);
    log->options = *options;
    log->filled_ns = clock_now_ns();
    log->budget_bytes = BURST_S * options->bytes_per_s;
    log->timer = loop_timer_create(loop_base(options->loop), on_time, log);
    on_time(log);
    return log;
}

void
worker_log_destroy(struct worker_log *log)
{
    if (log == NULL)
        return;
    char *text = malloc(ROUND_BYTES);
    CHECK(text != NULL);
    size_t used;
    (void)read_round(log, text, &used);
    size_t before = used > LAST_BYTES ? used - LAST_BYTES : 0;
    take(log, text, before);
    log->is_last = true;
    take(log, text + before, used - before);
    end_line(log);
    notify_dropped(log);
    free(text);
    loop_watch_remove(log->watch);
    loop_timer_destroy(log->timer);
    free(log);
}
