/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/row_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/figure.h"

/* ---- cells ---- */

static int64_t
wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Time since then; "-": never. Nodes' clocks differ and records are not trusted. */
static void
add_age(struct figure_table *table, int64_t then_ms)
{
    int64_t age_ms;
    if (then_ms <= 0 || __builtin_sub_overflow(wall_ms(), then_ms, &age_ms))
        table_add(table, "-");
    else
        table_add_duration(table, age_ms > 0 ? age_ms * NS_PER_MS : 0);
}

static void
add_text(struct figure_table *table, const char *text)
{
    table_add(table, "%s", text[0] != '\0' ? text : "-");
}

static void
add_bytes(struct figure_table *table, int64_t bytes)
{
    char room[FIGURE_ROOM];
    figure_bytes(room, (uint64_t)bytes);
    table_add(table, "%s", room);
}

static bool
is_true(const json_t *row, const char *name)
{
    return json_is_true(json_object_get(row, name));
}

static void
add_flags(struct figure_table *table, const json_t *row)
{
    table_add(table, "%s%s%s%s%s%s%s", is_true(row, "self") ? "this one " : "",
              is_true(row, "leads") ? "leads " : "", is_true(row, "drains") ? "drains " : "",
              is_true(row, "full") ? "full " : "", is_true(row, "store_full") ? "etcd-full " : "",
              ask_number(row, "unreachable_since_ms") != 0 ? "unreachable " : "",
              ask_number(row, "store_silent_since_ms") != 0 ? "etcd-silent" : "");
}

/* "12.0 MiB of 48.0 MiB" of a model that is being fetched. False: it is not. */
static bool
add_fetched(struct figure_table *table, const json_t *row)
{
    char done[FIGURE_ROOM];
    char total[FIGURE_ROOM] = "?";
    if (json_object_get(row, "fetched_bytes") == NULL)
        return false;
    figure_bytes(done, (uint64_t)ask_number(row, "fetched_bytes"));
    if (ask_number(row, "fetch_bytes") != 0)
        figure_bytes(total, (uint64_t)ask_number(row, "fetch_bytes"));
    table_add(table, "%s of %s", done, total);
    return true;
}

/* "2 (2-3)", "2 (2-)" without a maximum, "1 (-1)" without a minimum. */
static void
add_copies(struct figure_table *table, int64_t loaded, const json_t *row)
{
    char least[24] = "";
    char most[24] = "";
    if (ask_number(row, "copies_min") > 0)
        snprintf(least, sizeof(least), "%" PRId64, ask_number(row, "copies_min"));
    if (ask_number(row, "copies_max") > 0)
        snprintf(most, sizeof(most), "%" PRId64, ask_number(row, "copies_max"));
    if (least[0] == '\0' && most[0] == '\0')
        table_add_count(table, (uint64_t)loaded);
    else
        table_add(table, "%" PRId64 " (%s-%s)", loaded, least, most);
}

/* Adds why the node knows the model. */
static void
add_why(struct figure_table *table, const json_t *row)
{
    bool listed = is_true(row, "listed");
    bool ordered = is_true(row, "ordered");
    table_add(table, "%s%s%s",
              listed    ? "listed"
              : ordered ? ""
                        : "-",
              listed && ordered ? ", " : "", ordered ? "ordered" : "");
}

enum column_kind {
    COLUMN_TEXT,
    COLUMN_COUNT,
    COLUMN_COPIES, /* with their bounds */
    COLUMN_BYTES,
    COLUMN_SIZE, /* bytes; 0: none yet, unless it is being fetched */
    COLUMN_AGE,  /* since a time; 0: never */
    COLUMN_IDLE, /* a duration; null: never */
    COLUMN_FLAGS,
    COLUMN_HERE, /* a word, or how far the fetch is */
    COLUMN_WHY,
    COLUMN_TARGET,     /* a vmodel's, during its transition */
    COLUMN_TRANSITION, /* a vmodel's state, whose word in JSON is older */
};

struct row_column {
    const char *heading, *name;
    enum column_kind kind;
};

