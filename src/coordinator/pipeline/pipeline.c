/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/audit.h"
#include "coordinator/pipeline/oldest.h"
#include "coordinator/pipeline/probe.h"
#include "coordinator/protocol/raw_message.h"
#include "shm/arena.h"
#include "shm/former.h"

/* The pause between two resets, so that a modelet that always destroys its region does not keep the
 * node busy. */
enum {
    RESET_WAIT_FIRST_MS = 100,
    RESET_WAIT_MAX_MS = 10000,
    RESET_FORGET_MS = 10000,
    RESTART_AGAIN_MS = 1000, /* after a lack of lanes or memory */
    WORKER_GRACE_MS = 2000,
    DRAIN_LOOK_MS = 10,
};

static void pipeline_restart(void *context);
static void look_at_draining(void *context);

enum status
pipeline_create(const struct pipeline_options *options, uint32_t index, struct pipeline **created,
                struct error *error)
{
    struct generation_options first = {
        .source = options->source,
        .config = options->config,
        .number = 1,
        .counters = options->counters,
        .pipeline_scope = options->scope,
    };
    struct generation *generation;
    enum status status = generation_create(&first, &generation, error);
    if (status != STATUS_OK)
        return status;
    struct pipeline *pipeline = calloc(1, sizeof(*pipeline));
    CHECK(pipeline != NULL);
    pipeline->options = *options;
    config_source_ref(options->source); /* the name and the first configuration stay readable */
    pipeline->name = options->config->name;
    pipeline->index = index;
    pipeline->generation = generation;
    pipeline->counters = counters_values(options->counters, options->scope);
    counter_set(pipeline->counters, PIPELINE_GENERATION, generation->number);
    pipeline->restart_timer =
        loop_timer_create(loop_base(options->loop), pipeline_restart, pipeline);
    pipeline->drain_timer = loop_timer_create(loop_base(options->loop), look_at_draining, pipeline);
    pipeline->wait_queue = wait_queue_create(pipeline);
    status = options->models->create(options->models->context, pipeline, &pipeline->catalog, error);
    if (status == STATUS_OK)
        *created = pipeline;
    else
        pipeline_destroy(pipeline);
    return status;
}

/* Frees a lane that is not in use any more and whose workers are gone. */
static bool
lane_reap(struct pipeline *pipeline, uint32_t number)
{
    struct lane *lane = &pipeline->lanes[number];
    if (pipeline->pools[number] != NULL || atomic_load(&lane->state) == LANE_UNUSED ||
        atomic_load(&lane->refs) != 0)
        return false;
    lane_close(lane);
    return true;
}

void
pipeline_destroy(struct pipeline *pipeline)
{
    /* a last reference belongs to an answer that is being finished, or to a report */
    for (uint32_t i = 0; i < LANES_MAX; i++)
        lane_end_gathering(&pipeline->lanes[i]);
    wait_queue_destroy(pipeline->wait_queue); /* not before: such an answer rings its bell */
    loop_run_posted(pipeline->options.loop);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        (void)lane_reap(pipeline, i);
        CHECK(atomic_load(&pipeline->lanes[i].state) == LANE_UNUSED);
    }
    pipeline->options.models->destroy(pipeline->catalog);
    loop_timer_destroy(pipeline->restart_timer);
    loop_timer_destroy(pipeline->drain_timer);
    generation_unref(pipeline->generation);
    config_source_unref(pipeline->options.source);
    free(pipeline);
}

/* ---- lanes ---- */

static int
unused_lane(struct pipeline *pipeline)
{
    for (int i = 0; i < LANES_MAX; i++) {
        (void)lane_reap(pipeline, (uint32_t)i);
        if (atomic_load(&pipeline->lanes[i].state) == LANE_UNUSED)
            return i;
    }
    return -1;
}

/* Opens a lane of `generation` and starts its workers. `*opened` is set before any of them can
 * fail. */
