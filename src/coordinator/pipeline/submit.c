/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call's way to the lane that serves, or into the queue of calls that wait for a slot; and its
 * cancellation by its tag in either place.
 */
#include "base/clock.h"
#include "coordinator/pipeline/forecast.h"
#include "coordinator/pipeline/gatherer.h"
#include "coordinator/pipeline/pipeline.h"

struct lane *
pipeline_lane(struct pipeline *pipeline)
{
    for (;;) {
        struct lane *lane = atomic_load_explicit(&pipeline->serving, memory_order_acquire);
        if (lane == NULL)
            return NULL;
        /* In between it may have been retired, freed and opened again: then it is another lane, and
         * this reference kept it from being freed again. */
        bool held = lane_ref(lane);
        if (held && atomic_load_explicit(&pipeline->serving, memory_order_acquire) == lane)
            return lane;
        if (held)
            lane_unref(lane);
        /* A reload has replaced it: a lane that serves has the pipeline's reference. */
    }
}

uint32_t
pipeline_busy_lanes(struct pipeline *pipeline, struct lane *lanes[LANES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &pipeline->lanes[i];
        /* the pipeline's own reference does not count */
        if (atomic_load_explicit(&lane->refs, memory_order_relaxed) < 2 || !lane_ref(lane))
            continue;
        uint32_t state = atomic_load_explicit(&lane->state, memory_order_acquire);
        if (state == LANE_SERVING || state == LANE_DRAINING)
            lanes[count++] = lane;
        else
            lane_unref(lane);
    }
    return count;
}

static enum status
refuse_starting(const struct pipeline *pipeline, struct submission *submission, struct error *error)
{
    submission->rejected = PIPELINE_REJECTED_UNAVAILABLE;
    submission->retry_ms = RETRY_STARTING_MS;
    return error_set(error, STATUS_UNAVAILABLE, "pipeline \"%s\" is starting: try again",
                     pipeline->name);
}

static enum status
submit_now(struct lane *lane, struct submission *submission, int64_t now_ns, struct error *error)
{
    enum status status = lane_submit(lane, submission, now_ns, error);
    if (status == STATUS_OK && !gatherer_on_submitted())
        lane_watch(lane);
    return status;
}

/* Admits it, or has it wait for a slot behind the calls that already wait. */
static enum status
submit_or_wait(struct lane *lane, struct submission *submission, int64_t now_ns,
               struct error *error)
{
    struct wait_queue *queue = lane->pipeline->wait_queue;
    bool may_wait =
        lane->generation->config->queue_wait_ns > 0 && submission->sink->refused != NULL;
    if (may_wait && wait_queue_is_used(queue))
        return wait_queue_enter(queue, lane, submission, now_ns, error);
    enum status status = submit_now(lane, submission, now_ns, error);
    if (status == STATUS_OK)
        return status;
    wait_queue_on_freed(queue); /* a slot may have been taken and given back */
    return may_wait && submission->lacks != LACKS_NOTHING
               ? wait_queue_enter(queue, lane, submission, now_ns, error)
               : status;
}

static enum status
submit_in(struct pipeline *pipeline, struct lane *lane, struct submission *submission,
          struct error *error)
{
    if (pipeline->catalog != NULL && submission->model == NULL) {
        submission->rejected = PIPELINE_REJECTED_INVALID;
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "pipeline \"%s\" serves models: name one of them", pipeline->name);
    }
    int64_t now_ns = clock_now_ns();
    int64_t timeout_ns = lane->generation->config->default_timeout_ns;
    if (submission->deadline_ns == TIME_NEVER_NS && timeout_ns > 0)
        submission->deadline_ns = now_ns + timeout_ns;
    return submit_or_wait(lane, submission, now_ns, error);
}

enum status
pipeline_submit(struct pipeline *pipeline, struct submission *submission, struct error *error)
{
    counter_add_shared(pipeline->counters, PIPELINE_REQUESTS, 1);
    struct lane *lane = NULL;
    enum status status;
    if (atomic_load_explicit(&pipeline->draining, memory_order_relaxed)) {
        submission->rejected = PIPELINE_REJECTED_UNAVAILABLE;
        status = error_set(error, STATUS_UNAVAILABLE, "draining: this node is about to stop");
    } else if ((lane = pipeline_lane(pipeline)) == NULL) {
        status = refuse_starting(pipeline, submission, error);
    } else {
        status = submit_in(pipeline, lane, submission, error);
    }
    if (status != STATUS_OK)
        counter_add_shared(pipeline->counters, submission->rejected, 1);
    if (lane != NULL)
        lane_unref(lane);
    return status;
}

enum status
pipeline_submit_waiting(struct pipeline *pipeline, struct submission *submission,
                        struct error *error)
{
    struct lane *lane = pipeline_lane(pipeline);
    if (lane == NULL) { /* its region is being rebuilt */
        submission->lacks = LACKS_ROOM;
        return refuse_starting(pipeline, submission, error);
    }
    enum status status = submit_now(lane, submission, clock_now_ns(), error);
    lane_unref(lane);
    return status;
}

uint32_t
pipeline_retry_ms(struct pipeline *pipeline, int64_t now_ns)
{
    struct lane *lane = pipeline_lane(pipeline);
    if (lane == NULL)
        return RETRY_STARTING_MS;
    uint32_t retry_ms = lane_retry_ms(lane, now_ns);
    lane_unref(lane);
    return retry_ms;
}

void
pipeline_cancel(struct pipeline *pipeline, uint64_t tag)
{
    uint32_t number = tag_lane(tag);
    if (number == TAG_LANE_WAITING)
        wait_queue_cancel(pipeline->wait_queue, tag_waiting_id(tag));
    if (number >= LANES_MAX)
        return;
    struct lane *lane = &pipeline->lanes[number];
    if (!lane_ref(lane))
        return;
    lane_cancel(lane, tag_ticket(tag));
    lane_unref(lane);
}