static void
add_cell(struct figure_table *table, const struct row_column *column, const json_t *row)
{
    const char *text = ask_text(row, column->name);
    int64_t number = ask_number(row, column->name);
    switch (column->kind) {
    case COLUMN_TEXT: add_text(table, text); break;
    case COLUMN_COUNT: table_add_count(table, (uint64_t)number); break;
    case COLUMN_COPIES: add_copies(table, number, row); break;
    case COLUMN_BYTES: add_bytes(table, number); break;
    case COLUMN_AGE: add_age(table, number); break;
    case COLUMN_FLAGS: add_flags(table, row); break;
    case COLUMN_WHY: add_why(table, row); break;
    case COLUMN_HERE:
        if (!add_fetched(table, row))
            add_text(table, text);
        break;
    case COLUMN_SIZE:
        if (number != 0)
            add_bytes(table, number);
        else if (!add_fetched(table, row))
            table_add(table, "-");
        break;
    case COLUMN_IDLE:
        if (json_is_integer(json_object_get(row, column->name)))
            table_add_duration(table, number);
        else
            table_add(table, "-");
        break;
    case COLUMN_TARGET:
        add_text(table, strcmp(ask_text(row, "active"), text) != 0 ? text : "");
        break;
    case COLUMN_TRANSITION: add_text(table, strcmp(text, "going over") == 0 ? "switching" : text);
    }
}

/* ---- tables ---- */

static const struct row_column listed_columns[] = {
    {"MODEL", "id", COLUMN_TEXT},     {"PIPELINE", "pipeline", COLUMN_TEXT},
    {"STATE", "state", COLUMN_TEXT},  {"BY", "", COLUMN_WHY},
    {"PATH", "path", COLUMN_TEXT},    {"SIZE", "bytes", COLUMN_SIZE},
    {"USERS", "users", COLUMN_COUNT}, {"IDLE", "idle_ns", COLUMN_IDLE},
};
static const struct row_column node_columns[] = {
    {"NODE", "id", COLUMN_TEXT},
    {"ZONE", "zone", COLUMN_TEXT},
    {"LABELS", "labels", COLUMN_TEXT},
    {"ADDRESS", "address", COLUMN_TEXT},
    {"", "", COLUMN_FLAGS},
    {"COPIES", "copies", COLUMN_COUNT},
    {"LOADING", "loading", COLUMN_COUNT},
    {"RATE", "calls_per_minute", COLUMN_COUNT},
    {"FREE", "free_bytes", COLUMN_BYTES},
    {"CAPACITY", "capacity_bytes", COLUMN_BYTES},
    {"OLDEST", "oldest_ms", COLUMN_AGE},
    {"UP", "start_ms", COLUMN_AGE},
};
static const struct row_column model_columns[] = {
    {"MODEL", "id", COLUMN_TEXT},
    {"STATE", "state", COLUMN_TEXT},
    {"TYPE", "type", COLUMN_TEXT},
    {"PATH", "path", COLUMN_TEXT},
    {"HERE", "here", COLUMN_HERE},
    {"COPIES", "loaded", COLUMN_COPIES},
    {"LOADING", "loading", COLUMN_COUNT},
    {"FAILED", "failed", COLUMN_COUNT},
    {"VMODELS", "references", COLUMN_COUNT},
    {"UNUSED", "used_ms", COLUMN_AGE},
};
static const struct row_column copy_columns[] = {
    {"NODE", "node", COLUMN_TEXT}, {"STATE", "state", COLUMN_TEXT}, {"HERE", "here", COLUMN_TEXT},
    {"BY", "by", COLUMN_TEXT},     {"FOR", "since_ms", COLUMN_AGE},
};
static const struct row_column vmodel_columns[] = {
    {"VMODEL", "id", COLUMN_TEXT},
    {"STATE", "state", COLUMN_TRANSITION},
    {"OWNER", "owner", COLUMN_TEXT},
    {"MODEL", "active", COLUMN_TEXT},
    {"TARGET", "target", COLUMN_TARGET},
    {"TARGET STATE", "target_state", COLUMN_TEXT},
    {"COPIES", "active_copies", COLUMN_COUNT},
    {"OF TARGET", "target_copies", COLUMN_COUNT},
};

struct row_layout {
    const struct row_column *columns;
    size_t column_count;
    size_t text_columns;
    const char *what; /* a row is */
};

#define LAYOUT(columns) (columns), ARRAY_COUNT(columns)

