/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "mesh/edge/book.h"
#include "mesh/edge/skew.h"

enum {
    LOOKED_AT_ONCE = 512, /* under one hold of the runner's lock */
    LOOKED_MAX = 16384,   /* for one answer */
    CLOCK_ROOM = 32,
};

struct mesh_report {
    const struct mesh_report_source *source;
    const struct control_request *request;
    struct bytes bytes;
    uint32_t rows;
    char leader[STORE_ID_BYTES_MAX + 1]; /* "": none */
    struct skew_view skew;
};

/* A row under construction; "" for missing texts. */
struct report_row {
    enum control_row_kind kind;
    uint64_t numbers[CONTROL_NUMBERS];
    const char *texts[CONTROL_TEXTS];
};

static void
report_row(struct mesh_report *report, const struct report_row *row)
{
    size_t whole = sizeof(struct control_row);
    for (int i = 0; i < CONTROL_TEXTS; i++)
        whole += (row->texts[i] == NULL ? 0 : strlen(row->texts[i])) + 1;
    size_t padding = (sizeof(uint64_t) - whole % sizeof(uint64_t)) % sizeof(uint64_t);
    struct control_row head = {.bytes = (uint32_t)(whole + padding), .kind = row->kind};
    memcpy(head.numbers, row->numbers, sizeof(head.numbers));
    bytes_put(&report->bytes, &head, sizeof(head));
    for (int i = 0; i < CONTROL_TEXTS; i++) {
        bytes_put_text(&report->bytes, row->texts[i] == NULL ? "" : row->texts[i]);
        bytes_put_char(&report->bytes, '\0');
    }
    bytes_put(&report->bytes, "\0\0\0\0\0\0\0", padding);
    report->rows++;
}

/* ---- words ---- */

static const char *
model_word(enum mesh_model_state state)
{
    static const char *const words[] = {
        [MESH_MODEL_NOT_FOUND] = "gone",  [MESH_MODEL_NOT_LOADED] = "not loaded",
        [MESH_MODEL_LOADING] = "loading", [MESH_MODEL_LOADED] = "loaded",
        [MESH_MODEL_FAILED] = "failed",
    };
    return words[state];
}

static const char *
place_word(enum mesh_place_kind kind)
{
    static const char *const words[] = {
        [MESH_PLACE_LOADING] = "loading",
        [MESH_PLACE_LOADED] = "loaded",
        [MESH_PLACE_FAILED] = "failed",
    };
    return words[kind];
}

static const char *
here_word(enum mesh_state state)
{
    static const char *const words[] = {
        [MESH_STATE_NONE] = "",
        [MESH_STATE_CLAIMING] = "claiming",
        [MESH_STATE_QUEUED] = "queued",
        [MESH_STATE_LOADING] = "loading",
        [MESH_STATE_LOADED] = "loaded",
        [MESH_STATE_WITHDRAWING] = "withdrawing",
        [MESH_STATE_EMPTYING] = "emptying",
        [MESH_STATE_UNLOADING] = "unloading",
    };
    return words[state];
}

static const char *
vmodel_word(enum mesh_vmodel_state state)
{
    static const char *const words[] = {
        [MESH_VMODEL_NOT_FOUND] = "gone",
        [MESH_VMODEL_DEFINED] = "defined",
        [MESH_VMODEL_TRANSITIONING] = "going over",
        [MESH_VMODEL_FAILED] = "failed",
    };
    return words[state];
}

/* ---- nodes ---- */

/* Records may contain any bytes. */
static uint64_t
bytes_of(uint64_t units)
{
    uint64_t bytes;
    return __builtin_mul_overflow(units, RECORD_UNIT_BYTES, &bytes) ? UINT64_MAX : bytes;
}

/* Converts a point of clock_now_ns to the wall clock; 0 stays 0. */
static uint64_t
wall_ms(int64_t then_ns)
{
    struct timespec now;
    if (then_ns == 0)
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)(now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS -
                      (clock_now_ns() - then_ns) / NS_PER_MS);
}

/* Converts a stamp of mesh time to this node's wall clock, so that its age can be read here; 0
 * stays 0. */
static uint64_t
stamp_ms(const struct mesh_report *report, int64_t stamp)
{
    int64_t here_ms;
    if (stamp == 0 || __builtin_add_overflow(stamp, report->skew.ahead_ms, &here_ms))
        return (uint64_t)stamp;
    return (uint64_t)here_ms;
}

