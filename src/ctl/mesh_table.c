/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/mesh_table.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/figure.h"
#include "ctl/json.h"

/* ---- JSON ---- */

static void
texts_json(struct json *json, const struct mesh_row *row, const char *const keys[CONTROL_TEXTS])
{
    for (int i = 0; i < CONTROL_TEXTS; i++)
        if (keys[i] != NULL)
            json_field_string(json, keys[i], row->texts[i]);
}

static void
numbers_json(struct json *json, const struct mesh_row *row, const char *const keys[CONTROL_NUMBERS])
{
    for (int i = 0; i < CONTROL_NUMBERS; i++)
        if (keys[i] != NULL)
            json_field_int(json, keys[i], (int64_t)row->row->numbers[i]);
}

static void
node_json(struct json *json, const struct mesh_row *row)
{
    static const char *const texts[CONTROL_TEXTS] = {
        [CONTROL_NODE_ID] = "id",           [CONTROL_NODE_ZONE] = "zone",
        [CONTROL_NODE_LABELS] = "labels",   [CONTROL_NODE_LOCATION] = "location",
        [CONTROL_NODE_ADDRESS] = "address", [CONTROL_NODE_CLOCK] = "clock_ahead_seconds",
    };
    static const char *const numbers[CONTROL_NUMBERS] = {
        [CONTROL_NODE_CAPACITY_BYTES] = "capacity_bytes",
        [CONTROL_NODE_FREE_BYTES] = "free_bytes",
        [CONTROL_NODE_OLDEST_MS] = "oldest_ms",
        [CONTROL_NODE_COPIES] = "copies",
        [CONTROL_NODE_LOADING] = "loading",
        [CONTROL_NODE_RATE] = "calls_per_minute",
        [CONTROL_NODE_VERSION] = "version",
        [CONTROL_NODE_START_MS] = "start_ms",
        [CONTROL_NODE_LOADERS] = "loaders",
        [CONTROL_NODE_UNREACHABLE_MS] = "unreachable_since_ms",
        [CONTROL_NODE_SILENT_MS] = "store_silent_since_ms",
    };
    uint64_t flags = row->row->numbers[CONTROL_NODE_FLAGS];
    texts_json(json, row, texts);
    numbers_json(json, row, numbers);
    json_field_bool(json, "self", (flags & CONTROL_NODE_SELF) != 0);
    json_field_bool(json, "leads", (flags & CONTROL_NODE_LEADS) != 0);
    json_field_bool(json, "drains", (flags & CONTROL_NODE_DRAINS) != 0);
    json_field_bool(json, "full", (flags & CONTROL_NODE_FULL) != 0);
    json_field_bool(json, "store_full", (flags & CONTROL_NODE_STORE_FULL) != 0);
}

static void
model_json(struct json *json, const struct mesh_row *row)
{
    static const char *const texts[CONTROL_TEXTS] = {
        [CONTROL_MODEL_ID] = "id",     [CONTROL_MODEL_STATE] = "state",
        [CONTROL_MODEL_TYPE] = "type", [CONTROL_MODEL_PATH] = "path",
        [CONTROL_MODEL_HERE] = "here", [CONTROL_MODEL_ERROR] = "error",
    };
    static const char *const numbers[CONTROL_NUMBERS] = {
        [CONTROL_MODEL_LOADED] = "loaded",         [CONTROL_MODEL_LOADING] = "loading",
        [CONTROL_MODEL_FAILED] = "failed",         [CONTROL_MODEL_USED_MS] = "used_ms",
        [CONTROL_MODEL_REFERENCES] = "references",
    };
    texts_json(json, row, texts);
    numbers_json(json, row, numbers);
    json_field_bool(json, "auto_delete", row->row->numbers[CONTROL_MODEL_AUTO_DELETE] != 0);
}

