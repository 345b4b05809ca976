/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_report.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "mesh/edge/book.h"
#include "mesh/edge/skew.h"

enum {
    LOOKED_AT_ONCE = 128, /* under one hold of the runner's lock */
    LOOKED_MAX = 16384,   /* for one answer */
    CLOCK_ROOM = 32,
};

struct mesh_report {
    const struct mesh_report_source *source;
    const struct control_request *request;
    struct json json;
    uint32_t rows;
    char leader[STORE_ID_BYTES_MAX + 1]; /* "": none */
    struct skew_view skew;
};

static struct json *
row_begin(struct mesh_report *report)
{
    report->rows++;
    json_open(&report->json, '{');
    return &report->json;
}

/* Readers have signed numbers; records may contain any. */
static void
field_count(struct json *json, const char *name, uint64_t count)
{
    json_field_int(json, name, count > INT64_MAX ? INT64_MAX : (int64_t)count);
}

static void
field_text(struct json *json, const char *name, const char *text)
{
    json_field_string(json, name, text == NULL ? "" : text);
}

/* ---- words ---- */

static const char *const model_words[] = {
    [MESH_MODEL_NOT_FOUND] = "gone",  [MESH_MODEL_NOT_LOADED] = "not loaded",
    [MESH_MODEL_LOADING] = "loading", [MESH_MODEL_LOADED] = "loaded",
    [MESH_MODEL_FAILED] = "failed",
};

static const char *const place_words[] = {
    [MESH_PLACE_LOADING] = "loading",
    [MESH_PLACE_LOADED] = "loaded",
    [MESH_PLACE_FAILED] = "failed",
};

static const char *const here_words[] = {
    [MESH_STATE_NONE] = "",
    [MESH_STATE_CLAIMING] = "claiming",
    [MESH_STATE_QUEUED] = "queued",
    [MESH_STATE_LOADING] = "loading",
    [MESH_STATE_LOADED] = "loaded",
    [MESH_STATE_WITHDRAWING] = "withdrawing",
    [MESH_STATE_EMPTYING] = "emptying",
    [MESH_STATE_UNLOADING] = "unloading",
};

static const char *const vmodel_words[] = {
    [MESH_VMODEL_NOT_FOUND] = "gone",
    [MESH_VMODEL_DEFINED] = "defined",
    [MESH_VMODEL_TRANSITIONING] = "going over", /* clients parse it; people see "switching" */
    [MESH_VMODEL_FAILED] = "failed",
};

/* ---- nodes ---- */

static uint64_t
bytes_of(uint64_t units)
{
    uint64_t bytes;
    return __builtin_mul_overflow(units, RECORD_UNIT_BYTES, &bytes) ? UINT64_MAX : bytes;
}

/* Converts a point of clock_now_ns to the wall clock; 0 stays 0. */
static int64_t
wall_ms(int64_t then_ns)
{
    struct timespec now;
    if (then_ns == 0)
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS - (clock_now_ns() - then_ns) / NS_PER_MS;
}

/* Converts a stamp of mesh time to this node's wall clock, so that its age can be read here; 0
 * stays 0. */
static int64_t
stamp_ms(const struct mesh_report *report, int64_t stamp)
{
    int64_t here_ms;
    if (stamp == 0 || __builtin_add_overflow(stamp, report->skew.ahead_ms, &here_ms))
        return stamp;
    return here_ms;
}

/* Returns how far the node's clock is ahead of mesh time, in seconds; "": not at all, or not
 * known. */
static const char *
clock_text(const struct mesh_report *report, const char *instance, bool is_self,
           char text[CLOCK_ROOM])
{
    struct skew *skew = runner_skew(report->source->runner);
    int64_t ahead_ms = is_self || skew == NULL ? report->skew.ahead_ms : skew_of(skew, instance);
    if (ahead_ms < MESH_CLOCK_SKEWED_MS && ahead_ms > -MESH_CLOCK_SKEWED_MS)
        return "";
    snprintf(text, CLOCK_ROOM, "%+.1f", (double)ahead_ms / 1000);
    return text;
}

static int64_t
unreachable_ns(const struct mesh_report *report, const char *instance)
{
    struct peers *peers = report->source->peers;
    return peers == NULL ? 0 : peers_unreachable_ns(peers, instance);
}

