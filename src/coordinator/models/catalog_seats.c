/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog's view of seats and lanes: which seat must hold which model, seats that come and go,
 * the results of loads there.
 *
 * Where a model is held is kept as two masks of lanes, for the threads that ask (model.h). A worker
 * that starts may take requests from its first moment on, before we know of it, and hands back what
 * it does not hold: so from before its start until it has the model, the lane is not in `held_in`,
 * and what came back waits instead of going round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/holder.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/roster.h"
#include "coordinator/workers/seat.h"

/* ---- who holds what ---- */

void
catalog_each_holder(struct catalog *catalog, void (*visit)(struct holder *holder, void *context),
                    void *context)
{
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        struct roster *roster = catalog->pipeline->rosters[i];
        for (uint32_t k = 0; roster != NULL && k < roster->seat_count; k++)
            if (roster->seats[k].holder != NULL)
                visit(roster->seats[k].holder, context);
    }
}

/* Its modelet loads models, and none is configured for it. */
static bool
stage_wants(const struct roster *roster, uint32_t stage)
{
    return stage_config(roster, stage)->model_id == NULL &&
           (roster->staffs[stage].functions & HANDSHAKE_LOADS) != 0;
}

/* How a model stands in one stage. */
struct stage_reach {
    uint32_t held;
    bool lacking;  /* somebody is ready and has it not */
    bool starting; /* somebody may be about to be */
    uint64_t bytes, mapped_bytes;
};

static struct stage_reach
reach_in_stage(const struct model *model, const struct roster *roster, uint32_t stage)
{
    struct stage_reach reach = {0};
    const struct seat *seats = stage_seats(roster, stage);
    for (uint32_t i = 0; i < stage_seat_count(roster, stage); i++) {
        uint64_t mapped_bytes;
        if (seats[i].state == SEAT_STARTING)
            reach.starting = true;
        if (seats[i].state != SEAT_READY || seats[i].holder == NULL)
            continue;
        if (holder_state(seats[i].holder, model) != HOLDING_HELD) {
            reach.lacking = true;
            continue;
        }
        reach.held++;
        reach.bytes += holder_bytes(seats[i].holder, model, &mapped_bytes);
        if (mapped_bytes > reach.mapped_bytes)
            reach.mapped_bytes = mapped_bytes;
    }
    return reach;
}

/* In a lane. `usable`: whoever is ready has it; `everywhere`: nobody else is about to be. */
struct lane_reach {
    bool usable;
    bool everywhere;
    uint64_t bytes;
};

static struct lane_reach
reach_in_lane(const struct model *model, const struct roster *roster)
{
    struct lane_reach reach = {true, true, 0};
    for (uint32_t stage = 0; stage < roster->stage_count; stage++) {
        if (!stage_wants(roster, stage))
            continue;
        struct stage_reach here = reach_in_stage(model, roster, stage);
        reach.usable = reach.usable && here.held > 0 && !here.lacking;
        reach.everywhere = reach.everywhere && reach.usable && !here.starting;
        reach.bytes += here.bytes + here.mapped_bytes;
    }
    return reach;
}

struct model_reach
catalog_reach(struct model *model)
{
    const struct pipeline *pipeline = model->catalog->pipeline;
    const struct lane *serving = atomic_load(&pipeline->serving);
    struct model_reach whole = {0};
    uint32_t held_in = 0;
    uint32_t usable_in = 0;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        if (pipeline->rosters[i] == NULL)
            continue;
        struct lane_reach reach = reach_in_lane(model, pipeline->rosters[i]);
        held_in |= (uint32_t)reach.everywhere << i;
        usable_in |= (uint32_t)reach.usable << i;
        if (serving == &pipeline->lanes[i]) {
            whole.everywhere = reach.usable;
            whole.bytes = reach.bytes;
        }
    }
    registry_lock(model->registry);
    model->held_in = held_in;
    model->usable_in = usable_in;
    registry_unlock(model->registry);
    return whole;
}

/* ---- predictions ---- */

