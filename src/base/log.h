/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line per event on stderr: time, level, program, event name, then key=value pairs.
 *
 *     2026-01-31T10:00:00.123Z info shoald worker_ready pipeline=digits stage=classify worker=0
 *
 * A line is written with one write(2), so lines of several processes do not mix. Nothing per
 * request is logged above debug; a rate is a counter, not a log line. Values that come from
 * outside go through %s in quotes by the caller's format; control characters are replaced here.
 */
#pragma once

#include "base/error.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Call once at start. `program` is kept, not copied. The default level is info. */
void log_init(const char *program, enum log_level level);

/* Any thread, at any time: lines of this level and above are written from now on. */
void log_set_level(enum log_level level);

/* Parses "error", "warn", "info", "debug"; -1 if it is none of them. */
int log_level_from_name(const char *name);

void log_line(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