static void
see_node(void *context, const struct mesh_instance *instance)
{
    struct mesh_report *report = context;
    const struct mesh_figures *figures = &instance->figures;
    const struct book_entry *where = runner_where(report->source->runner, instance->id);
    bool is_self = strcmp(instance->id, report->source->instance) == 0;
    char clock[CLOCK_ROOM];
    if (strncmp(instance->id, report->request->prefix, strlen(report->request->prefix)) != 0)
        return;
    struct json *json = row_begin(report);
    field_text(json, "id", instance->id);
    field_text(json, "zone", where == NULL ? NULL : where->zone);
    field_text(json, "labels", instance->labels);
    field_text(json, "location", where == NULL ? NULL : where->location);
    field_text(json, "address", where == NULL ? NULL : where->address);
    field_text(json, "clock_ahead_seconds", clock_text(report, instance->id, is_self, clock));
    field_count(json, "capacity_bytes", bytes_of(figures->capacity_units));
    field_count(json, "free_bytes", bytes_of(figures->free_units));
    json_field_int(json, "oldest_ms",
                   figures->copies == 0 ? 0 : stamp_ms(report, figures->oldest_ms));
    field_count(json, "copies", figures->copies);
    field_count(json, "loading", figures->loading);
    field_count(json, "calls_per_minute", figures->calls_per_minute);
    json_field_int(json, "version", instance->version);
    json_field_int(json, "start_ms", stamp_ms(report, instance->start_ms));
    field_count(json, "loaders", where == NULL ? 0 : where->loaders);
    json_field_int(json, "unreachable_since_ms",
                   is_self ? 0 : wall_ms(unreachable_ns(report, instance->id)));
    json_field_int(json, "store_silent_since_ms", is_self ? wall_ms(report->source->silent_ns) : 0);
    json_field_bool(json, "self", is_self);
    json_field_bool(json, "leads", strcmp(instance->id, report->leader) == 0);
    json_field_bool(json, "drains", instance->draining);
    json_field_bool(json, "full", figures->full);
    json_field_bool(json, "store_full", is_self && report->source->is_full);
    json_close(json, '}');
}

static uint64_t
see_nodes(struct mesh_report *report, uint64_t from, uint32_t count)
{
    return runner_visit_instances(report->source->runner, from, count, see_node, report);
}

/* ---- models ---- */

static uint32_t
count_of(const struct mesh_status *status, enum mesh_place_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < status->place_count; i++)
        count += status->places[i].kind == kind;
    return count;
}

static const char *
error_of(const struct mesh_status *status)
{
    for (uint32_t i = 0; i < status->place_count; i++)
        if (status->places[i].kind == MESH_PLACE_FAILED && status->places[i].reason != NULL)
            return status->places[i].reason;
    return "";
}

/* Reports the fetch of a model that this node fetches. */
static void
report_fetch(const struct mesh_report *report, const char *id, struct json *json)
{
    struct storage *storage = report->source->storage;
    struct storage_progress progress;
    if (storage == NULL || !storage_find(storage, id, &progress))
        return;
    field_count(json, "fetched_bytes", progress.bytes);
    field_count(json, "fetch_bytes", progress.total);
}

static void
report_model(struct mesh_report *report, const struct mesh_sight *sight)
{
    const struct mesh_model *model = &sight->model;
    struct json *json = row_begin(report);
    char path[PATH_MAX];
    field_text(json, "id", model->id);
    field_text(json, "state", model_words[sight->status.state]);
    field_text(json, "type", model->type);
    storage_show_path(model->path != NULL ? model->path : "", path, sizeof(path));
    field_text(json, "path", path);
    field_text(json, "here", here_words[sight->here]);
    field_text(json, "error", error_of(&sight->status));
    if (report->request->verb == CONTROL_MESH_COPIES)
        field_text(json, "refusal", sight->status.error);
    field_count(json, "loaded", count_of(&sight->status, MESH_PLACE_LOADED));
    field_count(json, "loading", count_of(&sight->status, MESH_PLACE_LOADING));
    field_count(json, "failed", count_of(&sight->status, MESH_PLACE_FAILED));
    json_field_int(json, "used_ms", stamp_ms(report, model->used_ms));
    field_count(json, "references", model->references);
    json_field_bool(json, "auto_delete", model->auto_delete);
    field_count(json, "copies_min", model->bounds.copies_min);
    field_count(json, "copies_max", model->bounds.copies_max);
    field_count(json, "stated_bytes", bytes_of(model->bounds.size_units));
    if (sight->here == MESH_STATE_LOADING)
        report_fetch(report, model->id, json);
    json_close(json, '}');
}

static bool
is_at(const struct mesh_sight *sight, const char *instance)
{
    for (uint32_t i = 0; i < sight->status.place_count; i++)
        if (sight->status.places[i].kind != MESH_PLACE_FAILED &&
            strcmp(sight->status.places[i].instance, instance) == 0)
            return true;
    return false;
}

static void
see_model(void *context, const struct mesh_sight *sight)
{
    struct mesh_report *report = context;
    const char *instance = report->request->node;
    if (instance[0] == '\0' || is_at(sight, instance))
        report_model(report, sight);
}

static uint64_t
see_models(struct mesh_report *report, uint64_t from, uint32_t count)
{
    return runner_see_models(report->source->runner, from, count, report->request->prefix,
                             see_model, report);
}

/* ---- copies of one model ---- */

/* The pool that has the model here, if any. */
static const char *
by_word(const struct mesh_report *report, const struct mesh_sight *sight)
{
    if (sight->here == MESH_STATE_NONE)
        return "";
    return sight->pool == report->source->external_pool ? "runtime" : "pipelines";
}