static enum status
open_lane(struct pipeline *pipeline, struct generation *generation, struct lane **opened,
          struct error *error)
{
    int number = unused_lane(pipeline);
    if (number < 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "pipeline \"%s\": all %d regions are in use: workers of earlier ones are "
                         "ending, or replies are still being sent",
                         pipeline->name, LANES_MAX);
    struct lane *lane = &pipeline->lanes[number];
    enum status status = STATUS_OK;
    if (generation->config->queue_wait_ns > 0)
        status = wait_queue_start(pipeline->wait_queue, error);
    if (status == STATUS_OK)
        status = lane_open(lane, pipeline, generation, (uint32_t)number,
                           ++pipeline->region_generation, error);
    if (status != STATUS_OK)
        return error_prefix(error, "pipeline \"%s\"", pipeline->name);
    *opened = lane;
    const struct lane_workers *workers = pipeline->options.workers;
    workers->create(workers->context, pipeline, lane, &pipeline->pools[number]);
    return STATUS_OK;
}

enum status
pipeline_start(struct pipeline *pipeline, struct error *error)
{
    if (pipeline->stopping)
        return STATUS_OK; /* another pipeline's start has failed meanwhile */
    struct lane *lane;
    return open_lane(pipeline, pipeline->generation, &lane, error);
}

/* Notifies the owner when the pipeline begins or ceases to be able to serve. */
void
pipeline_on_stages_changed(struct pipeline *pipeline)
{
    wait_queue_wake(pipeline->wait_queue); /* another lane, or one that refuses now */
    struct lane *lane = atomic_load(&pipeline->serving);
    bool serving = lane != NULL && atomic_load(&lane->dead_stages) == 0;
    if (serving == pipeline->reported_serving)
        return;
    pipeline->reported_serving = serving;
    const struct pipeline_events *events = pipeline->options.events;
    (serving ? events->serving : events->not_serving)(events->context, pipeline);
}

bool
pipeline_is_failing(const struct pipeline *pipeline)
{
    const struct lane *lane = atomic_load(&pipeline->serving);
    return lane != NULL && !pipeline->reported_serving &&
           pipeline->options.workers->is_quarantined(pipeline->pools[lane->number]);
}

/* Sends requests to `lane` from here on. */
static void
serve_through(struct pipeline *pipeline, struct lane *lane)
{
    lane_enter_state(lane, LANE_SERVING);
    pipeline->started_once = true;
    pipeline->serving_since_ns = clock_now_ns();
    atomic_store(&pipeline->serving, lane);
    loop_timer_clear(pipeline->restart_timer);
    log_info("pipeline_serving pipeline=%s region=%llu generation=%llu bytes=%llu", pipeline->name,
             (unsigned long long)lane->region_generation,
             (unsigned long long)lane->generation->number,
             (unsigned long long)lane->region.layout.region_bytes);
    pipeline_on_stages_changed(pipeline);
    pipeline->options.models->go_on(pipeline->catalog);
}

/* Batches close at once, as no further requests will come. */
static void
close_batches(struct lane *lane)
{
    for (uint32_t i = 0; i < lane->region.layout.plan.stage_count; i++) {
        atomic_store(&region_stage(&lane->region, i)->draining, 1);
        stage_notify(&lane->region, i); /* a former that waits for more items looks again */
    }
}

/* Takes a lane out of service: no new requests, requests in flight fail, workers end. */
static void
retire(struct pipeline *pipeline, struct lane *lane, enum status status, const char *text)
{
    struct lane *serving = lane;
    (void)atomic_compare_exchange_strong(&pipeline->serving, &serving, NULL);
    lane_enter_state(lane, LANE_CONDEMNED);
    lane_fail_all(lane, status, text);
    pipeline_on_stages_changed(pipeline);
}

/* ---- reload ---- */

