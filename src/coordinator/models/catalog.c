/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's way through its states (DESIGN.md). Each step ends where the model waits for something:
 * a worker's answer, room, the last request. The next step begins there or in the loop's next turn
 * (catalog_kick), never within another model's step.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"

enum {
    TICK_MS = 20,
    /* A failed model is not tried for a request again before this time, which doubles each time. */
    RETRY_FIRST_MS = 10 * 1000,
    RETRY_MAX_MS = 600 * 1000,
};

void
catalog_count(struct catalog *catalog, enum counter counter)
{
    counter_add_shared(catalog->pipeline->counters, counter, 1);
}

/* ---- the loop's turns ---- */

/* A request had entered before the model was forgotten. */
static void
end_forgotten(struct model *model)
{
    struct model_registry *registry = model->registry;
    bool more = true;
    while (more) {
        model_fail_waiting(model, NULL, STATUS_NOT_FOUND, "the model was unloaded");
        registry_lock(registry);
        more = model->waiting_first != NULL;
        model->attention = more; /* as long as it is set, nobody frees the model */
        if (!more)
            model_free_unused(model);
        registry_unlock(registry);
    }
}

static void
work(void *context)
{
    struct catalog *catalog = context;
    struct model_registry *registry = catalog->registry;
    atomic_store(&catalog->kicked, false); /* first: later changes kick again */
    for (;;) {
        registry_lock(registry);
        struct model *model = catalog->attention;
        if (model != NULL) {
            catalog->attention = model->next_attention;
            model->attention = model->forgotten;
        }
        registry_unlock(registry);
        if (model == NULL)
            break;
        if (model->forgotten) /* written by this thread only */
            end_forgotten(model);
        else
            catalog_review(model);
    }
    catalog_schedule(catalog);
    catalog_arm(catalog);
}

void
catalog_kick(struct catalog *catalog)
{
    if (!atomic_exchange(&catalog->kicked, true))
        loop_post(catalog->pipeline->options.loop, work, catalog);
}

void
catalog_attend(struct model *model)
{
    struct catalog *catalog = model->catalog;
    if (!model->attention) {
        model->attention = true;
        model->next_attention = catalog->attention;
        catalog->attention = model;
    }
    catalog_kick(catalog);
}

bool
catalog_frozen(const struct catalog *catalog)
{
    const struct pipeline *pipeline = catalog->pipeline;
    return pipeline->incoming != NULL || atomic_load(&pipeline->serving) == NULL;
}

static void
note_busy(struct worker_models *worker_models, void *context)
{
    bool *busy = context;
    worker_models_go_on(worker_models);
    *busy = *busy || worker_models_is_busy(worker_models);
}

static int64_t
load_timeout_ns(const struct catalog *catalog)
{
    return catalog->pipeline->generation->config->models.load_timeout_ns;
}

/* Fails loads that have waited too long for room or for a worker. */
static void
end_stuck(struct catalog *catalog, int64_t now_ns)
{
    int64_t timeout_ns = load_timeout_ns(catalog);
    for (uint32_t i = 0; i < catalog->begun_count; i++) {
        struct model *model = catalog->begun[i];
        if (now_ns - model->phase_since_ns < timeout_ns || catalog_frozen(catalog))
            continue;
        if (model->phase == PHASE_FETCHING && catalog_fetch_hangs(model, now_ns))
            catalog_fail(model, STATUS_DEADLINE_EXCEEDED,
                         "its storage does not answer: look at the disk of `models_cache`, and at "
                         "the mounts of `pvc_mounts` and `files_root`");
        else if (model->phase == PHASE_ROOM)
            catalog_fail(model, STATUS_RESOURCE_EXHAUSTED,
                         "no room: the loaded models were in use for all of load_timeout_ms");
        else if (model->phase == PHASE_LOADING && model->holdings == 0)
            catalog_fail(model, STATUS_UNAVAILABLE, "there was no worker to load it");
        else
            continue;
        return; /* the next tick looks at the rest: the list has changed */
    }
}

