/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what all commands of shoalctl stand on: options are read as their table says and mistakes
 * are reported with the word that was meant; figures and tables come out as people read them; a
 * screen is cut to its size. All pure, on plain memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/figure.h"
#include "ctl/screen.h"

/* A function's output to a stream, as text; the next call frees it. */
static char *text;
static size_t text_bytes;
static FILE *stream;

static FILE *
text_begin(void)
{
    free(text);
    text = NULL;
    stream = open_memstream(&text, &text_bytes);
    assert_non_null(stream);
    return stream;
}

static const char *
text_end(void)
{
    assert_int_equal(fclose(stream), 0);
    return text;
}

static int
text_free(void **state)
{
    (void)state;
    free(text);
    text = NULL;
    return 0;
}

/* ---- options ---- */

struct painted {
    const char *color;
    int64_t count;
    bool verbose;
    const char *walls[4];
    size_t wall_count;
};

#define AT(field) offsetof(struct painted, field)

static const struct ctl_option paint_options[] = {
    {"color", "NAME", "a color", .form = CTL_WORD, .at = AT(color)},
    {"count", "N", "how many", .form = CTL_WHOLE, .at = AT(count), .most = 9},
    {"verbose", NULL, "say more", .form = CTL_FLAG, .at = AT(verbose)},
};