static void
copy_json(struct json *json, const struct mesh_row *row)
{
    static const char *const texts[CONTROL_TEXTS] = {
        [CONTROL_COPY_NODE] = "node", [CONTROL_COPY_STATE] = "state",
        [CONTROL_COPY_HERE] = "here", [CONTROL_COPY_ERROR] = "error",
        [CONTROL_COPY_BY] = "by",
    };
    static const char *const numbers[CONTROL_NUMBERS] = {[CONTROL_COPY_SINCE_MS] = "since_ms"};
    texts_json(json, row, texts);
    numbers_json(json, row, numbers);
}

static void
vmodel_json(struct json *json, const struct mesh_row *row)
{
    static const char *const texts[CONTROL_TEXTS] = {
        [CONTROL_VMODEL_ID] = "id",         [CONTROL_VMODEL_STATE] = "state",
        [CONTROL_VMODEL_OWNER] = "owner",   [CONTROL_VMODEL_ACTIVE] = "active",
        [CONTROL_VMODEL_TARGET] = "target", [CONTROL_VMODEL_TARGET_STATE] = "target_state",
    };
    static const char *const numbers[CONTROL_NUMBERS] = {
        [CONTROL_VMODEL_ACTIVE_COPIES] = "active_copies",
        [CONTROL_VMODEL_TARGET_COPIES] = "target_copies",
    };
    texts_json(json, row, texts);
    numbers_json(json, row, numbers);
}

void
mesh_table_json(const struct mesh_row *row, FILE *out)
{
    struct json json;
    json_init(&json, out);
    json_object_begin(&json);
    switch ((enum control_row_kind)row->row->kind) {
    case CONTROL_ROW_NODE: node_json(&json, row); break;
    case CONTROL_ROW_MODEL: model_json(&json, row); break;
    case CONTROL_ROW_COPY: copy_json(&json, row); break;
    case CONTROL_ROW_VMODEL: vmodel_json(&json, row); break;
    case CONTROL_ROW_MOVE:
    case CONTROL_ROW_PAGE: break;
    }
    json_object_end(&json);
    putc('\n', out);
}

/* ---- text ---- */