static void
on_tick(void *context)
{
    struct catalog *catalog = context;
    int64_t now_ns = clock_now_ns();
    bool busy = false;
    catalog->ticking = false;
    catalog_end_late(catalog, now_ns);
    end_stuck(catalog, now_ns);
    model_sweep(catalog, now_ns);
    catalog_each_worker_models(catalog, note_busy, &busy);
    if (busy || catalog->begun_count > 0 || atomic_load(&catalog->waiting) > 0)
        catalog_arm(catalog);
}

void
catalog_arm(struct catalog *catalog)
{
    if (catalog->ticking)
        return;
    catalog->ticking = true;
    int64_t tick_ns = load_timeout_ns(catalog) / 4;
    if (tick_ns > TICK_MS * (int64_t)NS_PER_MS)
        tick_ns = TICK_MS * (int64_t)NS_PER_MS;
    loop_timer_set(catalog->timer, tick_ns);
}

/* ---- the end of a way ---- */

void
model_enter_phase(struct model *model, enum model_phase phase)
{
    static const uint32_t from[] = {
        [PHASE_REST] = 1u << PHASE_LOADING | 1u << PHASE_CLEARING,
        [PHASE_FETCHING] = 1u << PHASE_REST,
        [PHASE_FETCHED] = 1u << PHASE_FETCHING,
        [PHASE_PREDICTING] = 1u << PHASE_REST | 1u << PHASE_FETCHED,
        [PHASE_ROOM] = 1u << PHASE_PREDICTING,
        [PHASE_LOADING] = 1u << PHASE_ROOM,
        [PHASE_LEAVING] = 1u << PHASE_REST | 1u << PHASE_FETCHING | 1u << PHASE_FETCHED |
                          1u << PHASE_PREDICTING | 1u << PHASE_ROOM | 1u << PHASE_LOADING,
        [PHASE_CLEARING] = 1u << PHASE_LEAVING,
    };
    loop_check_thread(model->registry->loop);
    CHECK((from[phase] & 1u << model->phase) != 0);
    model->phase = phase;
    model->phase_since_ns = clock_now_ns();
}

static void
forget(struct model *model)
{
    replacement_end(model);
    model_fail_waiting(model, NULL, STATUS_NOT_FOUND, "the model was unloaded");
    if (!model->hidden)
        log_info_limited("model_forgotten pipeline=%s model=\"%s\"", model->catalog->pipeline->name,
                         model->id);
    struct model_registry *registry = model->registry;
    registry_lock(registry);
    if (model->place.queued)
        model_cache_drop(&model->catalog->cache, &model->place);
    if (model->waiting_first != NULL) /* since */
        catalog_attend(model);
    model_forget(model);
    registry_unlock(registry);
}

/* Callers wait for it. */
static bool
is_awaited(struct model *model)
{
    registry_lock(model->registry);
    bool awaited = model->waiting_first != NULL || model->asked;
    registry_unlock(model->registry);
    return awaited;
}

/* No worker has anything of the model, and nothing is under way: does what was asked for meanwhile.
 */
static void
reconcile(struct model *model)
{
    struct model_registry *registry = model->registry;
    CHECK(model->holdings == 0 && model->phase == PHASE_REST);
    waiters_end(registry, &model->unloaders, NULL, NULL);
    if (model->next.path != NULL) {
        model->retry_ns = model->retry_wait_ns = 0;
        registry_lock(registry);
        model_source_fini(&model->source);
        model->source = model->next;
        model->next = (struct model_source){0};
        model_set_info(model, NULL); /* requests of another shape may fit it */
        if (model->place.state == MODEL_IS_FAILED)
            model->place.state = MODEL_IS_KNOWN;
        registry_unlock(registry);
        replacement_fell_back(model);
    }
    if (!model->place.listed && !model->place.ordered) {
        forget(model);
        return;
    }
    if (model->place.state == MODEL_IS_FAILED && !model->place.ordered)
        model_fail_waiting(model, NULL, model->error.status, model->error.text);
    bool awaited = is_awaited(model);
    if (awaited || model->place.ordered)
        catalog_want(model, awaited ? MODEL_CACHE_AWAITED : MODEL_CACHE_ORDERED);
    else
        catalog_preload(model);
}

void
model_take_from_begun(struct model *model)
{
    struct catalog *catalog = model->catalog;
    for (uint32_t i = 0; i < catalog->begun_count; i++)
        if (catalog->begun[i] == model) {
            catalog->begun_count--;
            memmove(&catalog->begun[i], &catalog->begun[i + 1],
                    (catalog->begun_count - i) * sizeof(struct model *));
            return;
        }
}

