/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats one line of the log from a printf format such as `worker_died pipeline=%s why="%s"
 * held=%u`: the event, then fields. The format alone says where a field ends; an argument cannot
 * add one. Values are UTF-8 without control characters: others are escaped as in JSON, and bytes
 * that are not UTF-8 become \ufffd. A value is quoted if the format quotes it or logfmt asks for
 * it.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/error.h"

enum log_format { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };

enum {
    LOG_LINE_BYTES_MAX = 2048, /* with its newline; values that do not fit are cut */
    LOG_TIME_BYTES = 32
};

struct log_head {
    char time[LOG_TIME_BYTES];
    const char *level;
    const char *program;
};

/* Appends a line and its newline to `out`, which is empty. Without memory it sets out->failed. */
void log_line_put(struct bytes *out, enum log_format form, const struct log_head *head,
                  const char *format, va_list args) PRINTF_LIKE(4, 0);

/* Returns whether a line, without its newline, is one that log_line_put may have written for a
 * program whose name begins with `program`. */
bool log_line_is_valid(enum log_format form, const char *program, const char *line, size_t bytes);

/* Appends a line of logfmt that is valid so as one of JSON, without a newline. False: it is not. */
bool log_line_translate(struct bytes *out, const char *program, const char *line, size_t bytes);