static void
end_reload(struct pipeline *pipeline, const struct error *error)
{
    struct pipeline_reload reload = pipeline->reload;
    CHECK(reload.done != NULL && pipeline->next_source == NULL);
    counter_add_shared(pipeline->counters,
                       error == NULL ? PIPELINE_RELOADS : PIPELINE_RELOADS_FAILED, 1);
    pipeline->incoming = NULL;
    pipeline->reload = (struct pipeline_reload){0};
    reload.done(reload.context, pipeline, error);
    pipeline->options.models->go_on(pipeline->catalog);
}

/* Drops the generation that was to take over; no request has seen it. */
static void
reload_failed(struct pipeline *pipeline, const struct error *why)
{
    struct error error = *why;
    error_prefix(&error, "pipeline \"%s\"", pipeline->name);
    log_error("reload_failed pipeline=%s error=\"%s\" action=\"generation %llu goes on\"",
              pipeline->name, error.text, (unsigned long long)pipeline->generation->number);
    end_reload(pipeline, &error);
}

/* Drops the generation that was to take over; no request has seen it. */
static void
give_up_incoming(struct pipeline *pipeline, const struct error *why)
{
    struct lane *lane = pipeline->incoming;
    lane_enter_state(lane, LANE_CONDEMNED);
    pipeline->options.workers->kill(pipeline->pools[lane->number]);
    lane_fail_all(lane, STATUS_UNAVAILABLE, "its generation never served"); /* a probe */
    /* condemned meanwhile: the restart was left to this function */
    if (atomic_load(&pipeline->serving) == NULL && pipeline->started_once && !pipeline->stopping)
        loop_timer_set(pipeline->restart_timer, RESET_WAIT_FIRST_MS * (int64_t)NS_PER_MS);
    reload_failed(pipeline, why);
}

static void
give_up_next(struct pipeline *pipeline, const struct error *why)
{
    config_source_unref(pipeline->next_source);
    pipeline->next_source = NULL;
    reload_failed(pipeline, why);
}

static void
give_up_incoming_because(struct pipeline *pipeline, enum status status, const char *why)
{
    struct error error = ERROR_NONE;
    error_set(&error, status, "%s", why);
    if (pipeline->incoming != NULL)
        give_up_incoming(pipeline, &error);
    else if (pipeline->next_source != NULL)
        give_up_next(pipeline, &error);
}

/* A lane of an older generation that is being rebuilt comes too late. */
static void
drop_starting(struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        if (atomic_load(&pipeline->lanes[i].state) != LANE_STARTING)
            continue;
        lane_enter_state(&pipeline->lanes[i], LANE_CONDEMNED);
        pipeline->options.workers->kill(pipeline->pools[i]);
        lane_fail_all(&pipeline->lanes[i], STATUS_UNAVAILABLE, "another one serves"); /* a probe */
    }
}

/* The node's setting, which a reload does not change. */
static int64_t
drain_timeout_ns(const struct pipeline *pipeline)
{
    return pipeline->options.source->config.drain_timeout_ns;
}

static void
take_over(struct pipeline *pipeline, struct lane *lane)
{
    struct lane *old = atomic_load(&pipeline->serving);
    generation_unref(pipeline->generation);
    pipeline->generation = generation_ref(lane->generation);
    counter_set(pipeline->counters, PIPELINE_GENERATION, lane->generation->number);
    serve_through(pipeline, lane);
    drop_starting(pipeline);
    if (old != NULL) {
        lane_enter_state(old, LANE_DRAINING);
        old->drain_until_ns = clock_now_ns() + drain_timeout_ns(pipeline);
        close_batches(old);
        pipeline->options.workers->end_client_regions(pipeline->pools[old->number]);
        loop_timer_set(pipeline->drain_timer, 0);
    }
    end_reload(pipeline, NULL);
}