void
model_free_said(struct model *model)
{
    for (size_t i = 0; i < ARRAY_COUNT(model->said); i++) {
        free(model->said[i]);
        model->said[i] = NULL;
    }
}

/* No worker has anything left of it. */
static void
cleared(struct model *model)
{
    struct catalog *catalog = model->catalog;
    bool failed = model->place.state == MODEL_IS_FAILED;
    registry_lock(model->registry);
    model_cache_gone(&catalog->cache, &model->place);
    model->held_in = model->usable_in = 0;
    registry_unlock(model->registry);
    model_enter_phase(model, PHASE_REST);
    model_drop_fetched(model);
    log_info_limited("model_unloaded pipeline=%s model=\"%s\"", catalog->pipeline->name, model->id);
    if (failed)
        waiters_end(model->registry, &model->failed, &model->error, NULL);
    catalog_kick(catalog); /* there is room now */
    reconcile(model);
}

static void
unload_there(struct worker_models *worker_models, void *context)
{
    worker_models_unload(worker_models, context);
}

static void
clear(struct model *model)
{
    model_enter_phase(model, PHASE_CLEARING);
    catalog_each_worker_models(model->catalog, unload_there, model);
    if (model->holdings == 0)
        cleared(model);
}

/* No request enters any more; workers unload it when the last request sent with it is answered. */
void
model_begin_leaving(struct model *model)
{
    replacement_end(model);
    registry_lock(model->registry);
    model->rows_max = 0; /* what comes now is judged when it is loaded again */
    registry_unlock(model->registry);
    model_free_said(model);
    model_take_from_begun(model);
    if (model->prediction != NULL)
        model->prediction->model = NULL;
    model->prediction = NULL;
    model_end_fetch(model);
    model_enter_phase(model, PHASE_LEAVING);
    catalog_review(model);
}

void
catalog_unload(struct model *model)
{
    struct catalog *catalog = model->catalog;
    registry_lock(model->registry);
    bool queued = model->place.queued;
    if (queued)
        model_cache_drop(&catalog->cache, &model->place);
    bool leaves = model->place.begun || model->place.state == MODEL_IS_LOADED;
    leaves = leaves && model->phase != PHASE_LEAVING && model->phase != PHASE_CLEARING;
    if (leaves)
        model_cache_unload(&catalog->cache, &model->place);
    registry_unlock(model->registry);
    if (leaves)
        model_begin_leaving(model);
    else if (model->phase == PHASE_REST)
        reconcile(model);
}

/* Call with the lock. */
static void
set_error(struct model *model, enum status status, const char *text)
{
    model->error = ERROR_NONE;
    error_set(&model->error, model_status_for_callers(status), "%s", text);
    model_path_hide(&model->catalog->root, &model->error, &model->error);
}

void
catalog_fail_returned(struct model *model, enum status status, const char *text)
{
    CHECK(model->phase == PHASE_LEAVING);
    registry_lock(model->registry);
    bool fails = model->sent > 0 && model->place.state == MODEL_IS_UNLOADING;
    if (fails) {
        model->place.state = MODEL_IS_FAILED; /* those that come back from here on fail, too */
        set_error(model, status, text);
    }
    registry_unlock(model->registry);
    model->load_deaths = 0;
    if (fails)
        model_fail_returned(model, status, model->error.text);
}

