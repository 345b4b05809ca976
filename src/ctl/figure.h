/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures for people: durations with a suitable unit, counts with separators, tables.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum { FIGURE_ROOM = 32 };

/* "850 ns", "1.24 ms", "3 d 4 h". */
void figure_duration(char room[FIGURE_ROOM], int64_t duration_ns);
/* "12,345". */
void figure_count(char room[FIGURE_ROOM], uint64_t count);
/* "850 B", "1.24 MiB". */
void figure_bytes(char room[FIGURE_ROOM], uint64_t bytes);
/* Local time, "2026-01-31 10:00:00". */
void figure_time(char room[FIGURE_ROOM], int64_t unix_ns);

/*
 * A table: cells are added row by row, left to right; printing makes each column as wide as its
 * widest cell. Text is left-aligned, everything else right-aligned.
 */
enum { TABLE_COLUMNS_MAX = 20, TABLE_CELL_ROOM = 136 };

struct figure_table {
    size_t column_count;
    size_t text_columns; /* number of leading columns that hold text */
    char (*cells)[TABLE_CELL_ROOM];
    size_t cell_count;
    size_t cell_room;
};

/* `headings` ends with NULL. */
void table_init(struct figure_table *table, size_t text_columns, const char *const *headings);
void table_add(struct figure_table *table, const char *format, ...) PRINTF_LIKE(2, 3);
void table_add_count(struct figure_table *table, uint64_t count);
void table_add_duration(struct figure_table *table, int64_t duration_ns);
void table_print(const struct figure_table *table, FILE *out);
void table_free(struct figure_table *table);