/* Asks the first worker of each stage that would load the model. */
void
catalog_predict(struct prediction *prediction, const struct model *model)
{
    struct catalog *catalog = prediction->catalog;
    const struct lane *lane = atomic_load(&catalog->pipeline->serving);
    struct roster *roster = lane == NULL ? NULL : catalog->pipeline->rosters[lane->number];
    prediction->open = 1;
    prediction->hints.default_bytes = catalog->pipeline->generation->config->models.default_bytes;
    prediction->hints.said_factor = 1;
    for (uint32_t stage = 0; roster != NULL && stage < roster->stage_count; stage++) {
        if (!stage_wants(roster, stage) ||
            (roster->staffs[stage].functions & HANDSHAKE_PREDICTS) == 0)
            continue;
        struct seat *seats = stage_seats(roster, stage);
        uint32_t count = stage_seat_count(roster, stage);
        if (count > prediction->hints.said_factor)
            prediction->hints.said_factor = count;
        for (uint32_t i = 0; i < count; i++)
            if (seats[i].holder != NULL && seats[i].killed_for == KILL_NONE) {
                holder_predict(seats[i].holder, model, prediction);
                break;
            }
    }
    catalog_predicted(prediction, 0);
}

/* ---- loading ---- */

struct telling {
    struct model *model;
    bool alone; /* one worker at a time */
    bool one_loads;
};

static void
note_loading(struct holder *holder, void *context)
{
    struct telling *telling = context;
    enum holding_state state = holder_state(holder, telling->model);
    telling->one_loads = telling->one_loads || state == HOLDING_TO_LOAD || state == HOLDING_LOADING;
}

static void
tell_to_load(struct holder *holder, void *context)
{
    struct telling *telling = context;
    struct roster *roster = holder_seat(holder)->roster;
    bool later = roster->stopping || roster->lane == roster->pipeline->incoming ||
                 atomic_load(&roster->lane->state) == LANE_CONDEMNED;
    if (later || (telling->alone && telling->one_loads) ||
        holder_state(holder, telling->model) != HOLDING_NONE)
        return;
    telling->one_loads = true;
    /* before all that a successor is to load: somebody waits for it */
    holder_load(holder, telling->model, SHELF_AWAITED);
}

/* Once a worker has died of it, one at a time: who else has it under way is waited for first. A
 * lane that is to take over is told when it has. */
void
catalog_tell_to_load(struct model *model)
{
    struct telling telling = {.model = model, .alone = model->load_deaths > 0};
    if (telling.alone)
        catalog_each_holder(model->catalog, note_loading, &telling);
    catalog_each_holder(model->catalog, tell_to_load, &telling);
}

/* ---- what a load has come to ---- */

static void
look_whether_complete(const struct holder *holder)
{
    struct roster *roster = holder_seat(holder)->roster;
    if (roster->lane == roster->pipeline->incoming)
        roster_check_complete(roster);
}

/* The first word of the first stage, and that of the last, say what the model takes and gives. */
static void
keep_said(struct model *model, const struct seat *seat, const struct handshake_model_said *said)
{
    bool ends[2] = {seat->stage == 0, seat->stage + 1 == seat->roster->stage_count};
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++) {
        if (!ends[i] || model->said[i] != NULL)
            continue;
        model->said[i] = malloc(sizeof(*said));
        CHECK(model->said[i] != NULL);
        *model->said[i] = *said;
    }
    if (said->max_concurrency > 0 &&
        (model->max_concurrency == 0 || said->max_concurrency < model->max_concurrency))
        model->max_concurrency = said->max_concurrency;
}

void
catalog_on_loaded(struct model *model, struct holder *holder,
                  const struct handshake_model_said *said)
{
    model->load_deaths = 0;
    if (model->phase == PHASE_LOADING)
        keep_said(model, holder_seat(holder), said);
    catalog_review(model);
    look_whether_complete(holder);
}

void
catalog_on_refused(struct model *model, struct holder *holder, enum status status, const char *text)
{
    struct seat *seat = holder_seat(holder);
    struct lane *lane = seat->roster->lane;
    struct pipeline *pipeline = seat->roster->pipeline;
    struct error error = ERROR_NONE;
    error_set(&error, status_from_number((long)status), "stage \"%s\": %s",
              stage_config(seat->roster, seat->stage)->name, text);
    if (model->phase == PHASE_CLEARING || model->phase == PHASE_LEAVING ||
        atomic_load(&lane->state) == LANE_CONDEMNED) {
        catalog_review(model);
    } else if (lane == pipeline->incoming && model->phase == PHASE_REST) {
        /* what serves can load it: the generation that is to take over must, too */
        error_prefix(&error, "model \"%s\"", model->id);
        pipeline_on_start_failed(pipeline, lane, &error);
    } else if (atomic_load(&lane->state) == LANE_DRAINING) {
        model_path_hide(&model->catalog->root, &error, &error);
        model_fail_waiting(model, lane, error.status, error.text);
    } else {
        catalog_fail(model, error.status, error.text);
    }
}