static int
paint_run(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

static const struct ctl_command paint = {
    .name = "paint",
    .arguments = "WALL",
    .summary = "Paint",
    .example = "  shoalctl paint\n",
    CTL_OPTIONS(paint_options),
    .letters = "c",
    .run = paint_run,
};

static enum status
on_argument(void *settings, const char *value, struct error *error)
{
    struct painted *painted = settings;
    if (painted->wall_count == 4)
        return error_set(error, STATUS_INVALID_ARGUMENT, "too many walls");
    painted->walls[painted->wall_count++] = value;
    return STATUS_OK;
}

/* Reads a command line of words; returns what ctl_options_read does. */
static int
paint_read(struct painted *painted, const char *words)
{
    static char line[256];
    char *argv[16] = {line};
    int argc = 0;
    snprintf(line, sizeof line, "%s", words);
    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    memset(painted, 0, sizeof *painted);
    return ctl_options_read(&paint, argc, argv, on_argument, painted);
}

TEST_CASE(test_options_are_read_in_any_order)
{
    struct painted painted;
    assert_int_equal(
        paint_read(&painted, "paint north --color=red south --verbose --count 3 -- -x"), -1);
    assert_string_equal(painted.color, "red");
    assert_int_equal(painted.count, 3);
    assert_true(painted.verbose);
    assert_int_equal(painted.wall_count, 3);
    assert_string_equal(painted.walls[1], "south");
    assert_string_equal(painted.walls[2], "-x");
}

TEST_CASE(test_letters_stand_for_options)
{
    struct painted painted;
    assert_int_equal(paint_read(&painted, "paint -c red north"), -1);
    assert_string_equal(painted.color, "red");
    assert_string_equal(painted.walls[0], "north");
    assert_int_equal(paint_read(&painted, "paint -cblue"), -1);
    assert_string_equal(painted.color, "blue");
    assert_int_equal(paint_read(&painted, "paint -c"), CTL_USAGE);
}

TEST_CASE(test_wrong_options_are_usage_errors)
{
    struct painted painted;
    assert_int_equal(paint_read(&painted, "paint --colour red"), CTL_USAGE);
    assert_int_equal(paint_read(&painted, "paint --count"), CTL_USAGE);
    assert_int_equal(paint_read(&painted, "paint --count 10"), CTL_USAGE);
    assert_int_equal(paint_read(&painted, "paint --count 3x"), CTL_USAGE);
    assert_int_equal(paint_read(&painted, "paint --verbose=1"), CTL_USAGE);
    assert_int_equal(paint_read(&painted, "paint -q"), CTL_USAGE);
    assert_int_equal(paint_read(&painted, "paint a b c d e"), CTL_USAGE);
    assert_int_equal(paint_read(&painted, "paint --help"), CTL_OK);
}

TEST_CASE(test_nearest_word)
{
    static const char *const known[] = {"infer", "status", "stat", "top"};
    assert_string_equal(ctl_nearest("infre", known, 4), "infer");
    assert_string_equal(ctl_nearest("inferr", known, 4), "infer");
    assert_string_equal(ctl_nearest("statu", known, 4), "status");
    assert_string_equal(ctl_nearest("sta", known, 4), "stat");
    assert_string_equal(ctl_nearest("tpo", known, 4), "top");
    assert_null(ctl_nearest("register", known, 4));
    assert_null(ctl_nearest("xyzzy", known, 4));
    assert_null(ctl_nearest("a-very-long-word-that-nobody-would-ever-type-as-a-command", known, 4));
}

TEST_CASE(test_seconds)
{
    struct error error = ERROR_NONE;
    int64_t duration_ns = 0;
    assert_int_equal(ctl_read_seconds("0.25", &duration_ns, &error), STATUS_OK);
    assert_int_equal(duration_ns, NS_PER_S / 4);
    assert_int_equal(ctl_read_seconds("0", &duration_ns, &error), STATUS_INVALID_ARGUMENT);
    assert_int_equal(ctl_read_seconds("-1", &duration_ns, &error), STATUS_INVALID_ARGUMENT);
    assert_int_equal(ctl_read_seconds("nan", &duration_ns, &error), STATUS_INVALID_ARGUMENT);
    assert_int_equal(ctl_read_seconds("1s", &duration_ns, &error), STATUS_INVALID_ARGUMENT);
    assert_int_equal(ctl_read_seconds("1e99", &duration_ns, &error), STATUS_INVALID_ARGUMENT);
}

/* ---- figures, tables, the screen ---- */

static const char *
duration(int64_t duration_ns)
{
    static char room[FIGURE_ROOM];
    figure_duration(room, duration_ns);
    return room;
}

TEST_CASE(test_durations_have_a_unit_that_fits)
{
    assert_string_equal(duration(-5), "0 ns");
    assert_string_equal(duration(999), "999 ns");
    assert_string_equal(duration(1000), "1.00 us");
    assert_string_equal(duration(12345), "12.3 us");
    assert_string_equal(duration(999499), "999 us");
    assert_string_equal(duration(999500), "1.00 ms");
    assert_string_equal(duration(1500 * NS_PER_MS), "1.50 s");
    assert_string_equal(duration(125 * NS_PER_S), "2 min 5 s");
    assert_string_equal(duration(7260 * NS_PER_S), "2 h 1 min");
    assert_string_equal(duration(180000 * NS_PER_S), "2 d 2 h");
    assert_string_equal(duration(INT64_MAX), "106751 d 23 h");
}

TEST_CASE(test_counts_are_grouped)
{
    char room[FIGURE_ROOM];
    figure_count(room, 999);
    assert_string_equal(room, "999");
    figure_count(room, 1000);
    assert_string_equal(room, "1,000");
    figure_count(room, UINT64_MAX);
    assert_string_equal(room, "18,446,744,073,709,551,615");
}

TEST_CASE(test_table_columns_line_up)
{
    static const char *const headings[] = {"name", "n", NULL};
    struct figure_table table;
    table_init(&table, 1, headings);
    table_add(&table, "a");
    table_add_count(&table, 12345);
    table_add(&table, "longer");
    table_add_duration(&table, 7);
    table_print(&table, text_begin());
    table_free(&table);
    assert_string_equal(text_end(), "  name         n\n"
                                    "  a       12,345\n"
                                    "  longer    7 ns\n");
}

TEST_CASE(test_screen_is_cut_to_its_size)
{
    static const char lines[] = "abcdef\nh\xc3\xa9llo\nwhole\nlast\n";
    struct screen screen = {.rows = 4, .columns = 5};
    screen_write(&screen, lines, text_begin());
    assert_string_equal(text_end(), "\033[Habcd>\033[K\r\nh\xc3\xa9llo\033[K\r\nwhole\033[K"
                                    "\r\nlast\033[K\033[J");
    screen = (struct screen){.rows = 3, .columns = 80, .first = 1};
    screen_write(&screen, lines, text_begin());
    assert_string_equal(text_end(), "\033[Hh\xc3\xa9llo\033[K\r\nwhole\033[K\r\n-- lines 2 to 3 of "
                                    "4; arrows, space, b scroll --\033[K\033[J");
    screen.first = 1000;
    screen_write(&screen, lines, text_begin());
    assert_int_equal(screen.first, 2);
    assert_non_null(strstr(text_end(), "last"));
    screen = (struct screen){.rows = 1, .columns = 8};
    screen_write(&screen, lines, text_begin());
    assert_string_equal(text_end(), "\033[H-- line>\033[K\033[J");
    screen = (struct screen){.rows = 5, .columns = 80};
    screen_write(&screen, "one", text_begin());
    assert_string_equal(text_end(), "\033[Hone\033[K\033[J");
}

TEST_MAIN(.group_teardown = text_free)
