/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of the log, written in a signal handler: only calls that are safe there, no memory but the
 * caller's. Control characters, quotes and backslashes become '?'. The rest of a long line is cut.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { CRASH_LINE_BYTES = 640 };

struct crash_line {
    size_t used;
    char text[CRASH_LINE_BYTES];
};

/* Begins with time, level and program, as log.h does, and the event. */
void crash_line_begin(struct crash_line *line, const char *program, const char *event);

/* ` name=value`, ` name=0xvalue`, ` name="value"` */
void crash_line_number(struct crash_line *line, const char *name, int64_t value);
void crash_line_address(struct crash_line *line, const char *name, uintptr_t value);
void crash_line_text(struct crash_line *line, const char *name, const char *value);

/* Pieces of a value that is made bit by bit. */
void crash_line_open(struct crash_line *line, const char *name); /* ` name="` */
void crash_line_add(struct crash_line *line, const char *text);
void crash_line_add_decimal(struct crash_line *line, uint64_t value);
void crash_line_add_hex(struct crash_line *line, uintptr_t value);
void crash_line_close(struct crash_line *line);

/* Writes it with a line feed. Waits a little for room in a full pipe. */
void crash_line_write(struct crash_line *line);