void
catalog_on_unloaded(struct model *model, struct holder *holder)
{
    (void)holder;
    catalog_review(model);
}

/* ---- time-outs ---- */

struct late {
    struct catalog *catalog;
    int64_t now_ns;
    struct holder *found; /* one at a time: what follows changes what there is */
};

static void
find_late(struct holder *holder, void *context)
{
    struct late *late = context;
    const struct seat *seat = holder_seat(holder);
    struct model *model;
    bool loading;
    int64_t timeout_ns = late->catalog->pipeline->generation->config->models.load_timeout_ns;
    if (late->found != NULL || seat->killed_for != KILL_NONE || seat->roster->stopping ||
        !holder_is_late(holder, late->now_ns - timeout_ns, &model, &loading))
        return;
    /* a modelet that loads between its runs has not begun to while it runs: hang.h sees to that */
    const struct shm_worker *worker =
        region_worker(&seat->roster->lane->region, seat->stage, seat->index);
    bool between = (seat_staff(seat)->abilities & SHOAL_RUN_DURING_LOAD) == 0;
    if (!between || atomic_load_explicit(&worker->run_began_ns, memory_order_relaxed) == 0)
        late->found = holder;
}

static void
end_one(struct holder *holder, int64_t timeout_ns)
{
    struct seat *seat = holder_seat(holder);
    struct model *model = NULL;
    bool loading = false;
    char text[128];
    (void)holder_is_late(holder, INT64_MAX, &model, &loading);
    log_warn("load_hung pipeline=%s stage=%s worker=%u pid=%d model=\"%s\"",
             seat->roster->pipeline->name, stage_config(seat->roster, seat->stage)->name,
             seat->index, (int)seat->process.pid, model == NULL ? "" : model->id);
    counter_add(seat_staff(seat)->counters, STAGE_LOAD_TIMEOUTS, 1);
    seat_kill(seat, KILL_LOAD_TIMEOUT);
    snprintf(text, sizeof(text), "it was not loaded within load_timeout_ms (%lld)",
             (long long)(timeout_ns / NS_PER_MS));
    if (loading)
        catalog_on_refused(model, holder, STATUS_DEADLINE_EXCEEDED, text);
}

void
catalog_end_late(struct catalog *catalog, int64_t now_ns)
{
    int64_t timeout_ns = catalog->pipeline->generation->config->models.load_timeout_ns;
    for (;;) {
        struct late late = {.catalog = catalog, .now_ns = now_ns};
        catalog_each_holder(catalog, find_late, &late);
        if (late.found == NULL)
            return;
        end_one(late.found, timeout_ns);
    }
}

/* ---- seats ---- */

void
catalog_on_seat_start(struct catalog *catalog, struct seat *seat)
{
    if (catalog == NULL)
        return;
    uint32_t bit = UINT32_C(1) << seat->roster->lane->number;
    registry_lock(catalog->registry);
    for (uint32_t i = 0; i < catalog->registry->bucket_count; i++)
        for (struct model *model = catalog->registry->buckets[i]; model != NULL;
             model = model->next_in_bucket)
            if (model->catalog == catalog)
                model->held_in &= ~bit;
    registry_unlock(catalog->registry);
}

/* Loaded, or to be unloaded when its last request is answered. */
static bool
is_to_be_held(const struct model *model)
{
    if (model->phase == PHASE_LEAVING)
        return model->place.state == MODEL_IS_UNLOADING && model->holdings > 0;
    return model->place.state == MODEL_IS_LOADED;
}

struct candidate {
    struct model *model;
    bool awaited;
    int64_t used_ns;
};

static int
compare_candidates(const void *a, const void *b)
{
    const struct candidate *first = a;
    const struct candidate *second = b;
    if (first->awaited != second->awaited)
        return first->awaited ? -1 : 1;
    return first->used_ns > second->used_ns ? -1 : first->used_ns < second->used_ns;
}