void
catalog_fail(struct model *model, enum status status, const char *text)
{
    struct catalog *catalog = model->catalog;
    if (model->phase == PHASE_LEAVING || model->phase == PHASE_CLEARING)
        return;
    model->retry_wait_ns =
        model->retry_wait_ns == 0 ? RETRY_FIRST_MS * (int64_t)NS_PER_MS : 2 * model->retry_wait_ns;
    if (model->retry_wait_ns > RETRY_MAX_MS * (int64_t)NS_PER_MS)
        model->retry_wait_ns = RETRY_MAX_MS * (int64_t)NS_PER_MS;
    registry_lock(model->registry);
    model_cache_fail(&catalog->cache, &model->place);
    set_error(model, status, text);
    model->retry_ns = 0; /* requests wait until it is known whether another release is tried */
    model->place.ordered = false; /* after a failure only a listed model stays known */
    model->asked = false;
    registry_unlock(model->registry);
    model->load_deaths = 0;
    catalog_count(catalog, PIPELINE_MODEL_LOADS_FAILED);
    log_warn_limited("model_failed pipeline=%s model=\"%s\" error=\"%s\"", catalog->pipeline->name,
                     model->id, text);
    struct model_waiter **last = &model->failed;
    while (*last != NULL)
        last = &(*last)->next;
    *last = model->loaders;
    model->loaders = NULL;
    if (model->predecessor != NULL)
        replacement_fail(model);
    if (replacement_falls_back(model)) {
        model_fail_returned(model, status, model->error.text);
    } else {
        registry_lock(model->registry);
        model->retry_ns = clock_now_ns() + model->retry_wait_ns;
        registry_unlock(model->registry);
        model_fail_waiting(model, NULL, status, model->error.text);
    }
    model_begin_leaving(model);
}

/* ---- changes ---- */

static void
hurry_there(struct worker_models *worker_models, void *context)
{
    worker_models_hurry(worker_models, context);
}

void
catalog_review(struct model *model)
{
    if (model->phase == PHASE_CLEARING) {
        if (model->holdings == 0)
            cleared(model);
        return;
    }
    if (model->phase == PHASE_LEAVING) {
        /* returned requests run where it is still held, or fail with the model */
        (void)catalog_reach(model);
        model_release(model);
        registry_lock(model->registry);
        bool over = model->sent == 0;
        registry_unlock(model->registry);
        if (over && !catalog_frozen(model->catalog))
            clear(model);
        return;
    }
    if (replacement_retire(model))
        return;
    if (model->phase == PHASE_LOADING)
        catalog_notify_to_load(model);
    struct model_reach reach = catalog_reach(model);
    if (model->phase == PHASE_LOADING && reach.everywhere) {
        model_on_loaded(model, reach.bytes);
    } else if (model->phase == PHASE_REST && model->place.state == MODEL_IS_LOADED) {
        if (reach.everywhere)
            model_measure(model, reach.bytes);
        if (is_awaited(model))
            catalog_each_worker_models(model->catalog, hurry_there, model);
        model_release(model);
    } else if (model->phase == PHASE_REST && is_awaited(model)) {
        if (model->place.state == MODEL_IS_FAILED && clock_now_ns() < model->retry_ns)
            model_fail_waiting(model, NULL, model->error.status, model->error.text);
        else
            catalog_want(model, MODEL_CACHE_AWAITED);
    }
}

void
catalog_want(struct model *model, enum model_cache_demand demand)
{
    registry_lock(model->registry);
    model_cache_queue(&model->catalog->cache, &model->place, demand);
    registry_unlock(model->registry);
    catalog_kick(model->catalog);
}

void
catalog_preload(struct model *model)
{
    enum model_state state = model->place.state;
    bool rests = model->phase == PHASE_REST && !model->place.queued && !model->falls_back &&
                 (state == MODEL_IS_KNOWN || state == MODEL_IS_FAILED);
    if (!model->preload || !rests)
        return;
    model->preload = false;
    catalog_want(model, MODEL_CACHE_PRELOAD);
}

/* ---- life ---- */

uint64_t
catalog_budget_bytes(const struct catalog *catalog)
{
    return catalog->registry->in_mesh ? UINT64_MAX / 2
                                      : catalog->pipeline->generation->config->models.memory_bytes;
}

static enum status
create(void *context, struct pipeline *pipeline, struct catalog **created, struct error *error)
{
    struct model_registry *registry = context;
    const struct config_models *config = &pipeline->options.config->models;
    registry->loop = pipeline->options.loop;
    registry->pipelines[registry->pipeline_count++] = pipeline->name;
    registry->in_mesh = pipeline->options.source->config.mesh.on;
    *created = NULL;
    if (config->root == NULL)
        return STATUS_OK;
    struct catalog *catalog = calloc(1, sizeof(*catalog));
    CHECK(catalog != NULL);
    if (model_root_open(&catalog->root, config->root, error) != STATUS_OK) {
        free(catalog);
        return error_prefix(error, "pipeline \"%s\"", pipeline->name);
    }
    catalog->registry = registry;
    catalog->pipeline = pipeline;
    model_cache_init(&catalog->cache, catalog_budget_bytes(catalog), config->load_concurrency,
                     MODELS_LOADED_MAX);
    catalog->timer = loop_timer_create(loop_base(pipeline->options.loop), on_tick, catalog);
    CHECK(registry->catalog_count < CONFIG_PIPELINES_MAX);
    registry->catalogs[registry->catalog_count++] = catalog;
    *created = catalog;
    return STATUS_OK;
}