static void
on_probed(struct lane *lane, const struct error *why)
{
    struct pipeline *pipeline = lane->pipeline;
    struct error error = ERROR_NONE;
    if (why != NULL && pipeline->started_once && lane != pipeline->incoming) {
        pipeline_condemn(pipeline, lane, why->text);
    } else if (why != NULL) {
        log_error("probe_failed pipeline=%s error=\"%s\"", pipeline->name, why->text);
        pipeline_on_start_failed(pipeline, lane, why);
    } else if (lane->takes_messages && raw_message_check_model(&lane->info, &error) != STATUS_OK) {
        log_error("modelet_not_fit pipeline=%s error=\"%s\"", pipeline->name, error.text);
        pipeline_on_start_failed(pipeline, lane, &error);
    } else if (lane == pipeline->incoming) {
        take_over(pipeline, lane);
    } else {
        serve_through(pipeline, lane);
    }
}

void
pipeline_on_lane_ready(struct pipeline *pipeline, struct lane *lane)
{
    (void)pipeline;
    probe_begin(lane, on_probed);
}

/* Starts the generation that waits for a lane; false: it waits on. */
static bool
begin_next(struct pipeline *pipeline)
{
    struct error error = ERROR_NONE;
    CHECK(pipeline->incoming == NULL); /* one reload at a time */
    if (unused_lane(pipeline) < 0 && clock_now_ns() < pipeline->next_until_ns)
        return false;
    struct generation_options next = {
        .source = pipeline->next_source,
        .config = pipeline->next_config,
        .number = pipeline->generation->number + 1,
        .counters = pipeline->options.counters,
        .pipeline_scope = pipeline->options.scope,
    };
    struct generation *generation;
    if (generation_create(&next, &generation, &error) != STATUS_OK) {
        give_up_next(pipeline, &error);
        return true;
    }
    log_info("reloading pipeline=%s generation=%llu", pipeline->name,
             (unsigned long long)generation->number);
    struct config_source *source = pipeline->next_source;
    pipeline->next_source = NULL;
    if (open_lane(pipeline, generation, &pipeline->incoming, &error) != STATUS_OK)
        reload_failed(pipeline, &error);
    generation_unref(generation); /* the lane has a reference to it, and it one to the source */
    config_source_unref(source);
    return true;
}

/* Ends lanes that have drained, and those whose time is over. */
static void
look_at_draining(void *context)
{
    struct pipeline *pipeline = context;
    const struct lane_workers *workers = pipeline->options.workers;
    bool any = false;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &pipeline->lanes[i];
        if (atomic_load(&lane->state) != LANE_DRAINING)
            continue;
        struct client_region_counts client_regions =
            workers->count_client_regions(pipeline->pools[i]);
        uint64_t in_flight = atomic_load(&lane->refs) - 1 + client_regions.ending;
        if (in_flight > 0 && clock_now_ns() < lane->drain_until_ns) {
            any = true;
            continue;
        }
        log_info("generation_ends pipeline=%s generation=%llu left_in_flight=%llu", pipeline->name,
                 (unsigned long long)lane->generation->number, (unsigned long long)in_flight);
        retire(pipeline, lane, STATUS_UNAVAILABLE,
               "the request's generation of the pipeline did not finish it in time: try again");
        if (in_flight > 0)
            workers->kill(pipeline->pools[i]);
        else
            workers->stop(pipeline->pools[i], WORKER_GRACE_MS * (int64_t)NS_PER_MS);
    }
    if (pipeline->next_source != NULL)
        any = !begin_next(pipeline) || any;
    if (any)
        loop_timer_set(pipeline->drain_timer, DRAIN_LOOK_MS * (int64_t)NS_PER_MS);
}

enum status
pipeline_reload(struct pipeline *pipeline, struct config_source *source,
                const struct config_pipeline *config, const struct pipeline_reload *reload,
                struct error *error)
{
    if (pipeline->stopping || atomic_load(&pipeline->draining))
        return error_set(error, STATUS_FAILED_PRECONDITION, "pipeline \"%s\": the node is stopping",
                         pipeline->name);
    if (pipeline->reload.done != NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "pipeline \"%s\": a reload is under way: wait for its end",
                         pipeline->name);
    if (pipeline->options.models->accepts(pipeline->catalog, pipeline->name, config, error) !=
        STATUS_OK)
        return error->status;
    pipeline->reload = *reload;
    pipeline->next_source = config_source_ref(source);
    pipeline->next_config = config;
    pipeline->next_until_ns = clock_now_ns() + drain_timeout_ns(pipeline);
    if (!begin_next(pipeline))
        loop_timer_set(pipeline->drain_timer, DRAIN_LOOK_MS * (int64_t)NS_PER_MS);
    return STATUS_OK;
}