/* How far the node's clock is ahead of mesh time, in seconds; "": not at all, or not known. */
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
    if (strncmp(instance->id, report->request->key, strlen(report->request->key)) != 0)
        return;
    report_row(
        report,
        &(struct report_row){
            .kind = CONTROL_ROW_NODE,
            .numbers = {[CONTROL_NODE_CAPACITY_BYTES] = bytes_of(figures->capacity_units),
                        [CONTROL_NODE_FREE_BYTES] = bytes_of(figures->free_units),
                        [CONTROL_NODE_OLDEST_MS] =
                            figures->copies == 0 ? 0 : stamp_ms(report, figures->oldest_ms),
                        [CONTROL_NODE_COPIES] = figures->copies,
                        [CONTROL_NODE_LOADING] = figures->loading,
                        [CONTROL_NODE_RATE] = figures->calls_per_minute,
                        [CONTROL_NODE_VERSION] = (uint64_t)instance->version,
                        [CONTROL_NODE_START_MS] = stamp_ms(report, instance->start_ms),
                        [CONTROL_NODE_LOADERS] = where == NULL ? 0 : where->loaders,
                        [CONTROL_NODE_UNREACHABLE_MS] =
                            is_self ? 0 : wall_ms(unreachable_ns(report, instance->id)),
                        [CONTROL_NODE_SILENT_MS] = is_self ? wall_ms(report->source->silent_ns) : 0,
                        [CONTROL_NODE_FLAGS] =
                            (is_self ? CONTROL_NODE_SELF : 0) |
                            (is_self && report->source->is_full ? CONTROL_NODE_STORE_FULL : 0) |
                            (strcmp(instance->id, report->leader) == 0 ? CONTROL_NODE_LEADS : 0) |
                            (instance->draining ? CONTROL_NODE_DRAINS : 0) |
                            (figures->full ? CONTROL_NODE_FULL : 0)},
            .texts = {[CONTROL_NODE_ID] = instance->id,
                      [CONTROL_NODE_ZONE] = where == NULL ? "" : where->zone,
                      [CONTROL_NODE_LABELS] = instance->labels,
                      [CONTROL_NODE_LOCATION] = where == NULL ? "" : where->location,
                      [CONTROL_NODE_ADDRESS] = where == NULL ? "" : where->address,
                      [CONTROL_NODE_CLOCK] = clock_text(report, instance->id, is_self, clock)},
        });
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

static void
report_model(struct mesh_report *report, const struct mesh_sight *sight)
{
    const struct mesh_model *model = &sight->model;
    report_row(
        report,
        &(struct report_row){
            .kind = CONTROL_ROW_MODEL,
            .numbers = {[CONTROL_MODEL_LOADED] = count_of(&sight->status, MESH_PLACE_LOADED),
                        [CONTROL_MODEL_LOADING] = count_of(&sight->status, MESH_PLACE_LOADING),
                        [CONTROL_MODEL_FAILED] = count_of(&sight->status, MESH_PLACE_FAILED),
                        [CONTROL_MODEL_USED_MS] = stamp_ms(report, model->used_ms),
                        [CONTROL_MODEL_REFERENCES] = model->references,
                        [CONTROL_MODEL_AUTO_DELETE] = model->auto_delete},
            .texts = {[CONTROL_MODEL_ID] = model->id,
                      [CONTROL_MODEL_STATE] = model_word(sight->status.state),
                      [CONTROL_MODEL_TYPE] = model->type,
                      [CONTROL_MODEL_PATH] = model->path,
                      [CONTROL_MODEL_HERE] = here_word(sight->here),
                      [CONTROL_MODEL_ERROR] = error_of(&sight->status)},
        });
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
    const char *instance = report->request->path;
    if (instance[0] == '\0' || is_at(sight, instance))
        report_model(report, sight);
}