static void
stop(struct catalog *catalog)
{
    if (catalog == NULL || catalog->stopping)
        return;
    catalog->stopping = true;
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_UNAVAILABLE, "the node is stopping");
    uint32_t total;
    struct model **models = registry_all(catalog->registry, catalog, &total);
    for (uint32_t i = 0; i < total; i++) {
        waiters_end(catalog->registry, &models[i]->loaders, &error, NULL);
        waiters_end(catalog->registry, &models[i]->failed, &error, NULL);
        waiters_end(catalog->registry, &models[i]->unloaders, &error, NULL);
    }
    free(models);
}

static void
destroy(struct catalog *catalog)
{
    if (catalog == NULL)
        return;
    registry_lock(catalog->registry);
    for (uint32_t i = 1; i <= MODELS_MAX; i++) {
        struct model *model = catalog->numbers[i];
        if (model == NULL)
            continue;
        CHECK(model->place.users == 0 && model->holdings == 0);
        model->attention = model->swept = false; /* these lists are not looked through any more */
        model_free_said(model);
        model_end_fetch(model);
        model_drop_fetched(model);
        if (model->forgotten)
            model_free_unused(model);
        else
            model_forget(model);
    }
    registry_unlock(catalog->registry);
    loop_timer_destroy(catalog->timer);
    model_root_close(&catalog->root);
    free(catalog);
}

static void
add_leaked(struct worker_models *worker_models, void *context)
{
    uint64_t *bytes = context;
    *bytes += worker_models_leaked_bytes(worker_models);
}

void
catalog_publish(struct catalog *catalog)
{
    if (catalog == NULL)
        return;
    _Atomic uint64_t *counters = catalog->pipeline->counters;
    uint64_t leaked_bytes = 0;
    catalog_each_worker_models(catalog, add_leaked, &leaked_bytes);
    registry_lock(catalog->registry);
    struct model_cache cache = catalog->cache;
    registry_unlock(catalog->registry);
    counter_set(counters, PIPELINE_MODELS_KNOWN, catalog->known);
    counter_set(counters, PIPELINE_MODELS_LOADED, cache.loaded);
    counter_set(counters, PIPELINE_MODELS_LOADING, cache.loads);
    counter_set(counters, PIPELINE_MODELS_FETCHING, cache.asides);
    counter_set(counters, PIPELINE_MODELS_OUTDATED, catalog->kept);
    counter_set(counters, PIPELINE_MODEL_BYTES, cache.used_bytes);
    counter_set(counters, PIPELINE_MODEL_BYTES_MAX,
                catalog->pipeline->generation->config->models.memory_bytes);
    counter_set(counters, PIPELINE_MODEL_BYTES_LEAKED, leaked_bytes);
    counter_set(counters, PIPELINE_MODEL_REQUESTS_WAITING, atomic_load(&catalog->waiting));
}

const char *
catalog_root(const struct catalog *catalog)
{
    return catalog == NULL ? "" : catalog->root.path;
}

const char *
catalog_cache(const struct catalog *catalog)
{
    return catalog == NULL || catalog->registry->storage == NULL
               ? ""
               : storage_folder(catalog->registry->storage);
}

const char *
catalog_pipeline(const struct catalog *catalog)
{
    return catalog->pipeline->name;
}

struct pipeline_models
registry_pipeline_models(struct model_registry *registry)
{
    return (struct pipeline_models){
        .create = create,
        .destroy = destroy,
        .stop = stop,
        .publish = catalog_publish,
        .accepts = catalog_accepts,
        .go_on = catalog_go_on,
        .admit = model_admit,
        .info = model_info,
        .sends = model_sends,
        .came_back = model_came_back,
        .end = model_end,
        .context = registry,
    };
}
