/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/figure.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"

static void
three_digits(char room[FIGURE_ROOM], double value, const char *unit)
{
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(room, FIGURE_ROOM, "%.*f %s", decimals, value, unit);
}

void
figure_duration(char room[FIGURE_ROOM], int64_t duration_ns)
{
    static const int64_t minute = 60, hour = 3600, day = 86400;
    int64_t seconds = duration_ns / NS_PER_S;
    double value = (double)duration_ns;
    if (duration_ns < 1000)
        snprintf(room, FIGURE_ROOM, "%" PRId64 " ns", duration_ns > 0 ? duration_ns : 0);
    else if (value < 999.5e3)
        three_digits(room, value / 1e3, "us");
    else if (value < 999.5e6)
        three_digits(room, value / 1e6, "ms");
    else if (seconds < 2 * minute)
        three_digits(room, value / 1e9, "s");
    else if (seconds < 2 * hour)
        snprintf(room, FIGURE_ROOM, "%" PRId64 " min %" PRId64 " s", seconds / minute,
                 seconds % minute);
    else if (seconds < 2 * day)
        snprintf(room, FIGURE_ROOM, "%" PRId64 " h %" PRId64 " min", seconds / hour,
                 seconds % hour / minute);
    else
        snprintf(room, FIGURE_ROOM, "%" PRId64 " d %" PRId64 " h", seconds / day,
                 seconds % day / hour);
}

void
figure_count(char room[FIGURE_ROOM], uint64_t count)
{
    char digits[FIGURE_ROOM];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    size_t used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            room[used++] = ',';
        room[used++] = digits[i];
    }
    room[used] = '\0';
}

void
figure_bytes(char room[FIGURE_ROOM], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    enum { STEP = 1024 };
    double figure = (double)bytes;
    size_t unit = 0;
    for (; figure >= STEP && unit + 1 < ARRAY_COUNT(units); unit++)
        figure /= STEP;
    snprintf(room, FIGURE_ROOM, unit == 0 ? "%.0f %s" : "%.2f %s", figure, units[unit]);
}

void
figure_time(char room[FIGURE_ROOM], int64_t unix_ns)
{
    time_t seconds = unix_ns / NS_PER_S;
    struct tm parts;
    if (localtime_r(&seconds, &parts) == NULL ||
        strftime(room, FIGURE_ROOM, "%Y-%m-%d %H:%M:%S", &parts) == 0)
        snprintf(room, FIGURE_ROOM, "?");
}

/* ---- tables ---- */

void
table_init(struct figure_table *table, size_t text_columns, const char *const *headings)
{
    *table = (struct figure_table){.text_columns = text_columns};
    for (; headings[table->column_count] != NULL; table->column_count++)
        table_add(table, "%s", headings[table->column_count]);
    CHECK(table->column_count <= TABLE_COLUMNS_MAX);
}

/* Control characters, which a terminal would obey, become "?". */
static void
make_plain(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        bool begins = *at < ' ' || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0);
        bool goes_on = (*at & 0xc0) == 0x80 && at > (unsigned char *)text && at[-1] == '?';
        if (begins || goes_on)
            *at = '?';
    }
}

void
table_add(struct figure_table *table, const char *format, ...)
{
    enum { CELLS_FIRST = 64 };
    if (table->cell_count == table->cell_room) {
        table->cell_room = table->cell_room > 0 ? table->cell_room * 2 : CELLS_FIRST;
        table->cells = realloc(table->cells, table->cell_room * sizeof *table->cells);
        CHECK(table->cells != NULL);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(table->cells[table->cell_count], TABLE_CELL_ROOM, format, args);
    va_end(args);
    make_plain(table->cells[table->cell_count++]);
}

void
table_add_count(struct figure_table *table, uint64_t count)
{
    char room[FIGURE_ROOM];
    figure_count(room, count);
    table_add(table, "%s", room);
}

void
table_add_duration(struct figure_table *table, int64_t duration_ns)
{
    char room[FIGURE_ROOM];
    figure_duration(room, duration_ns);
    table_add(table, "%s", room);
}

/* Characters, not bytes: names may be any UTF-8. */
static size_t
width_of(const char *cell)
{
    size_t width = 0;
    for (; *cell != '\0'; cell++)
        width += (*cell & 0xc0) != 0x80;
    return width;
}

void
table_print(const struct figure_table *table, FILE *out)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    CHECK(table->cell_count % table->column_count == 0);
    for (size_t i = 0; i < table->cell_count; i++) {
        size_t width = width_of(table->cells[i]);
        size_t column = i % table->column_count;
        widths[column] = width > widths[column] ? width : widths[column];
    }
    for (size_t i = 0; i < table->cell_count; i++) {
        const char *cell = table->cells[i];
        size_t column = i % table->column_count;
        int pad = (int)(widths[column] - width_of(cell));
        bool last = column + 1 == table->column_count;
        if (column < table->text_columns)
            fprintf(out, "  %s%*s", cell, last ? 0 : pad, "");
        else
            fprintf(out, "  %*s%s", pad, "", cell);
        if (last)
            putc('\n', out);
    }
}

void
table_free(struct figure_table *table)
{
    free(table->cells);
    *table = (struct figure_table){0};
}
