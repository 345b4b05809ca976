/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog's view of places and lanes: which place must hold which model, places that come and
 * go, the results of loads there.
 *
 * Two masks of lanes say where a model is held, for the threads that ask (model.h). A starting
 * worker may take requests from its first moment, before the coordinator knows of it, and returns
 * those whose model it does not hold. So from before its start until it has the model, its lane is
 * not in `held_in`, and returned requests wait instead of circulating.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/worker_models.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/pool_member.h"

/* ---- the workers' models ---- */

void
catalog_each_worker_models(struct catalog *catalog,
                           void (*visit)(struct worker_models *worker_models, void *context),
                           void *context)
{
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        struct worker_pools *pools = catalog->pipeline->pools[i];
        for (uint32_t k = 0; pools != NULL && k < pools->pool_member_count; k++)
            if (pools->members[k].worker_models != NULL)
                visit(pools->members[k].worker_models, context);
    }
}

/* Returns whether its modelet loads models and none is configured for it. */
static bool
stage_wants(const struct worker_pools *pools, uint32_t stage)
{
    return stage_config(pools, stage)->model_id == NULL &&
           (pools->pools[stage].functions & HANDSHAKE_LOADS) != 0;
}

/* The state of a model in one stage. */
struct stage_reach {
    uint32_t held;
    bool lacking;  /* some ready worker does not have it */
    bool starting; /* some worker may be about to be ready */
    uint64_t bytes, mapped_bytes;
};

static struct stage_reach
reach_in_stage(const struct model *model, const struct worker_pools *pools, uint32_t stage)
{
    struct stage_reach reach = {0};
    const struct pool_member *members = stage_members(pools, stage);
    for (uint32_t i = 0; i < stage_member_count(pools, stage); i++) {
        uint64_t mapped_bytes;
        if (members[i].state == MEMBER_STARTING)
            reach.starting = true;
        if (members[i].state != MEMBER_READY || members[i].worker_models == NULL)
            continue;
        if (worker_models_state(members[i].worker_models, model) != HOLDING_HELD) {
            reach.lacking = true;
            continue;
        }
        reach.held++;
        reach.bytes += worker_models_bytes(members[i].worker_models, model, &mapped_bytes);
        if (mapped_bytes > reach.mapped_bytes)
            reach.mapped_bytes = mapped_bytes;
    }
    return reach;
}

/* The reach of a model in a lane. `usable`: every ready worker has it; `everywhere`: and no other
 * is about to be ready. */
struct lane_reach {
    bool usable;
    bool everywhere;
    uint64_t bytes;
};