void
pipeline_on_start_failed(struct pipeline *pipeline, struct lane *lane, const struct error *error)
{
    if (lane == pipeline->incoming) {
        give_up_incoming(pipeline, error);
        return;
    }
    if (pipeline->started_once || pipeline->stopping)
        return; /* a rebuilt lane whose workers do not get ready keeps trying, with back-off */
    struct error prefixed = *error;
    error_prefix(&prefixed, "pipeline \"%s\"", pipeline->name);
    pipeline->options.events->start_failed(pipeline->options.events->context, pipeline, &prefixed);
}

/* ---- reset ---- */

/* `served`: the lost lane had begun to serve. One that never does makes the pauses longer. */
static void
restart_after_reset(struct pipeline *pipeline, bool served)
{
    if (served &&
        clock_now_ns() - pipeline->serving_since_ns > RESET_FORGET_MS * (int64_t)NS_PER_MS)
        pipeline->resets_in_a_row = 0;
    pipeline->resets_in_a_row++;
    int64_t wait_ms = RESET_WAIT_FIRST_MS;
    for (uint32_t i = 1; i < pipeline->resets_in_a_row && wait_ms < RESET_WAIT_MAX_MS; i++)
        wait_ms *= 2;
    loop_timer_set(pipeline->restart_timer, wait_ms * (int64_t)NS_PER_MS);
}

/* The operator must mend a pipeline that never served, as with a worker that does not start. */
static void
fail_first_start(struct pipeline *pipeline, const char *why)
{
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_DATA_LOSS,
              "pipeline \"%s\": its shared memory was found corrupt (%s) before all workers were "
              "ready: a modelet writes where it must not while it starts",
              pipeline->name, why);
    pipeline->options.events->start_failed(pipeline->options.events->context, pipeline, &error);
}

void
pipeline_condemn(struct pipeline *pipeline, struct lane *lane, const char *why)
{
    uint32_t state = atomic_load(&lane->state);
    if (pipeline->stopping || state == LANE_CONDEMNED || state == LANE_UNUSED)
        return;
    bool rebuild = state != LANE_DRAINING && lane != pipeline->incoming && pipeline->started_once;
    log_error("region_corrupt pipeline=%s region=%llu what=\"%s\" action=%s", pipeline->name,
              (unsigned long long)lane->region_generation, why, rebuild ? "rebuild" : "drop");
    counter_add_shared(pipeline->counters, PIPELINE_REGION_RESETS, 1);
    if (lane == pipeline->incoming) {
        give_up_incoming_because(pipeline, STATUS_DATA_LOSS,
                                 "its shared memory was found corrupt before it served");
        return;
    }
    /* The workers first: a live one could go on writing, and running requests that nobody waits
     * for. Their requests are answered here. */
    pipeline->options.workers->kill(pipeline->pools[lane->number]);
    retire(pipeline, lane, STATUS_UNAVAILABLE,
           "the pipeline's shared memory was found corrupt and is being rebuilt: try again");
    /* A lane that drained has a successor already, and so will one that is coming up now. */
    if (!pipeline->started_once)
        fail_first_start(pipeline, why);
    else if (state != LANE_DRAINING && pipeline->incoming == NULL)
        restart_after_reset(pipeline, state == LANE_SERVING);
}

/* Returns whether the serving generation has a lane, or one that is coming up. */
static bool
has_lane(struct pipeline *pipeline)
{
    bool has = atomic_load(&pipeline->serving) != NULL;
    for (uint32_t i = 0; i < LANES_MAX; i++)
        has = has || (atomic_load(&pipeline->lanes[i].state) == LANE_STARTING &&
                      &pipeline->lanes[i] != pipeline->incoming);
    return has;
}