static int64_t
wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Time since then; "-": never. Nodes' clocks differ and records are not trusted. */
static void
add_age(struct figure_table *table, uint64_t then_ms)
{
    int64_t age_ms;
    if (then_ms == 0 || then_ms > INT64_MAX ||
        __builtin_sub_overflow(wall_ms(), (int64_t)then_ms, &age_ms) ||
        age_ms > INT64_MAX / NS_PER_MS)
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
add_bytes(struct figure_table *table, uint64_t bytes)
{
    char room[FIGURE_ROOM];
    figure_bytes(room, bytes);
    table_add(table, "%s", room);
}

static void
add_flags(struct figure_table *table, const uint64_t numbers[CONTROL_NUMBERS])
{
    uint64_t flags = numbers[CONTROL_NODE_FLAGS];
    table_add(table, "%s%s%s%s%s%s%s", (flags & CONTROL_NODE_SELF) != 0 ? "this one " : "",
              (flags & CONTROL_NODE_LEADS) != 0 ? "leads " : "",
              (flags & CONTROL_NODE_DRAINS) != 0 ? "drains " : "",
              (flags & CONTROL_NODE_FULL) != 0 ? "full " : "",
              (flags & CONTROL_NODE_STORE_FULL) != 0 ? "etcd-full " : "",
              numbers[CONTROL_NODE_UNREACHABLE_MS] != 0 ? "unreachable " : "",
              numbers[CONTROL_NODE_SILENT_MS] != 0 ? "etcd-silent" : "");
}

static void
node_row(struct figure_table *table, const struct mesh_row *row)
{
    const uint64_t *numbers = row->row->numbers;
    add_text(table, row->texts[CONTROL_NODE_ID]);
    add_text(table, row->texts[CONTROL_NODE_ZONE]);
    add_text(table, row->texts[CONTROL_NODE_LABELS]);
    add_text(table, row->texts[CONTROL_NODE_ADDRESS]);
    add_flags(table, numbers);
    table_add_count(table, numbers[CONTROL_NODE_COPIES]);
    table_add_count(table, numbers[CONTROL_NODE_LOADING]);
    table_add_count(table, numbers[CONTROL_NODE_RATE]);
    add_bytes(table, numbers[CONTROL_NODE_FREE_BYTES]);
    add_bytes(table, numbers[CONTROL_NODE_CAPACITY_BYTES]);
    add_age(table, numbers[CONTROL_NODE_OLDEST_MS]);
    add_age(table, numbers[CONTROL_NODE_START_MS]);
    table_add(table, "%" PRId64, (int64_t)numbers[CONTROL_NODE_VERSION]);
}

static void
model_row(struct figure_table *table, const struct mesh_row *row)
{
    const uint64_t *numbers = row->row->numbers;
    add_text(table, row->texts[CONTROL_MODEL_ID]);
    add_text(table, row->texts[CONTROL_MODEL_STATE]);
    add_text(table, row->texts[CONTROL_MODEL_TYPE]);
    add_text(table, row->texts[CONTROL_MODEL_PATH]);
    add_text(table, row->texts[CONTROL_MODEL_HERE]);
    table_add_count(table, numbers[CONTROL_MODEL_LOADED]);
    table_add_count(table, numbers[CONTROL_MODEL_LOADING]);
    table_add_count(table, numbers[CONTROL_MODEL_FAILED]);
    table_add_count(table, numbers[CONTROL_MODEL_REFERENCES]);
    add_age(table, numbers[CONTROL_MODEL_USED_MS]);
}

static void
copy_row(struct figure_table *table, const struct mesh_row *row)
{
    add_text(table, row->texts[CONTROL_COPY_NODE]);
    add_text(table, row->texts[CONTROL_COPY_STATE]);
    add_text(table, row->texts[CONTROL_COPY_HERE]);
    add_text(table, row->texts[CONTROL_COPY_BY]);
    add_age(table, row->row->numbers[CONTROL_COPY_SINCE_MS]);
}

static void
vmodel_row(struct figure_table *table, const struct mesh_row *row)
{
    add_text(table, row->texts[CONTROL_VMODEL_ID]);
    add_text(table, row->texts[CONTROL_VMODEL_STATE]);
    add_text(table, row->texts[CONTROL_VMODEL_OWNER]);
    const char *active = row->texts[CONTROL_VMODEL_ACTIVE];
    const char *target = row->texts[CONTROL_VMODEL_TARGET];
    add_text(table, active);
    add_text(table, strcmp(active, target) != 0 ? target : "");
    add_text(table, row->texts[CONTROL_VMODEL_TARGET_STATE]);
    table_add_count(table, row->row->numbers[CONTROL_VMODEL_ACTIVE_COPIES]);
    table_add_count(table, row->row->numbers[CONTROL_VMODEL_TARGET_COPIES]);
}

struct layout {
    enum control_row_kind kind;
    size_t text_columns;
    const char *const *headings;
    void (*add)(struct figure_table *table, const struct mesh_row *row);
    int name_text, error_text; /* error_text -1: none */
};

static const struct layout *
layout_of(enum control_verb verb)
{
    static const char *const nodes[] = {"NODE",   "ZONE",    "LABELS",  "ADDRESS", "",
                                        "COPIES", "LOADING", "RATE",    "FREE",    "CAPACITY",
                                        "OLDEST", "UP",      "VERSION", NULL};
    static const char *const models[] = {"MODEL",   "STATE",  "TYPE",    "PATH",   "HERE", "COPIES",
                                         "LOADING", "FAILED", "VMODELS", "UNUSED", NULL};
    static const char *const copies[] = {"NODE", "STATE", "HERE", "BY", "FOR", NULL};
    static const char *const vmodels[] = {"VMODEL", "STATE",  "OWNER",     "MODEL", "TARGET",
                                          "IT IS",  "COPIES", "OF TARGET", NULL};
    static const struct layout of_nodes = {CONTROL_ROW_NODE, 5, nodes, node_row, 0, -1};
    static const struct layout of_models = {
        CONTROL_ROW_MODEL, 5, models, model_row, CONTROL_MODEL_ID, CONTROL_MODEL_ERROR};
    static const struct layout of_copies = {
        CONTROL_ROW_COPY, 4, copies, copy_row, CONTROL_COPY_NODE, CONTROL_COPY_ERROR};
    static const struct layout of_vmodels = {CONTROL_ROW_VMODEL, 6, vmodels, vmodel_row, 0, -1};
    switch (verb) {
    case CONTROL_MESH_NODES: return &of_nodes;
    case CONTROL_MESH_MODELS: return &of_models;
    case CONTROL_MESH_COPIES: return &of_copies;
    default: return &of_vmodels;
    }
}

static size_t
print_rows(const struct layout *layout, const struct mesh_rows *rows, FILE *out)
{
    struct figure_table table;
    size_t count = 0;
    table_init(&table, layout->text_columns, layout->headings);
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->at[i].row->kind != layout->kind)
            continue;
        layout->add(&table, &rows->at[i]);
        count++;
    }
    if (count > 0)
        table_print(&table, out);
    table_free(&table);
    for (size_t i = 0; i < rows->count && layout->error_text >= 0; i++) {
        const struct mesh_row *row = &rows->at[i];
        if (row->row->kind == layout->kind && row->texts[layout->error_text][0] != '\0')
            fprintf(out, "%s: %s\n", row->texts[layout->name_text], row->texts[layout->error_text]);
    }
    return count;
}