/* All that is loaded: those first that requests wait for, then those used last. */
static void
load_all(struct catalog *catalog, struct holder *holder)
{
    uint32_t total;
    struct model **models = registry_all(catalog->registry, catalog, &total);
    struct candidate *candidates = calloc((size_t)total + 1, sizeof(*candidates));
    CHECK(candidates != NULL);
    uint32_t count = 0;
    registry_lock(catalog->registry);
    for (uint32_t i = 0; i < total; i++)
        if (is_to_be_held(models[i]))
            candidates[count++] = (struct candidate){models[i], models[i]->waiting_first != NULL,
                                                     models[i]->place.used_ns};
    registry_unlock(catalog->registry);
    qsort(candidates, count, sizeof(*candidates), compare_candidates);
    for (uint32_t i = 0; i < count; i++)
        holder_load(holder, candidates[i].model, SHELF_ORDERED);
    free(candidates);
    free(models);
}

/* The set of seats that are there, or about to be, has changed. */
static void
review_all(struct catalog *catalog)
{
    uint32_t total;
    struct model **models = registry_all(catalog->registry, catalog, &total);
    for (uint32_t i = 0; i < total; i++)
        if (models[i]->phase != PHASE_REST || models[i]->place.state == MODEL_IS_LOADED)
            catalog_review(models[i]);
    free(models);
}

void
catalog_on_seat_ready(struct catalog *catalog, struct seat *seat)
{
    if (catalog == NULL || !stage_wants(seat->roster, seat->stage))
        return;
    seat->holder = holder_open(catalog, seat);
    if (atomic_load(&seat->roster->lane->state) == LANE_CONDEMNED)
        return;
    load_all(catalog, seat->holder);
    review_all(catalog);
}

bool
catalog_on_seat_death(struct catalog *catalog, struct seat *seat, bool from_outside)
{
    if (catalog == NULL || seat->holder == NULL)
        return false;
    struct holder *holder = seat->holder;
    bool at_load = holder_last_words(holder);
    bool charged = at_load && !seat->roster->stopping &&
                   (seat->killed_for == KILL_NONE || seat->killed_for == KILL_NONSENSE);
    struct model *model = NULL;
    bool loading = false;
    if (charged)
        (void)holder_is_late(holder, INT64_MAX, &model, &loading);
    if (loading) {
        model->load_deaths += from_outside ? 1 : LOAD_DEATH_WEIGHT;
        if (model->load_deaths >= LOAD_DEATHS_MAX)
            catalog_on_refused(model, holder, STATUS_INTERNAL, "workers died while they loaded it");
    }
    seat->holder = NULL;
    holder_close(holder);
    return charged && seat->killed_for == KILL_NONE;
}

void
catalog_on_seat_left(struct catalog *catalog, struct seat *seat)
{
    if (catalog != NULL && stage_wants(seat->roster, seat->stage))
        review_all(catalog);
}

/* ---- lanes ---- */

enum status
catalog_accepts(const struct catalog *catalog, const char *name,
                const struct config_pipeline *config, struct error *error)
{
    bool wants = config->models.root != NULL;
    if (wants != (catalog != NULL))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "pipeline \"%s\": `models` can't come or go at a reload: restart the node",
                         name);
    if (wants && strcmp(config->models.root, catalog->root.configured) != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "pipeline \"%s\": the `root` of its models can't change at a reload: "
                         "restart the node",
                         name);
    return STATUS_OK;
}

void
catalog_go_on(struct catalog *catalog)
{
    if (catalog == NULL)
        return;
    const struct config_models *config = &catalog->pipeline->generation->config->models;
    registry_lock(catalog->registry);
    catalog->shelf.capacity_bytes = catalog_budget_bytes(catalog);
    catalog->shelf.loads_max = config->load_concurrency;
    registry_unlock(catalog->registry);
    review_all(catalog);
    catalog_kick(catalog);
}

enum status
catalog_lane_complete(struct catalog *catalog, const struct roster *roster, struct error *error)
{
    if (catalog == NULL)
        return STATUS_OK;
    bool any = false;
    for (uint32_t stage = 0; stage < roster->stage_count; stage++)
        any = any || stage_wants(roster, stage);
    if (!any)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "`models`, but no stage's modelet has a function `load`");
    if (roster->lane != catalog->pipeline->incoming)
        return STATUS_OK; /* it serves at once; what is not loaded yet waits */
    uint32_t total;
    bool complete = true;
    struct model **models = registry_all(catalog->registry, catalog, &total);
    for (uint32_t i = 0; i < total && complete; i++)
        if (models[i]->phase == PHASE_REST && models[i]->place.state == MODEL_IS_LOADED)
            complete = reach_in_lane(models[i], roster).usable;
    free(models);
    return complete ? STATUS_OK
                    : error_set(error, STATUS_UNAVAILABLE, "its workers still load models");
}