/* `sight` NULL: of another node. */
static void
report_copy(struct mesh_report *report, const struct mesh_place *place, const char *state,
            const struct mesh_sight *sight)
{
    struct json *json = row_begin(report);
    field_text(json, "node", place->instance);
    field_text(json, "state", state);
    field_text(json, "here", sight != NULL ? here_words[sight->here] : NULL);
    field_text(json, "error", place->reason);
    field_text(json, "by", sight != NULL ? by_word(report, sight) : NULL);
    json_field_int(json, "since_ms", stamp_ms(report, place->since_ms));
    json_close(json, '}');
}

static void
see_copies_of(void *context, const struct mesh_sight *sight)
{
    struct mesh_report *report = context;
    const struct mesh_place here = {.instance = report->source->instance};
    bool reported = false;
    json_name(&report->json, "model");
    report_model(report, sight);
    json_field_open(&report->json, "rows", '[');
    for (uint32_t i = 0; i < sight->status.place_count; i++) {
        const struct mesh_place *place = &sight->status.places[i];
        bool is_self = strcmp(place->instance, here.instance) == 0;
        reported |= is_self;
        report_copy(report, place, place_words[place->kind], is_self ? sight : NULL);
    }
    if (!reported && sight->here != MESH_STATE_NONE) /* not or no longer in the record */
        report_copy(report, &here, here_words[sight->here], sight);
}

/* ---- vmodels ---- */

static void
see_vmodel(void *context, const char *id, const struct mesh_vmodel_status *status)
{
    struct mesh_report *report = context;
    bool moves = status->state != MESH_VMODEL_DEFINED;
    struct json *json = row_begin(report);
    field_text(json, "id", id);
    field_text(json, "state", vmodel_words[status->state]);
    field_text(json, "owner", status->owner);
    field_text(json, "active", status->active);
    field_text(json, "target", status->target);
    field_text(json, "target_state", moves ? model_words[status->target_status.state] : "");
    field_count(json, "active_copies", count_of(&status->active_status, MESH_PLACE_LOADED));
    field_count(json, "target_copies", count_of(&status->target_status, MESH_PLACE_LOADED));
    json_close(json, '}');
}

static uint64_t
see_vmodels(struct mesh_report *report, uint64_t from, uint32_t count)
{
    return runner_see_vmodels(report->source->runner, from, count, report->request->prefix,
                              see_vmodel, report);
}

/* ---- what this node has ---- */

static void
see_move(void *context, const struct mesh_sight *sight)
{
    struct mesh_report *report = context;
    const char *to = "";
    for (uint32_t i = 0; i < sight->status.place_count; i++) {
        const struct mesh_place *place = &sight->status.places[i];
        if (place->kind == MESH_PLACE_LOADED &&
            strcmp(place->instance, report->source->instance) != 0)
            to = place->instance;
    }
    struct json *json = row_begin(report);
    field_text(json, "id", sight->model.id);
    field_text(json, "here", here_words[sight->here]);
    field_text(json, "to", to);
    json_close(json, '}');
}

static uint64_t
see_moves(struct mesh_report *report, uint64_t from, uint32_t count)
{
    return runner_see_copies(report->source->runner, from, count, see_move, report);
}

/* ---- lists ---- */

/* Writes the rows; returns where the next page begins, 0: nowhere. */
static uint64_t
report_page(struct mesh_report *report,
            uint64_t (*see)(struct mesh_report *report, uint64_t from, uint32_t count))
{
    uint32_t limit = report->request->limit;
    uint64_t at = report->request->from;
    if (limit == 0 || limit > CONTROL_ROWS_MAX)
        limit = CONTROL_ROWS_MAX;
    json_field_open(&report->json, "rows", '[');
    for (uint32_t looked = 0; looked < LOOKED_MAX && report->rows < limit;) {
        uint32_t left = limit - report->rows;
        uint32_t count = left < LOOKED_AT_ONCE ? left : LOOKED_AT_ONCE;
        at = see(report, at, count);
        CHECK(report->rows <= limit);
        looked += count;
        if (at == 0)
            break;
    }
    return at;
}

enum status
mesh_report_write(const struct mesh_report_source *source, const struct control_request *request,
                  struct bytes *list, struct error *error)
{
    struct mesh_report report = {
        .source = source, .request = request, .json = json_begin(list, JSON_STYLE_ANY)};
    uint64_t next = 0;
    if (runner_skew(source->runner) != NULL)
        skew_look(runner_skew(source->runner), &report.skew);
    if (!store_leader(source->store, report.leader))
        report.leader[0] = '\0';
    json_open(&report.json, '{');
    switch (request->verb) {
    case CONTROL_MESH_NODES: next = report_page(&report, see_nodes); break;
    case CONTROL_MESH_MODELS: next = report_page(&report, see_models); break;
    case CONTROL_MESH_VMODELS: next = report_page(&report, see_vmodels); break;
    case CONTROL_MESH_MOVES: next = report_page(&report, see_moves); break;
    default:
        if (!runner_see_model(source->runner, request->id, see_copies_of, &report))
            return error_set(error, STATUS_NOT_FOUND, "this node knows no model \"%.200s\"",
                             request->id);
    }
    json_close(&report.json, ']');
    field_count(&report.json, "next", next);
    json_close(&report.json, '}');
    return STATUS_OK;
}