static void
print_since(const struct mesh_row *row, enum control_node_number number, const char *what,
            FILE *out)
{
    uint64_t since_ms = row->row->numbers[number];
    time_t since = (time_t)(since_ms / 1000);
    struct tm parts;
    char text[sizeof("2026-11-23T12:00:00Z")];
    if (since_ms == 0 || gmtime_r(&since, &parts) == NULL ||
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        return;
    fprintf(out, "%s: %s since %s\n", row->texts[CONTROL_NODE_ID], what, text);
}

static void
print_troubles(const struct mesh_rows *rows, FILE *out)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->at[i].row->kind != CONTROL_ROW_NODE)
            continue;
        print_since(&rows->at[i], CONTROL_NODE_UNREACHABLE_MS, "unreachable from here", out);
        print_since(&rows->at[i], CONTROL_NODE_SILENT_MS, "no answer from etcd", out);
        const char *const *texts = rows->at[i].texts;
        if (texts[CONTROL_NODE_CLOCK][0] != '\0')
            fprintf(out, "%s: its clock is %s s off mesh time: run chrony or ntpd there\n",
                    texts[CONTROL_NODE_ID], texts[CONTROL_NODE_CLOCK]);
    }
}

static void
print_sum(enum control_verb verb, size_t count, const struct mesh_rows *rows, FILE *out)
{
    const char *what = verb == CONTROL_MESH_NODES    ? "node"
                       : verb == CONTROL_MESH_MODELS ? "model"
                       : verb == CONTROL_MESH_COPIES ? "place"
                                                     : "vmodel";
    char room[FIGURE_ROOM];
    figure_count(room, count);
    fprintf(out, "%s %s%s%s\n", room, what, count == 1 ? "" : "s",
            rows->more ? ", and there are more: --limit, --prefix" : "");
}

void
mesh_table_print(enum control_verb verb, const struct mesh_rows *rows, FILE *out)
{
    const struct layout *layout = layout_of(verb);
    if (verb == CONTROL_MESH_COPIES && rows->count > 0) { /* the model itself is the first row */
        const struct mesh_row *model = &rows->at[0];
        fprintf(out, "%s: %s\n", model->texts[CONTROL_MODEL_ID], model->texts[CONTROL_MODEL_STATE]);
    }
    size_t count = print_rows(layout, rows, out);
    print_troubles(rows, out);
    print_sum(verb, count, rows, out);
}