static const struct row_layout layouts[CONTROL_VERBS] = {
    [CONTROL_MODEL_LIST] = {LAYOUT(listed_columns), 5, "model"},
    [CONTROL_MESH_NODES] = {LAYOUT(node_columns), 5, "node"},
    [CONTROL_MESH_MODELS] = {LAYOUT(model_columns), 5, "model"},
    [CONTROL_MESH_COPIES] = {LAYOUT(copy_columns), 4, "place"},
    [CONTROL_MESH_VMODELS] = {LAYOUT(vmodel_columns), 6, "vmodel"},
};

static void
print_rows(const struct row_layout *layout, const struct rows *rows, FILE *out)
{
    const char *headings[TABLE_COLUMNS_MAX + 1] = {NULL};
    struct figure_table table;
    for (size_t i = 0; i < layout->column_count; i++)
        headings[i] = layout->columns[i].heading;
    table_init(&table, layout->text_columns, headings);
    for (size_t i = 0; i < rows->count; i++)
        for (size_t k = 0; k < layout->column_count; k++)
            add_cell(&table, &layout->columns[k], rows->at[i]);
    if (rows->count > 0)
        table_print(&table, out);
    table_free(&table);
    for (size_t i = 0; i < rows->count; i++)
        if (ask_text(rows->at[i], "error")[0] != '\0')
            fprintf(out, "%s: %s\n", ask_text(rows->at[i], layout->columns[0].name),
                    ask_text(rows->at[i], "error"));
}

static void
print_since(const json_t *row, const char *name, const char *what, FILE *out)
{
    int64_t since_ms = ask_number(row, name);
    time_t since = (time_t)(since_ms / 1000);
    struct tm parts;
    char text[sizeof("2026-11-23T12:00:00Z")];
    if (since_ms == 0 || gmtime_r(&since, &parts) == NULL ||
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        return;
    fprintf(out, "%s: %s since %s\n", ask_text(row, "id"), what, text);
}

static void
print_troubles(const json_t *node, FILE *out)
{
    const char *ahead = ask_text(node, "clock_ahead_seconds");
    print_since(node, "unreachable_since_ms", "unreachable from here", out);
    print_since(node, "store_silent_since_ms", "no answer from etcd", out);
    if (ahead[0] != '\0')
        fprintf(out, "%s: its clock is %s s off mesh time: run chrony or ntpd there\n",
                ask_text(node, "id"), ahead);
}

/* ", 2 loaded (1.50 MiB), 1 failed". */
static void
print_loaded(const struct rows *rows, FILE *out)
{
    char loaded_text[FIGURE_ROOM], failed_text[FIGURE_ROOM], bytes_text[FIGURE_ROOM];
    uint64_t loaded = 0, failed = 0, bytes = 0;
    for (size_t i = 0; i < rows->count; i++) {
        bool is_loaded = strcmp(ask_text(rows->at[i], "state"), "loaded") == 0;
        loaded += is_loaded;
        failed += strcmp(ask_text(rows->at[i], "state"), "failed") == 0;
        bytes += is_loaded ? (uint64_t)ask_number(rows->at[i], "bytes") : 0;
    }
    figure_count(loaded_text, loaded);
    figure_count(failed_text, failed);
    figure_bytes(bytes_text, bytes);
    fprintf(out, ", %s loaded (%s), %s failed", loaded_text, bytes_text, failed_text);
}

void
row_table_print(enum control_verb verb, const struct rows *rows, FILE *out)
{
    const struct row_layout *layout = &layouts[verb];
    CHECK(layout->column_count > 0 && layout->text_columns <= layout->column_count);
    char count[FIGURE_ROOM];
    if (rows->model != NULL)
        fprintf(out, "%s: %s\n", ask_text(rows->model, "id"), ask_text(rows->model, "state"));
    if (rows->model != NULL && ask_text(rows->model, "refusal")[0] != '\0')
        fprintf(out, "no node would load it now: %s\n", ask_text(rows->model, "refusal"));
    print_rows(layout, rows, out);
    for (size_t i = 0; i < rows->count && verb == CONTROL_MESH_NODES; i++)
        print_troubles(rows->at[i], out);
    figure_count(count, rows->count);
    fprintf(out, "%s %s%s", count, layout->what, rows->count == 1 ? "" : "s");
    if (verb == CONTROL_MODEL_LIST)
        print_loaded(rows, out);
    fputs(rows->more ? ", and there are more: --limit, --prefix\n" : "\n", out);
}

void
row_table_json(const json_t *row, FILE *out)
{
    (void)json_dumpf(row, out, 0); /* ctl_run judges the stream */
    putc('\n', out);
}
