/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/audit.h"
#include "shm/arena.h"
#include "shm/former.h"
#include "shm/slot.h"

/* Between two resets of a region, so that a modelet that always destroys it does not keep us busy.
 */
enum {
    RESET_WAIT_FIRST_MS = 100,
    RESET_WAIT_MAX_MS = 10000,
    RESET_FORGET_MS = 10000,
    WORKER_GRACE_MS = 2000,
};

static void pipeline_restart(void *context);

enum status
pipeline_create(const struct pipeline_options *options, uint32_t index, struct pipeline **created,
                struct error *error)
{
    (void)error;
    struct pipeline *pipeline = calloc(1, sizeof(*pipeline));
    CHECK(pipeline != NULL);
    pipeline->options = *options;
    pipeline->index = index;
    pipeline->slot_count = options->pipeline->slot_count;
    pipeline->counters = counters_values(options->counters, options->scope);
    pipeline->restart_timer = loop_timer_create(options->loop, pipeline_restart, pipeline);
    *created = pipeline;
    return STATUS_OK;
}

/* Frees a lane that is no longer in use and whose workers are gone. */
static bool
lane_reap(struct pipeline *pipeline, uint32_t number)
{
    struct lane *lane = &pipeline->lanes[number];
    if (pipeline->rosters[number] != NULL || atomic_load(&lane->state) == LANE_UNUSED ||
        atomic_load(&lane->refs) != 0)
        return false;
    lane_close(lane);
    return true;
}

void
pipeline_destroy(struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        (void)lane_reap(pipeline, i);
        CHECK(atomic_load(&pipeline->lanes[i].state) == LANE_UNUSED);
    }
    loop_timer_destroy(pipeline->restart_timer);
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

enum status
pipeline_start(struct pipeline *pipeline, struct error *error)
{
    if (pipeline->stopping)
        return STATUS_OK; /* another pipeline's start has failed meanwhile */
    int number = unused_lane(pipeline);
    if (number < 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "replies of %d earlier regions are still being sent", LANES_MAX);
    struct lane *lane = &pipeline->lanes[number];
    enum status status =
        lane_open(lane, pipeline, (uint32_t)number, ++pipeline->region_generation, error);
    if (status == STATUS_OK)
        status = roster_create(pipeline, lane, &pipeline->rosters[number], error);
    if (status != STATUS_OK)
        return error_prefix(error, "pipeline \"%s\"", pipeline->options.pipeline->name);
    return STATUS_OK;
}

/* Tells the owner when it has changed whether requests can be served. */
void
pipeline_on_stages_changed(struct pipeline *pipeline)
{
    struct lane *lane = atomic_load(&pipeline->serving);
    bool serving = lane != NULL && atomic_load(&lane->dead_stages) == 0;
    if (serving == pipeline->told_serving)
        return;
    pipeline->told_serving = serving;
    const struct pipeline_events *events = pipeline->options.events;
    (serving ? events->serving : events->not_serving)(events->context, pipeline);
}

void
pipeline_on_lane_ready(struct pipeline *pipeline, struct lane *lane)
{
    atomic_store(&lane->state, LANE_SERVING);
    pipeline->started_once = true;
    pipeline->serving_since_ns = clock_now_ns();
    atomic_store(&pipeline->serving, lane);
    log_info("pipeline_serving pipeline=%s region=%llu bytes=%llu", lane->info.name,
             (unsigned long long)pipeline->region_generation,
             (unsigned long long)lane->region.layout.region_bytes);
    pipeline_on_stages_changed(pipeline);
}

/* Takes a lane out of service: no new requests, everything in flight fails, workers end. */
static void
retire(struct pipeline *pipeline, struct lane *lane, enum status status, const char *text)
{
    struct lane *serving = lane;
    (void)atomic_compare_exchange_strong(&pipeline->serving, &serving, NULL);
    atomic_store(&lane->state, LANE_CONDEMNED);
    lane_fail_all(lane, status, text);
    pipeline_on_stages_changed(pipeline);
}

void
pipeline_on_start_failed(struct pipeline *pipeline, struct lane *lane, const struct error *error)
{
    if (pipeline->started_once || pipeline->stopping)
        return; /* a rebuilt lane whose workers don't come up goes on trying, with back-off */
    struct error prefixed = *error;
    error_prefix(&prefixed, "pipeline \"%s\"", lane->info.name);
    pipeline->options.events->start_failed(pipeline->options.events->context, pipeline, &prefixed);
}

void
pipeline_condemn(struct pipeline *pipeline, struct lane *lane, const char *why)
{
    if (pipeline->stopping || atomic_load(&lane->state) == LANE_CONDEMNED ||
        atomic_load(&lane->state) == LANE_UNUSED)
        return;
    log_error("region_corrupt pipeline=%s region=%llu what=\"%s\" action=rebuild", lane->info.name,
              (unsigned long long)pipeline->region_generation, why);
    counter_add_shared(pipeline->counters, PIPELINE_REGION_RESETS, 1);
    /* The workers first: a live one could go on writing, and must not be left with a full disk of
     * requests that nobody waits for. What they would still answer is answered here. */
    roster_kill(pipeline->rosters[lane->number]);
    retire(pipeline, lane, STATUS_UNAVAILABLE,
           "the pipeline's shared memory was found corrupt and is being rebuilt: try again");
    if (clock_now_ns() - pipeline->serving_since_ns > RESET_FORGET_MS * (int64_t)NS_PER_MS)
        pipeline->resets_in_a_row = 0;
    pipeline->resets_in_a_row++;
    int64_t wait_ms = RESET_WAIT_FIRST_MS;
    for (uint32_t i = 1; i < pipeline->resets_in_a_row && wait_ms < RESET_WAIT_MAX_MS; i++)
        wait_ms *= 2;
    loop_timer_set(pipeline->restart_timer, wait_ms * (int64_t)NS_PER_MS);
}

