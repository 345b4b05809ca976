/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line per event on stderr: time, level, program, event name, then key=value pairs as logfmt
 * has them; or one JSON object with these as members (log_line.h).
 *
 *     2026-01-31T10:00:00.123Z info shoald worker_ready pipeline=digits stage=classify worker=0
 *
 * Each line is written with one write(2), so lines of several processes do not mix. After log_start
 * no caller waits for the reader of stderr: a thread writes lines from a buffer of 256 KiB. Lines
 * that find it full are dropped and counted, and one line reports their number when there is room
 * again. Before log_start, and in workers, the caller writes the line itself. Nothing per request
 * is logged above debug, but for `access_log`; a rate is a counter, not a log line.
 *
 * A line that a caller, client, peer or runtime can cause at will goes through log_*_limited: each
 * such place in the source writes at most LOG_SITE_LINES lines in LOG_SITE_S seconds, and one line
 * of the same level, `log_left_out`, reports how many more there were. The coordinator limits the
 * output of its workers (coordinator/workers/worker_log.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log_line.h"
#include "base/log_site.h"

enum log_level {
    LOG_NOTHING = -1, /* as the lowest level that is written: no line is */
    LOG_ERROR,
    LOG_WARN,
    LOG_INFO,
    LOG_DEBUG
};

/* Call once at start. `program` is kept, not copied. The default level is info. */
void log_init(const char *program, enum log_level level);

/* Makes writes to stderr non-blocking; lines that find it full are lost. A process without
 * log_start calls it. */
void log_never_wait(void);

/* Sets the lowest level that is written. Any thread, at any time. */
void log_set_level(enum log_level level);

/* Call at start, before other threads exist. */
void log_set_format(enum log_format format);
enum log_format log_format(void);

/* Sets the lines that each place of log_*_limited may write in LOG_SITE_S seconds, instead of
 * LOG_SITE_LINES; 0: no limit. */
void log_set_event_lines(uint32_t lines);

/* Parses "error", "warn", "info" or "debug"; else returns -1. */
int log_level_from_name(const char *name);

void log_line(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

/* Also passes each event of level info or more severe to `tap`, even if the log omits it: its name
 * and values, without time and program. Any thread logs, so any thread may call the tap, for a
 * moment even after it was replaced; it may not log. NULL ends that. */
void log_set_tap(void (*tap)(enum log_level level, const char *event, size_t bytes));

/* A place that logs; static, initially all zero. */
struct log_place {
    struct log_site site;
    const char *format; /* its first word is the event */
    enum log_level level;
    struct log_place *next; /* in the list of places that have left lines out */
    bool is_listed;
};

/* `format` is kept, not copied. */
void log_limited(struct log_place *place, enum log_level level, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Writes text without time, level and program, at any level, for the person who started the
 * program; as JSON it is the event `message`. */
void log_plain(const char *format, ...) PRINTF_LIKE(1, 2);

/* Like log_line(), but uses only half of the buffer: the other half is reserved for other lines.
 * Returns false if the line was dropped. */
bool log_beside(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

/* Forwards a line that log_line_is_valid has judged, without a newline, likewise at any level. */
bool log_pass_on(const char *text, size_t bytes);

/* Starts the writing thread. */
enum status log_start(struct error *error) WARN_UNUSED;
/* Waits until everything is written, at most `timeout_ns`; the rest and all later lines are lost.
 * Call at most once; does nothing without log_start. */
void log_stop(int64_t timeout_ns);
/* Returns the number of lines that found the buffer full or could not be written. */
uint64_t log_dropped(void);
/* Returns the number of lines left out by log_*_limited. */
uint64_t log_left_out(void);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#define LOG_LIMITED(level, ...)                                                                    \
    do {                                                                                           \
        static struct log_place log_place;                                                         \
        log_limited(&log_place, level, __VA_ARGS__);                                               \
    } while (0)
#define log_warn_limited(...) LOG_LIMITED(LOG_WARN, __VA_ARGS__)
#define log_info_limited(...) LOG_LIMITED(LOG_INFO, __VA_ARGS__)