static void
pipeline_restart(void *context)
{
    struct pipeline *pipeline = context;
    struct error error = ERROR_NONE;
    if (pipeline->stopping || has_lane(pipeline) || pipeline_start(pipeline, &error) == STATUS_OK)
        return;
    log_error("pipeline_restart_failed error=\"%s\"", error.text);
    loop_timer_set(pipeline->restart_timer, RESTART_AGAIN_MS * (int64_t)NS_PER_MS);
}

/* ---- stopping ---- */

void
pipeline_drain(struct pipeline *pipeline)
{
    atomic_store(&pipeline->draining, true);
    give_up_incoming_because(pipeline, STATUS_UNAVAILABLE, "the node is stopping");
    struct lane *lane = atomic_load(&pipeline->serving);
    if (lane != NULL)
        close_batches(lane);
}

uint64_t
pipeline_in_flight(struct pipeline *pipeline)
{
    uint64_t in_flight = wait_queue_count(pipeline->wait_queue);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        uint64_t refs = atomic_load(&pipeline->lanes[i].refs);
        bool ours =
            atomic_load(&pipeline->lanes[i].state) != LANE_UNUSED && pipeline->pools[i] != NULL;
        in_flight += refs - (ours && refs > 0 ? 1 : 0);
    }
    return in_flight;
}

static bool
pipeline_gone(const struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < LANES_MAX; i++)
        if (pipeline->pools[i] != NULL)
            return false;
    return true;
}

void
pipeline_on_workers_stopped(struct pipeline *pipeline, struct lane *lane)
{
    pipeline->options.workers->destroy(pipeline->pools[lane->number]);
    pipeline->pools[lane->number] = NULL;
    lane_unref(lane); /* the pipeline's own reference; requests whose memory is lent to replies hold
                         theirs */
    if (pipeline->stopping && pipeline_gone(pipeline))
        pipeline->options.events->stopped(pipeline->options.events->context, pipeline);
}

static void
on_stopped_at_once(void *context)
{
    struct pipeline *pipeline = context;
    pipeline->options.events->stopped(pipeline->options.events->context, pipeline);
}

void
pipeline_stop(struct pipeline *pipeline)
{
    if (pipeline->stopping)
        return;
    pipeline->stopping = true;
    pipeline->options.models->stop(pipeline->catalog);
    wait_queue_stop(pipeline->wait_queue);
    give_up_incoming_because(pipeline, STATUS_UNAVAILABLE, "the node is stopping");
    loop_timer_clear(pipeline->restart_timer);
    loop_timer_clear(pipeline->drain_timer);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &pipeline->lanes[i];
        if (pipeline->pools[i] == NULL)
            continue;
        pipeline->options.workers->stop(pipeline->pools[i], WORKER_GRACE_MS * (int64_t)NS_PER_MS);
        if (atomic_load(&lane->state) != LANE_CONDEMNED)
            retire(pipeline, lane, STATUS_UNAVAILABLE, "the service is stopping");
    }
    if (pipeline_gone(pipeline))
        loop_post(pipeline->options.loop, on_stopped_at_once, pipeline);
}

void
pipeline_kill(struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < LANES_MAX; i++)
        if (pipeline->pools[i] != NULL)
            pipeline->options.workers->kill(pipeline->pools[i]);
}

/* ---- figures ---- */

/* Slots of requests that are unanswered or whose reply is still being sent. */
static uint32_t
slots_held(const struct pipeline *pipeline)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < LANES_MAX; i++)
        if (pipeline->pools[i] != NULL)
            held += share_total(&pipeline->lanes[i].share);
    return held;
}

static uint32_t
streams_open(const struct pipeline *pipeline)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < LANES_MAX; i++)
        if (pipeline->pools[i] != NULL)
            open += atomic_load_explicit(&pipeline->lanes[i].streaming, memory_order_relaxed);
    return open;
}