static void
pipeline_restart(void *context)
{
    struct pipeline *pipeline = context;
    struct error error = ERROR_NONE;
    if (pipeline->stopping || pipeline_start(pipeline, &error) == STATUS_OK)
        return;
    log_error("pipeline_restart_failed error=\"%s\"", error.text);
    loop_timer_set(pipeline->restart_timer, RESET_WAIT_MAX_MS * (int64_t)NS_PER_MS);
}

/* ---- stopping ---- */

void
pipeline_drain(struct pipeline *pipeline)
{
    atomic_store(&pipeline->draining, true);
    struct lane *lane = atomic_load(&pipeline->serving);
    if (lane == NULL)
        return;
    for (uint32_t i = 0; i < lane->region.layout.plan.stage_count; i++) {
        atomic_store(&region_stage(&lane->region, i)->draining, 1);
        stage_notify(&lane->region, i); /* a former that waits for company looks again */
    }
}

uint64_t
pipeline_in_flight(struct pipeline *pipeline)
{
    uint64_t in_flight = 0;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        uint64_t refs = atomic_load(&pipeline->lanes[i].refs);
        bool ours =
            atomic_load(&pipeline->lanes[i].state) != LANE_UNUSED && pipeline->rosters[i] != NULL;
        in_flight += refs - (ours && refs > 0 ? 1 : 0);
    }
    return in_flight;
}

static bool
pipeline_gone(const struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < LANES_MAX; i++)
        if (pipeline->rosters[i] != NULL)
            return false;
    return true;
}

void
pipeline_on_roster_stopped(struct pipeline *pipeline, struct lane *lane)
{
    roster_destroy(pipeline->rosters[lane->number]);
    pipeline->rosters[lane->number] = NULL;
    lane_unref(lane); /* the pipeline's own; requests whose memory is lent to replies hold theirs */
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
    loop_timer_clear(pipeline->restart_timer);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &pipeline->lanes[i];
        if (pipeline->rosters[i] == NULL)
            continue;
        roster_stop(pipeline->rosters[i], WORKER_GRACE_MS * (int64_t)NS_PER_MS);
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
        if (pipeline->rosters[i] != NULL)
            roster_kill(pipeline->rosters[i]);
}

/* ---- figures ---- */

void
pipeline_publish(struct pipeline *pipeline)
{
    struct lane *lane = atomic_load(&pipeline->serving);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        (void)lane_reap(pipeline, i);
        if (pipeline->rosters[i] != NULL)
            roster_publish(pipeline->rosters[i]);
    }
    if (lane == NULL)
        return;
    const char *lost =
        audit_look(lane->audit, lane, pipeline->rosters[lane->number], clock_now_ns());
    if (lost != NULL)
        lane_report_corrupt(lane, lost);
    counter_set(pipeline->counters, PIPELINE_SLOTS_USED, atomic_load(&lane->refs) - 1);
    counter_set(pipeline->counters, PIPELINE_SLOTS_MAX, lane->region.slots.count);
    counter_set(pipeline->counters, PIPELINE_BLOCKS_USED, arena_used(&lane->region, -1));
    counter_set(pipeline->counters, PIPELINE_BLOCKS_MAX, lane->region.blocks.count);
}

/* ---- the request path ---- */

struct lane *
pipeline_lane(struct pipeline *pipeline)
{
    struct lane *lane = atomic_load_explicit(&pipeline->serving, memory_order_acquire);
    if (lane == NULL || !lane_ref(lane))
        return NULL;
    /* It may have been retired, freed and opened again in between: then it is another lane, and
     * this one reference kept it from being freed once more. */
    if (atomic_load_explicit(&pipeline->serving, memory_order_acquire) == lane)
        return lane;
    lane_unref(lane);
    return NULL;
}

enum status
pipeline_submit(struct pipeline *pipeline, const struct rpc_message *message, int64_t deadline_ns,
                const struct request_sink *sink, void *call, struct payload_builder *builder,
                struct error *error)
{
    const char *name = pipeline->options.pipeline->name;
    if (atomic_load_explicit(&pipeline->draining, memory_order_relaxed)) {
        counter_add_shared(pipeline->counters, PIPELINE_REJECTED_UNAVAILABLE, 1);
        return error_set(error, STATUS_UNAVAILABLE, "draining: this node is about to stop");
    }
    struct lane *lane = pipeline_lane(pipeline);
    if (lane == NULL) {
        counter_add_shared(pipeline->counters, PIPELINE_REJECTED_UNAVAILABLE, 1);
        return error_set(error, STATUS_UNAVAILABLE, "pipeline \"%s\" is starting: try again", name);
    }
    int64_t now_ns = clock_now_ns();
    int64_t timeout_ns = pipeline->options.pipeline->default_timeout_ns;
    if (deadline_ns == TIME_NEVER_NS && timeout_ns > 0)
        deadline_ns = now_ns + timeout_ns;
    enum status status =
        lane_submit(lane, message, deadline_ns, now_ns, sink, call, builder, error);
    lane_unref(lane);
    return status;
}

void
pipeline_cancel(struct pipeline *pipeline, uint64_t tag)
{
    uint32_t number = tag_lane(tag);
    if (number >= LANES_MAX)
        return;
    struct lane *lane = &pipeline->lanes[number];
    if (!lane_ref(lane))
        return;
    lane_cancel(lane, tag_ticket(tag));
    lane_unref(lane);
}