static struct lane_reach
reach_in_lane(const struct model *model, const struct worker_pools *pools)
{
    struct lane_reach reach = {true, true, 0};
    for (uint32_t stage = 0; stage < pools->stage_count; stage++) {
        if (!stage_wants(pools, stage))
            continue;
        struct stage_reach here = reach_in_stage(model, pools, stage);
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
        if (pipeline->pools[i] == NULL)
            continue;
        struct lane_reach reach = reach_in_lane(model, pipeline->pools[i]);
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
    struct worker_pools *pools = lane == NULL ? NULL : catalog->pipeline->pools[lane->number];
    prediction->open = 1;
    prediction->hints.default_bytes = catalog->pipeline->generation->config->models.default_bytes;
    prediction->hints.said_factor = 1;
    for (uint32_t stage = 0; pools != NULL && stage < pools->stage_count; stage++) {
        if (!stage_wants(pools, stage) || (pools->pools[stage].functions & HANDSHAKE_PREDICTS) == 0)
            continue;
        struct pool_member *members = stage_members(pools, stage);
        uint32_t count = stage_member_count(pools, stage);
        if (count > prediction->hints.said_factor)
            prediction->hints.said_factor = count;
        for (uint32_t i = 0; i < count; i++)
            if (members[i].worker_models != NULL && members[i].killed_for == KILL_NONE) {
                worker_models_predict(members[i].worker_models, model, prediction);
                break;
            }
    }
    catalog_predicted(prediction, 0);
}

/* ---- loading ---- */

struct load_pass {
    struct model *model;
    bool alone; /* one worker at a time */
    bool one_loads;
};

static void
note_loading(struct worker_models *worker_models, void *context)
{
    struct load_pass *pass = context;
    enum holding_state state = worker_models_state(worker_models, pass->model);
    pass->one_loads = pass->one_loads || state == HOLDING_TO_LOAD || state == HOLDING_LOADING;
}

static void
notify_to_load(struct worker_models *worker_models, void *context)
{
    struct load_pass *pass = context;
    struct worker_pools *pools = worker_models_member(worker_models)->pools;
    bool later = pools->stopping || pools->lane == pools->pipeline->incoming ||
                 atomic_load(&pools->lane->state) == LANE_CONDEMNED;
    if (later || (pass->alone && pass->one_loads) ||
        worker_models_state(worker_models, pass->model) != HOLDING_NONE)
        return;
    pass->one_loads = true;
    /* before all that a restarted worker must load: a request waits for it */
    worker_models_load(worker_models, pass->model, MODEL_CACHE_AWAITED);
}

/* Once a worker has died of it, one at a time: other workers that are loading it are waited for
 * first. A lane that is to take over is notified when they are done. */
void
catalog_notify_to_load(struct model *model)
{
    struct load_pass pass = {.model = model, .alone = model->load_deaths > 0};
    if (pass.alone)
        catalog_each_worker_models(model->catalog, note_loading, &pass);
    catalog_each_worker_models(model->catalog, notify_to_load, &pass);
}

/* ---- what a load has come to ---- */

static void
look_whether_complete(const struct worker_models *worker_models)
{
    struct worker_pools *pools = worker_models_member(worker_models)->pools;
    if (pools->lane == pools->pipeline->incoming)
        worker_pools_check_complete(pools);
}

/* The first answers of the first and of the last stage give the model's inputs and outputs. */
static void
keep_said(struct model *model, const struct pool_member *member,
          const struct handshake_model_said *said)
{
    bool ends[2] = {member->stage == 0, member->stage + 1 == member->pools->stage_count};
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
catalog_on_loaded(struct model *model, struct worker_models *worker_models,
                  const struct handshake_model_said *said)
{
    model->load_deaths = 0;
    if (model->phase == PHASE_LOADING)
        keep_said(model, worker_models_member(worker_models), said);
    catalog_review(model);
    look_whether_complete(worker_models);
}

void
catalog_on_refused(struct model *model, struct worker_models *worker_models, enum status status,
                   const char *text)
{
    struct pool_member *member = worker_models_member(worker_models);
    struct lane *lane = member->pools->lane;
    struct pipeline *pipeline = member->pools->pipeline;
    struct error error = ERROR_NONE;
    error_set(&error, status_from_number((long)status), "stage \"%s\": %s",
              stage_config(member->pools, member->stage)->name, text);
    bool is_condemned = atomic_load(&lane->state) == LANE_CONDEMNED;
    if (model->phase == PHASE_CLEARING || model->phase == PHASE_LEAVING || is_condemned) {
        if (model->phase == PHASE_LEAVING && !is_condemned)
            catalog_fail_returned(model, error.status, error.text);
        catalog_review(model);
    } else if (lane == pipeline->incoming && model->phase == PHASE_REST) {
        /* the serving lane can load it, so the generation that is to take over must, too */
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
catalog_on_unloaded(struct model *model, struct worker_models *worker_models)
{
    (void)worker_models;
    catalog_review(model);
}

/* ---- time-outs ---- */

struct catalog_late {
    struct catalog *catalog;
    int64_t now_ns;
    struct worker_models *found; /* one at a time: the consequences change the list */
};

static void
find_late(struct worker_models *worker_models, void *context)
{
    struct catalog_late *late = context;
    const struct pool_member *member = worker_models_member(worker_models);
    struct model *model;
    bool loading;
    int64_t timeout_ns = late->catalog->pipeline->generation->config->models.load_timeout_ns;
    if (late->found != NULL || member->killed_for != KILL_NONE || member->pools->stopping ||
        !worker_models_is_late(worker_models, late->now_ns - timeout_ns, &model, &loading))
        return;
    /* a modelet that loads between its runs has not begun while it runs: hang.h limits that */
    const struct shm_worker *worker =
        region_worker(&member->pools->lane->region, member->stage, member->index);
    bool between = (member_pool(member)->abilities & SHOAL_RUN_DURING_LOAD) == 0;
    if (!between || atomic_load_explicit(&worker->run_began_ns, memory_order_relaxed) == 0)
        late->found = worker_models;
}

static void
end_one(struct worker_models *worker_models, int64_t timeout_ns)
{
    struct pool_member *member = worker_models_member(worker_models);
    struct model *model = NULL;
    bool loading = false;
    char text[128];
    (void)worker_models_is_late(worker_models, INT64_MAX, &model, &loading);
    log_warn("load_hung pipeline=%s stage=%s worker=%u pid=%d model=\"%s\"",
             member->pools->pipeline->name, stage_config(member->pools, member->stage)->name,
             member->index, (int)member->process.pid, model == NULL ? "" : model->id);
    counter_add(member_pool(member)->counters, STAGE_LOAD_TIMEOUTS, 1);
    pool_member_kill(member, KILL_LOAD_TIMEOUT);
    snprintf(text, sizeof(text), "it was not loaded within load_timeout_ms (%lld)",
             (long long)(timeout_ns / NS_PER_MS));
    if (loading)
        catalog_on_refused(model, worker_models, STATUS_DEADLINE_EXCEEDED, text);
}

void
catalog_end_late(struct catalog *catalog, int64_t now_ns)
{
    int64_t timeout_ns = catalog->pipeline->generation->config->models.load_timeout_ns;
    for (;;) {
        struct catalog_late late = {.catalog = catalog, .now_ns = now_ns};
        catalog_each_worker_models(catalog, find_late, &late);
        if (late.found == NULL)
            return;
        end_one(late.found, timeout_ns);
    }
}

/* ---- places ---- */

static void
on_member_start(struct catalog *catalog, struct pool_member *member)
{
    if (catalog == NULL)
        return;
    uint32_t bit = UINT32_C(1) << member->pools->lane->number;
    registry_lock(catalog->registry);
    for (struct model *model = registry_walk(catalog->registry, NULL); model != NULL;
         model = registry_walk(catalog->registry, model))
        if (model->catalog == catalog)
            model->held_in &= ~bit;
    registry_unlock(catalog->registry);
}

/* Returns whether the model is loaded, or to be unloaded when its last request is answered. Call
 * with the lock. */
static bool
is_to_be_held(const struct model *model)
{
    if (model->phase == PHASE_LEAVING)
        return model->place.state == MODEL_IS_UNLOADING && model->sent > 0;
    return model->place.state == MODEL_IS_LOADED;
}

struct catalog_candidate {
    struct model *model;
    bool awaited;
    int64_t used_ns;
};

static int
compare_candidates(const void *a, const void *b)
{
    const struct catalog_candidate *first = a;
    const struct catalog_candidate *second = b;
    if (first->awaited != second->awaited)
        return first->awaited ? -1 : 1;
    return first->used_ns > second->used_ns ? -1 : first->used_ns < second->used_ns;
}

/* All loaded models: first those that requests wait for, then by last use. */
static void
load_all(struct catalog *catalog, struct worker_models *worker_models)
{
    uint32_t total;
    struct model **models = registry_all(catalog->registry, catalog, &total);
    struct catalog_candidate *candidates = calloc((size_t)total + 1, sizeof(*candidates));
    CHECK(candidates != NULL);
    uint32_t count = 0;
    registry_lock(catalog->registry);
    for (uint32_t i = 0; i < total; i++)
        if (is_to_be_held(models[i]))
            candidates[count++] = (struct catalog_candidate){
                models[i], models[i]->waiting_first != NULL, models[i]->place.used_ns};
    registry_unlock(catalog->registry);
    qsort(candidates, count, sizeof(*candidates), compare_candidates);
    for (uint32_t i = 0; i < count; i++)
        worker_models_load(worker_models, candidates[i].model, MODEL_CACHE_ORDERED);
    free(candidates);
    free(models);
}

/* The set of present or expected places has changed. */
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

static void
on_member_ready(struct catalog *catalog, struct pool_member *member)
{
    if (catalog == NULL || !stage_wants(member->pools, member->stage))
        return;
    member->worker_models = worker_models_open(catalog, member);
    if (atomic_load(&member->pools->lane->state) == LANE_CONDEMNED)
        return;
    load_all(catalog, member->worker_models);
    review_all(catalog);
}

static bool
on_member_death(struct catalog *catalog, struct pool_member *member)
{
    if (catalog == NULL || member->worker_models == NULL)
        return false;
    struct worker_models *worker_models = member->worker_models;
    bool at_load = worker_models_last_words(worker_models);
    bool charged = at_load && !member->pools->stopping &&
                   (member->killed_for == KILL_NONE || member->killed_for == KILL_NONSENSE);
    struct model *model = NULL;
    bool loading = false;
    if (charged)
        (void)worker_models_is_late(worker_models, INT64_MAX, &model, &loading);
    if (loading) {
        model->load_deaths += member->ended_outside ? 1 : LOAD_DEATH_WEIGHT;
        if (model->load_deaths >= LOAD_DEATHS_MAX)
            catalog_on_refused(model, worker_models, STATUS_INTERNAL,
                               "workers died while they loaded it");
    }
    member->worker_models = NULL;
    worker_models_close(worker_models);
    return charged && member->killed_for == KILL_NONE;
}

static void
on_member_left(struct catalog *catalog, struct pool_member *member)
{
    if (catalog != NULL && stage_wants(member->pools, member->stage))
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
    catalog->cache.capacity_bytes = catalog_budget_bytes(catalog);
    catalog->cache.loads_max = config->load_concurrency;
    registry_unlock(catalog->registry);
    review_all(catalog);
    catalog_kick(catalog);
}

static enum status
lane_complete(struct catalog *catalog, const struct worker_pools *pools, struct error *error)
{
    if (catalog == NULL)
        return STATUS_OK;
    bool any = false;
    for (uint32_t stage = 0; stage < pools->stage_count; stage++)
        any = any || stage_wants(pools, stage);
    if (!any)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "`models`, but no stage's modelet has a function `load`");
    if (pools->lane != catalog->pipeline->incoming)
        return STATUS_OK; /* it serves at once; models not loaded yet have their requests wait */
    uint32_t total;
    bool complete = true;
    struct model **models = registry_all(catalog->registry, catalog, &total);
    for (uint32_t i = 0; i < total && complete; i++)
        if (models[i]->phase == PHASE_REST && models[i]->place.state == MODEL_IS_LOADED)
            complete = reach_in_lane(models[i], pools).usable;
    free(models);
    return complete ? STATUS_OK
                    : error_set(error, STATUS_UNAVAILABLE, "its workers still load models");
}

const struct member_models catalog_member_models = {
    .root = catalog_root,
    .cache = catalog_cache,
    .complete = lane_complete,
    .on_start = on_member_start,
    .on_ready = on_member_ready,
    .on_death = on_member_death,
    .on_left = on_member_left,
    .is_busy = catalog_worker_is_busy,
};