static uint64_t
see_models(struct mesh_report *report, uint64_t from, uint32_t count)
{
    return runner_see_models(report->source->runner, from, count, report->request->key, see_model,
                             report);
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

static void
see_copies_of(void *context, const struct mesh_sight *sight)
{
    struct mesh_report *report = context;
    bool told = false;
    report_model(report, sight);
    for (uint32_t i = 0; i < sight->status.place_count; i++) {
        const struct mesh_place *place = &sight->status.places[i];
        bool is_self = strcmp(place->instance, report->source->instance) == 0;
        told |= is_self;
        report_row(report,
                   &(struct report_row){
                       .kind = CONTROL_ROW_COPY,
                       .numbers = {[CONTROL_COPY_SINCE_MS] = stamp_ms(report, place->since_ms)},
                       .texts = {[CONTROL_COPY_NODE] = place->instance,
                                 [CONTROL_COPY_STATE] = place_word(place->kind),
                                 [CONTROL_COPY_HERE] = is_self ? here_word(sight->here) : "",
                                 [CONTROL_COPY_ERROR] = place->reason,
                                 [CONTROL_COPY_BY] = is_self ? by_word(report, sight) : ""},
                   });
    }
    if (told || sight->here == MESH_STATE_NONE)
        return;
    /* not or no longer in the record */
    report_row(report,
               &(struct report_row){.kind = CONTROL_ROW_COPY,
                                    .texts = {[CONTROL_COPY_NODE] = report->source->instance,
                                              [CONTROL_COPY_STATE] = here_word(sight->here),
                                              [CONTROL_COPY_HERE] = here_word(sight->here),
                                              [CONTROL_COPY_BY] = by_word(report, sight)}});
}

/* ---- vmodels ---- */

static void
see_vmodel(void *context, const char *id, const struct mesh_vmodel_status *status)
{
    struct mesh_report *report = context;
    bool moves = status->state != MESH_VMODEL_DEFINED;
    report_row(report, &(struct report_row){
                           .kind = CONTROL_ROW_VMODEL,
                           .numbers = {[CONTROL_VMODEL_ACTIVE_COPIES] =
                                           count_of(&status->active_status, MESH_PLACE_LOADED),
                                       [CONTROL_VMODEL_TARGET_COPIES] =
                                           count_of(&status->target_status, MESH_PLACE_LOADED)},
                           .texts = {[CONTROL_VMODEL_ID] = id,
                                     [CONTROL_VMODEL_STATE] = vmodel_word(status->state),
                                     [CONTROL_VMODEL_OWNER] = status->owner,
                                     [CONTROL_VMODEL_ACTIVE] = status->active,
                                     [CONTROL_VMODEL_TARGET] = status->target,
                                     [CONTROL_VMODEL_TARGET_STATE] =
                                         moves ? model_word(status->target_status.state) : ""},
                       });
}

static uint64_t
see_vmodels(struct mesh_report *report, uint64_t from, uint32_t count)
{
    return runner_see_vmodels(report->source->runner, from, count, report->request->key, see_vmodel,
                              report);
}

/* ---- what this node has ---- */

static void
see_move(void *context, const struct mesh_sight *sight)
{
    struct mesh_report *report = context;
    const char *to = "";
    uint32_t elsewhere = 0;
    for (uint32_t i = 0; i < sight->status.place_count; i++) {
        const struct mesh_place *place = &sight->status.places[i];
        if (place->kind != MESH_PLACE_LOADED ||
            strcmp(place->instance, report->source->instance) == 0)
            continue;
        to = place->instance;
        elsewhere++;
    }
    report_row(report, &(struct report_row){.kind = CONTROL_ROW_MOVE,
                                            .numbers = {[CONTROL_MOVE_ELSEWHERE] = elsewhere},
                                            .texts = {[CONTROL_MOVE_ID] = sight->model.id,
                                                      [CONTROL_MOVE_HERE] = here_word(sight->here),
                                                      [CONTROL_MOVE_TO] = to}});
}

static uint64_t
see_moves(struct mesh_report *report, uint64_t from, uint32_t count)
{
    return runner_see_copies(report->source->runner, from, count, see_move, report);
}

/* ---- answers ---- */

static uint64_t
report_page(struct mesh_report *report,
            uint64_t (*see)(struct mesh_report *report, uint64_t from, uint32_t count))
{
    uint32_t limit = report->request->limit;
    uint64_t at = report->request->from;
    if (limit == 0 || limit > CONTROL_ROWS_MAX)
        limit = CONTROL_ROWS_MAX;
    if (at > UINT32_MAX)
        return 0;
    for (uint32_t looked = 0; looked < LOOKED_MAX && report->rows < limit;) {
        uint32_t left = limit - report->rows;
        uint32_t count = left < LOOKED_AT_ONCE ? left : LOOKED_AT_ONCE;
        at = see(report, at, count);
        looked += count;
        if (at == 0)
            break;
    }
    return at;
}

static enum status
report_on(struct mesh_report *report, uint64_t *next, struct error *error)
{
    const struct mesh_report_source *source = report->source;
    const char *id = report->request->key;
    *next = 0;
    switch (report->request->verb) {
    case CONTROL_MESH_NODES: *next = report_page(report, see_nodes); break;
    case CONTROL_MESH_MODELS: *next = report_page(report, see_models); break;
    case CONTROL_MESH_VMODELS: *next = report_page(report, see_vmodels); break;
    case CONTROL_MESH_MOVES: *next = report_page(report, see_moves); break;
    default:
        if (!runner_see_model(source->runner, id, see_copies_of, report))
            return error_set(error, STATUS_NOT_FOUND, "this node knows no model \"%.200s\"", id);
    }
    return STATUS_OK;
}

void
mesh_report_answer(const struct mesh_report_source *source, const struct control_request *request,
                   struct control_call *call)
{
    struct mesh_report report = {.source = source, .request = request};
    struct error error = ERROR_NONE;
    char text[64];
    uint64_t next;
    if (runner_skew(source->runner) != NULL)
        skew_look(runner_skew(source->runner), &report.skew);
    if (!store_leader(source->store, report.leader))
        report.leader[0] = '\0';
    if (report_on(&report, &next, &error) == STATUS_OK) {
        snprintf(text, sizeof(text), "%u rows", report.rows);
        report_row(&report, &(struct report_row){.kind = CONTROL_ROW_PAGE,
                                                 .numbers = {[CONTROL_PAGE_NEXT] = next}});
        CHECK(!report.bytes.failed);
        control_answer_list(call, report.bytes.data, report.bytes.used, text);
    } else {
        control_answer(call, &error, NULL);
    }
    bytes_fini(&report.bytes);
}
