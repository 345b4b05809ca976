/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading: the next model, its predicted size, room for it, and the steps when every worker has it.
 * Failures go through catalog_fail.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/protocol/raw_message.h"

static struct model_info *
make_info(const struct model *model, const struct lane *lane)
{
    const struct handshake_model_said *first = model->said[0];
    const struct handshake_model_said *last = model->said[1];
    struct oip_model_info oip = lane->info;
    oip.name = model->name;
    if (first != NULL && first->input_count > 0) {
        oip.inputs = first->inputs;
        oip.input_count = first->input_count;
    }
    if (last != NULL && last->output_count > 0) {
        oip.outputs = last->outputs;
        oip.output_count = last->output_count;
    }
    struct model_info *info = calloc(
        1, sizeof(*info) + ((size_t)oip.input_count + oip.output_count) * sizeof(*oip.inputs));
    CHECK(info != NULL);
    const char *platform = last != NULL && last->platform[0] != '\0'     ? last->platform
                           : first != NULL && first->platform[0] != '\0' ? first->platform
                                                                         : lane->platform;
    memcpy(info->platform, platform, strnlen(platform, sizeof(info->platform) - 1));
    if (oip.input_count > 0)
        memcpy(info->tensors, oip.inputs, oip.input_count * sizeof(*oip.inputs));
    if (oip.output_count > 0)
        memcpy(info->tensors + oip.input_count, oip.outputs,
               oip.output_count * sizeof(*oip.outputs));
    info->oip = oip;
    if (model->source.release[0] != '\0') {
        memcpy(info->version, model->source.release, sizeof(info->version));
        info->oip.version = info->version;
    }
    info->oip.platform = info->platform;
    info->oip.inputs = info->tensors;
    info->oip.outputs = info->tensors + oip.input_count;
    return info;
}

/* Evicts the least recently used model because a load exceeded its predicted size. False: nothing
 * can be evicted. */
static bool
evict_excess(struct catalog *catalog, const struct model *spared)
{
    for (;;) {
        struct model_cache_entry *victim;
        registry_lock(catalog->registry);
        bool excess =
            model_cache_excess(&catalog->cache, spared == NULL ? NULL : &spared->place, &victim);
        if (victim != NULL)
            model_cache_unload(&catalog->cache, victim);
        registry_unlock(catalog->registry);
        if (!excess)
            return true;
        if (victim == NULL)
            return false;
        catalog_count(catalog, PIPELINE_MODEL_EVICTIONS);
        log_info_limited("model_evicted pipeline=%s model=\"%s\" bytes=%llu",
                         catalog->pipeline->name, model_of_place(victim)->id,
                         (unsigned long long)victim->bytes);
        model_begin_leaving(model_of_place(victim));
    }
}

static void
fail_too_large(struct model *model, uint64_t bytes)
{
    const struct model_cache *cache = &model->catalog->cache;
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_RESOURCE_EXHAUSTED,
              "it takes %llu MiB; of %llu MiB (memory_mib) %llu MiB are taken by models that were "
              "ordered, %llu MiB in all",
              (unsigned long long)(bytes >> 20), (unsigned long long)(cache->capacity_bytes >> 20),
              (unsigned long long)(model_cache_ordered_bytes(cache) >> 20),
              (unsigned long long)((cache->used_bytes - model->place.bytes) >> 20));
    catalog_fail(model, error.status, error.text);
}