static struct shm_worker *
worker_of(const void *context, uint32_t stage, uint32_t index, uint16_t *owner)
{
    const struct lane *lane = context;
    const struct pipeline *pipeline = lane->pipeline;
    struct worker_process process =
        pipeline->options.workers->process(pipeline->pools[lane->number], stage, index);
    *owner = process.owner;
    return process.worker;
}

static void
audit_lane(struct lane *lane)
{
    uint32_t state = atomic_load(&lane->state);
    if (state != LANE_SERVING && state != LANE_DRAINING)
        return;
    struct audit_workers workers = {worker_of, lane};
    const char *lost = audit_look(lane->audit, lane, &workers, clock_now_ns());
    if (lost != NULL)
        lane_report_corrupt(lane, lost);
}

static uint32_t
local_clients(const struct pipeline *pipeline)
{
    uint32_t served = 0;
    for (uint32_t i = 0; i < LANES_MAX; i++)
        if (pipeline->pools[i] != NULL)
            served += pipeline->options.workers->count_client_regions(pipeline->pools[i]).served;
    return served;
}

uint64_t
pipelines_refused(struct pipeline *const *pipelines, uint32_t count)
{
    uint64_t refused = 0;
    for (uint32_t i = 0; i < count; i++)
        refused += counter_get(pipelines[i]->counters, PIPELINE_REJECTED_FULL) +
                   counter_get(pipelines[i]->counters, PIPELINE_REJECTED_SHARE);
    return refused;
}

void
pipeline_publish(struct pipeline *pipeline)
{
    struct lane *lane = atomic_load(&pipeline->serving);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        (void)lane_reap(pipeline, i);
        if (pipeline->pools[i] == NULL)
            continue;
        bool is_shown = lane == NULL || lane == &pipeline->lanes[i];
        pipeline->options.workers->publish(pipeline->pools[i],
                                           is_shown ? PUBLISH_WORKERS_AND_STAGES : PUBLISH_WORKERS);
        audit_lane(&pipeline->lanes[i]);
    }
    oldest_publish(pipeline);
    pipeline->options.models->publish(pipeline->catalog);
    counter_set(pipeline->counters, PIPELINE_LOCAL_CLIENTS, local_clients(pipeline));
    counter_set(pipeline->counters, PIPELINE_SLOTS_USED, slots_held(pipeline));
    counter_set(pipeline->counters, PIPELINE_STREAMS, streams_open(pipeline));
    if (lane == NULL)
        return;
    counter_set(pipeline->counters, PIPELINE_SLOTS_MAX, lane->region.slots.count);
    counter_set(pipeline->counters, PIPELINE_BLOCKS_USED, arena_used(&lane->region, -1));
    counter_set(pipeline->counters, PIPELINE_BLOCKS_MAX, lane->region.blocks.count);
}

/* ---- what it is ---- */

struct pipeline *
pipeline_find(struct pipeline *const *pipelines, uint32_t count, const char *name,
              size_t name_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *candidate = pipelines[i]->name;
        if (strlen(candidate) == name_bytes && memcmp(candidate, name, name_bytes) == 0)
            return pipelines[i];
    }
    return NULL;
}

struct pipeline_method
pipeline_method(const struct pipeline *pipeline)
{
    const struct config_pipeline *config = pipeline->options.config; /* not a reload's */
    return (struct pipeline_method){config->method, config->id_path, config->id_path_count,
                                    config_gives_pieces(config)};
}

struct lane *
pipeline_describe(struct pipeline *pipeline, struct oip_model_info *info, bool *ready)
{
    struct lane *lane = pipeline_lane(pipeline);
    *ready =
        lane != NULL && atomic_load(&lane->dead_stages) == 0 && !atomic_load(&pipeline->draining);
    if (lane != NULL)
        *info = lane->info;
    else
        *info = (struct oip_model_info){.name = pipeline->name, .version = "1", .platform = ""};
    return lane;
}