/* INVALID_ARGUMENT, FAILED_PRECONDITION: it does not fit its pipeline, or its config.pbtxt. */
static enum status
check_loaded(const struct model *model, const struct lane *lane, const struct oip_model_info *info,
             struct error *error)
{
    const struct sidecar_tensors *tensors = model->source.tensors;
    if (lane->takes_messages && raw_message_check_model(info, error) != STATUS_OK)
        return error->status;
    if (tensors == NULL || sidecar_check_tensors(tensors, info, error) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(error, "%s", sidecar_files[SIDECAR_TRITON]);
}

/* A size that can never fit is kept for this model alone: predicted for others, it would have them
 * refused without a load, which alone could correct it. */
static void
learn_size(struct model *model, uint64_t bytes)
{
    struct catalog *catalog = model->catalog;
    bool is_unfit = bytes > catalog->cache.capacity_bytes;
    model->unfit_bytes = is_unfit ? bytes : 0;
    model->unfit_file_bytes = model->hints.file_bytes;
    if (!is_unfit)
        model_size_learn(&catalog->sizes, &model->hints, bytes);
}

static uint64_t
expected_size(const struct model *model)
{
    uint64_t bytes = model_size_predict(&model->catalog->sizes, &model->hints);
    bool is_known = model->unfit_file_bytes == model->hints.file_bytes;
    return is_known && model->unfit_bytes > bytes ? model->unfit_bytes : bytes;
}

void
model_on_loaded(struct model *model, uint64_t bytes)
{
    struct catalog *catalog = model->catalog;
    const struct lane *lane = atomic_load(&catalog->pipeline->serving);
    struct model_info *info = make_info(model, lane);
    int64_t now_ns = clock_now_ns();
    int64_t took_ns = now_ns - model->phase_since_ns;
    registry_lock(model->registry);
    model_cache_loaded(&catalog->cache, &model->place, bytes, now_ns);
    model_set_info(model, info);
    model->rows_max = model->source.tensors != NULL ? model->source.tensors->rows_max : 0;
    model->asked = false;
    registry_unlock(model->registry);
    model_free_said(model);
    model_take_from_begun(model);
    model_enter_phase(model, PHASE_REST);
    model->load_deaths = 0;
    model->retry_ns = model->retry_wait_ns = 0;
    learn_size(model, bytes);
    catalog_count(catalog, PIPELINE_MODEL_LOADS);
    histogram_record(catalog->pipeline->counters, PIPELINE_MODEL_LOAD_TIME, (uint64_t)took_ns);
    log_info_limited("model_loaded pipeline=%s model=\"%s\" bytes=%llu ms=%lld",
                     catalog->pipeline->name, model->id, (unsigned long long)bytes,
                     (long long)(took_ns / NS_PER_MS));
    catalog_kick(catalog);
    struct error error = ERROR_NONE;
    if (check_loaded(model, lane, &info->oip, &error) != STATUS_OK) {
        catalog_fail(model, error.status, error.text);
        return;
    }
    if (model->predecessor != NULL)
        replacement_take_over(model);
    if (!evict_excess(catalog, model)) {
        fail_too_large(model, bytes);
        return;
    }
    struct model_facts facts = {bytes, model->max_concurrency};
    waiters_end(model->registry, &model->loaders, NULL, &facts);
    model_release(model);
    if (model->registry->on_loaded != NULL)
        model->registry->on_loaded(model->registry->on_loaded_context, model->id);
}

/* A restarted worker or a new lane has loaded it again. */
void
model_measure(struct model *model, uint64_t bytes)
{
    if (bytes == model->place.bytes)
        return;
    registry_lock(model->registry);
    model_cache_resize(&model->catalog->cache, &model->place, bytes);
    registry_unlock(model->registry);
    (void)evict_excess(model->catalog, model);
}

static void
start_load(struct model *model)
{
    model_enter_phase(model, PHASE_LOADING);
    catalog_review(model);
}

/* The budget is full: what is left to be loaded in advance waits for requests. */
static void
end_preloads(struct model *model)
{
    struct catalog *catalog = model->catalog;
    struct model_cache_entry *next;
    uint32_t left = 1;
    registry_lock(catalog->registry);
    for (; (next = model_cache_preload(&catalog->cache)) != NULL; left++)
        model_cache_drop(&catalog->cache, next);
    registry_unlock(catalog->registry);
    log_info("models_not_preloaded pipeline=%s count=%u why=\"memory_mib is full\"",
             catalog->pipeline->name, left);
    catalog_unload(model);
}

/* Reserves the bytes that it will take, or evicts models for them. */
static void
make_room(struct model *model)
{
    struct catalog *catalog = model->catalog;
    uint64_t expected = expected_size(model);
    uint64_t bytes = model_size_reserve(&catalog->sizes, &model->hints);
    if (bytes < expected)
        bytes = expected;
    for (;;) {
        struct model_cache_entry *victim;
        registry_lock(model->registry);
        if (model->waiting_first != NULL || model->place.ordered)
            model_cache_queue(&catalog->cache, &model->place, MODEL_CACHE_AWAITED);
        enum model_cache_room room =
            model_cache_reserve(&catalog->cache, &model->place, bytes, &victim);
        if (victim != NULL)
            model_cache_unload(&catalog->cache, victim);
        catalog->room_wanted = catalog->room_wanted || room == ROOM_WAIT;
        registry_unlock(model->registry);
        switch (room) {
        case ROOM_RESERVED: start_load(model); return;
        case ROOM_WAIT: return;
        case ROOM_NOT_IN_ADVANCE: end_preloads(model); return;
        case ROOM_NEVER:
            if (bytes <= expected) {
                fail_too_large(model, bytes);
                return;
            }
            bytes = expected; /* it may well fit */
            break;
        case ROOM_EVICT:
            catalog_count(catalog, PIPELINE_MODEL_EVICTIONS);
            log_info_limited("model_evicted pipeline=%s model=\"%s\" bytes=%llu for=\"%s\"",
                             catalog->pipeline->name, model_of_place(victim)->id,
                             (unsigned long long)victim->bytes, model->id);
            model_begin_leaving(model_of_place(victim));
            break;
        }
    }
}

void
catalog_fetched(struct model *model, uint64_t file_bytes)
{
    struct catalog *catalog = model->catalog;
    const struct config_models *config = &catalog->pipeline->generation->config->models;
    model->hints =
        (struct model_hints){.file_bytes = file_bytes, .default_bytes = config->default_bytes};
    model_enter_phase(model, PHASE_PREDICTING);
    struct prediction *prediction = calloc(1, sizeof(*prediction));
    CHECK(prediction != NULL);
    *prediction = (struct prediction){.catalog = catalog, .model = model, .hints = model->hints};
    model->prediction = prediction;
    catalog_predict(prediction, model);
}

static void
begin(struct model *model)
{
    struct catalog *catalog = model->catalog;
    struct model_place place;
    struct error error = ERROR_NONE;
    CHECK(catalog->begun_count < LOADS_MAX);
    catalog->begun[catalog->begun_count++] = model;
    model->life = ++catalog->lives[model->number];
    if (model_source_is_remote(&model->source)) {
        catalog_fetch(model);
        return;
    }
    /* Again: files that were there when it was listed may be gone, and it is then not listed any
     * more. */
    if (model_path_find(&catalog->root, model->source.path, &place, &error) != STATUS_OK) {
        catalog_fail(model, error.status, error.text);
        return;
    }
    catalog_fetched(model, place.bytes);
}

void
catalog_predicted(struct prediction *prediction, uint64_t bytes)
{
    struct catalog *catalog = prediction->catalog;
    struct model *model = prediction->model;
    prediction->hints.said_bytes += bytes;
    if (--prediction->open > 0)
        return;
    if (prediction->done != NULL) {
        struct model_facts facts = {.bytes =
                                        model_size_predict(&catalog->sizes, &prediction->hints)};
        notify_later(catalog->registry, prediction->done, prediction->context, NULL, &facts);
    } else if (model != NULL) {
        model->hints = prediction->hints;
        model->prediction = NULL;
        model_enter_phase(model, PHASE_ROOM);
        catalog_kick(catalog);
    }
    free(prediction);
}

/* Lists loads in the order in which they began; each may end, and leave the list, at once. */
static uint32_t
list_begun(const struct catalog *catalog, struct model *begun[LOADS_MAX])
{
    memcpy(begun, catalog->begun, catalog->begun_count * sizeof(struct model *));
    return catalog->begun_count;
}

static void
resume_fetched(struct catalog *catalog)
{
    struct model *begun[LOADS_MAX];
    uint32_t count = list_begun(catalog, begun);
    for (uint32_t i = 0; i < count; i++) {
        if (begun[i]->phase != PHASE_FETCHED)
            continue;
        registry_lock(catalog->registry);
        bool goes_on = model_cache_step_back(&catalog->cache, &begun[i]->place);
        registry_unlock(catalog->registry);
        if (!goes_on)
            return;
        catalog_fetched(begun[i], begun[i]->fetched_bytes);
    }
}

void
catalog_schedule(struct catalog *catalog)
{
    if (catalog->stopping || catalog_frozen(catalog))
        return;
    (void)evict_excess(catalog, NULL); /* a reload may have lowered the budget */
    resume_fetched(catalog);
    for (;;) {
        registry_lock(catalog->registry);
        struct model_cache_entry *place = model_cache_next(&catalog->cache);
        registry_unlock(catalog->registry);
        if (place == NULL)
            break;
        begin(model_of_place(place));
    }
    registry_lock(catalog->registry);
    catalog->room_wanted = false;
    registry_unlock(catalog->registry);
    struct model *begun[LOADS_MAX];
    uint32_t begun_count = list_begun(catalog, begun);
    for (uint32_t i = 0; i < begun_count; i++)
        if (begun[i]->phase == PHASE_ROOM)
            make_room(begun[i]);
}
