/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/wait_queue.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/pipeline/forecast.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "rpc/rpc.h"

/* The memory that a call holds in addition to its message: the library's whole read buffers
 * (rpc.h). */
enum { WAITER_BYTES = 8 * 1024 };

#define SLEEP_NS_MAX (3600 * NS_PER_S)

struct waiter {
    struct submission submission;
    struct rpc_kept *kept;
    uint64_t bytes;
    uint64_t id;
    int64_t arrived_ns;
    int64_t until_ns;         /* of `queue_wait_ms` */
    bool cancelled;           /* [lock] */
    TAILQ_ENTRY(waiter) link; /* [lock] */
};

/* ---- places; with the lock ---- */

static uint64_t
bytes_of(const struct submission *submission)
{
    return submission_bytes(submission) + WAITER_BYTES;
}

static void
publish(const struct wait_queue *queue)
{
    counter_set(queue->pipeline->counters, PIPELINE_WAITING, wait_queue_count(queue));
    counter_set(queue->pipeline->counters, PIPELINE_WAITING_BYTES, queue->bytes);
}

static void
take_place(struct wait_queue *queue, uint32_t place, uint64_t bytes)
{
    atomic_fetch_add_explicit(&queue->count, 1, memory_order_relaxed);
    queue->bytes += bytes;
    share_take(&queue->share, place);
    publish(queue);
}

static void
give_place(struct wait_queue *queue, uint32_t place, uint64_t bytes)
{
    share_give(&queue->share, place);
    CHECK(bytes <= queue->bytes);
    queue->bytes -= bytes;
    CHECK(atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed) != 0);
    publish(queue);
}

/* ---- in ---- */

static enum status
no_place(struct lane *lane, struct submission *submission, enum counter counter, int64_t now_ns)
{
    submission->rejected = counter;
    submission->retry_ms = lane_retry_ms(lane, now_ns);
    return STATUS_RESOURCE_EXHAUSTED;
}

/* Call with the lock. Places are shared as slots are: by priorities and fair shares
 * (forecast.h). */
static enum status
judge_place(const struct wait_queue *queue, struct lane *lane, struct submission *submission,
            int64_t now_ns, struct error *error)
{
    const struct config_pipeline *config = lane->generation->config;
    static const struct forecast unknown;
    uint32_t place = share_place(submission->caller);
    struct forecast_demand demand = {
        .priority = submission->priority,
        .limit_ns = TIME_NEVER_NS,
        .held = wait_queue_count(queue),
        .slots = config->queue_wait_max,
        .own_held = share_held(&queue->share, place),
        .callers = share_callers(&queue->share, place),
    };
    enum verdict verdict = forecast_judge(&unknown, &demand).verdict;
    if (demand.held >= demand.slots)
        verdict = VERDICT_FULL;
    bool fits = bytes_of(submission) <= config->queue_wait_bytes - queue->bytes &&
                queue->bytes <= config->queue_wait_bytes;
    if (verdict == VERDICT_ADMIT && fits)
        return STATUS_OK;
    enum status status = no_place(
        lane, submission,
        verdict == VERDICT_SHARE ? PIPELINE_REJECTED_SHARE : PIPELINE_REJECTED_FULL, now_ns);
    const char *name = lane->info.name;
    if (verdict == VERDICT_SHARE)
        return error_set(error, status,
                         "pipeline \"%s\" is full, and the caller has its fair share of the calls "
                         "that wait for a slot, %u of %u; retry in %u ms",
                         name, demand.own_held, demand.held, submission->retry_ms);
    return error_set(error, status,
                     "pipeline \"%s\" is full, and %u calls of %llu bytes wait for a slot, with "
                     "no place for this one; retry in %u ms",
                     name, demand.held, (unsigned long long)queue->bytes, submission->retry_ms);
}

static struct waiter *
waiter_create(struct submission *submission, int64_t now_ns, int64_t wait_ns)
{
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    CHECK(waiter != NULL);
    waiter->submission = *submission;
    waiter->bytes = bytes_of(submission);
    if (submission->decoded != NULL)
        oip_elements_moved(submission->decoded);
    submission->decoded = NULL;
    waiter->kept = rpc_message_keep(submission->message);
    waiter->submission.message = rpc_kept_message(waiter->kept);
    waiter->arrived_ns = now_ns;
    waiter->until_ns = now_ns + wait_ns;
    return waiter;
}

enum status
wait_queue_enter(struct wait_queue *queue, struct lane *lane, struct submission *submission,
                 int64_t now_ns, struct error *error)
{
    uint32_t place = share_place(submission->caller);
    pthread_mutex_lock(&queue->lock);
    enum status status = judge_place(queue, lane, submission, now_ns, error);
    if (status == STATUS_OK)
        take_place(queue, place, bytes_of(submission));
    uint64_t id = queue->next_id++;
    pthread_mutex_unlock(&queue->lock);
    if (status != STATUS_OK)
        return status;
    /* without the lock: a message that did not come over gRPC is copied */
    struct waiter *waiter =
        waiter_create(submission, now_ns, lane->generation->config->queue_wait_ns);
    waiter->id = id & TAG_WAITING_ID_MAX;
    waiter->submission.builder = &queue->builder;
    if (submission->sink->tagged != NULL)
        submission->sink->tagged(submission->call,
                                 tag_of_waiting(queue->pipeline->index, waiter->id));
    pthread_mutex_lock(&queue->lock);
    TAILQ_INSERT_TAIL(&queue->waiters, waiter, link);
    pthread_mutex_unlock(&queue->lock);
    doorbell_wake(&queue->bell);
    return STATUS_OK;
}

void
wait_queue_cancel(struct wait_queue *queue, uint64_t id)
{
    pthread_mutex_lock(&queue->lock);
    struct waiter *waiter;
    TAILQ_FOREACH (waiter, &queue->waiters, link)
        if (waiter->id == id)
            break;
    if (waiter != NULL) {
        waiter->cancelled = true;
        counter_add_shared(queue->pipeline->counters, PIPELINE_CANCELLED, 1);
    }
    pthread_mutex_unlock(&queue->lock);
    if (waiter != NULL)
        doorbell_wake(&queue->bell);
}

/* ---- on, and out: the queue's thread ---- */

/* One look at all waiting calls. */
struct wait_pass {
    int64_t now_ns;
    int64_t wake_ns; /* when the first of the calls that stay runs out of time */
    bool is_full;    /* a call met a lack of slots or memory, and none may pass it */
    uint64_t blocked[SHARE_PLACES / 64]; /* callers with a call that the rules refused */
};

static void
block(struct wait_pass *pass, const struct submission *submission)
{
    uint32_t place = share_place(submission->caller);
    if (submission->lacks == LACKS_ROOM)
        pass->is_full = true;
    else
        pass->blocked[place / 64] |= UINT64_C(1) << place % 64;
}

static bool
is_blocked(const struct wait_pass *pass, const struct submission *submission)
{
    uint32_t place = share_place(submission->caller);
    return pass->is_full || (pass->blocked[place / 64] >> place % 64 & 1) != 0;
}

enum wait_outcome { WAITS_ON, IS_ADMITTED, IS_REFUSED };

static enum wait_outcome
refuse_as(struct waiter *waiter, enum counter counter)
{
    waiter->submission.rejected = counter;
    waiter->submission.retry_ms = 0;
    return IS_REFUSED;
}

/* The reason for the timeout of the wait, even if there is room now. */
static enum wait_outcome
end_futile(const struct wait_queue *queue, const struct wait_pass *pass, struct waiter *waiter,
           struct error *error)
{
    if (waiter->cancelled) {
        error_set(error, STATUS_CANCELLED, "the caller is gone");
        return refuse_as(waiter, PIPELINE_REJECTED_LATE);
    }
    if (atomic_load(&queue->stopping)) {
        error_set(error, STATUS_UNAVAILABLE, "the service is stopping");
        return refuse_as(waiter, PIPELINE_REJECTED_UNAVAILABLE);
    }
    if (waiter->submission.deadline_ns <= pass->now_ns) {
        error_set(error, STATUS_DEADLINE_EXCEEDED,
                  "the deadline has passed while the call waited for a slot");
        return refuse_as(waiter, PIPELINE_REJECTED_LATE);
    }
    return WAITS_ON;
}

static enum wait_outcome
try_in(const struct wait_queue *queue, struct wait_pass *pass, struct waiter *waiter,
       struct error *error)
{
    struct submission *submission = &waiter->submission;
    if (is_blocked(pass, submission))
        return WAITS_ON;
    submission->waited_ms = (uint32_t)((pass->now_ns - waiter->arrived_ns) / NS_PER_MS);
    if (pipeline_submit_waiting(queue->pipeline, submission, error) == STATUS_OK)
        return IS_ADMITTED;
    if (submission->lacks == LACKS_NOTHING)
        return IS_REFUSED;
    block(pass, submission);
    return WAITS_ON;
}

static enum wait_outcome
expire(const struct wait_queue *queue, const struct wait_pass *pass, struct waiter *waiter,
       struct error *error)
{
    struct submission *submission = &waiter->submission;
    submission->rejected = PIPELINE_REJECTED_FULL;
    submission->retry_ms = pipeline_retry_ms(queue->pipeline, pass->now_ns);
    counter_add_shared(queue->pipeline->counters, PIPELINE_WAIT_EXPIRED, 1);
    error_set(error, STATUS_RESOURCE_EXHAUSTED,
              "pipeline \"%s\" is full: the call has waited %lld ms for a slot; retry in %u ms",
              queue->pipeline->name, (long long)((pass->now_ns - waiter->arrived_ns) / NS_PER_MS),
              submission->retry_ms);
    return IS_REFUSED;
}

/* Removes it; true: its caller is gone. */
static bool
leave(struct wait_queue *queue, struct waiter *waiter)
{
    struct submission *submission = &waiter->submission;
    pthread_mutex_lock(&queue->lock);
    TAILQ_REMOVE(&queue->waiters, waiter, link);
    give_place(queue, share_place(submission->caller), waiter->bytes);
    bool cancelled = waiter->cancelled;
    pthread_mutex_unlock(&queue->lock);
    return cancelled;
}

static void
refuse(const struct wait_queue *queue, struct waiter *waiter, const struct error *error)
{
    struct submission *submission = &waiter->submission;
    /* the last use of the message: the server may end once the call has ended */
    struct wire_message sized = {.bytes = submission_bytes(submission)};
    rpc_kept_release(waiter->kept);
    waiter->kept = NULL;
    oip_request_destroy(submission->decoded);
    submission->decoded = NULL;
    submission->message = &sized;
    counter_add_shared(queue->pipeline->counters, submission->rejected, 1);
    submission->sink->refused(submission, error);
}

static void
look_at(struct wait_queue *queue, struct wait_pass *pass, struct waiter *waiter)
{
    struct error error = ERROR_NONE;
    pthread_mutex_lock(&queue->lock);
    enum wait_outcome outcome = end_futile(queue, pass, waiter, &error);
    pthread_mutex_unlock(&queue->lock);
    if (outcome == WAITS_ON)
        outcome = try_in(queue, pass, waiter, &error);
    if (outcome == WAITS_ON && waiter->until_ns <= pass->now_ns) {
        error_clear(&error);
        outcome = expire(queue, pass, waiter, &error);
    }
    if (outcome == WAITS_ON) {
        int64_t deadline_ns = waiter->submission.deadline_ns;
        int64_t until_ns = waiter->until_ns < deadline_ns ? waiter->until_ns : deadline_ns;
        if (until_ns < pass->wake_ns)
            pass->wake_ns = until_ns;
        return;
    }
    bool cancelled = leave(queue, waiter);
    if (outcome == IS_REFUSED) {
        refuse(queue, waiter, &error);
    } else {
        counter_add_shared(queue->pipeline->counters, PIPELINE_WAITED, 1);
        if (cancelled) /* while it was being admitted */
            pipeline_cancel(queue->pipeline, waiter->submission.tag);
    }
    rpc_kept_release(waiter->kept);
    free(waiter);
}

/* The next one, or the first. Only this thread removes calls, so both stay in place. */
static struct waiter *
waiter_after(struct wait_queue *queue, const struct waiter *waiter)
{
    pthread_mutex_lock(&queue->lock);
    struct waiter *next = waiter == NULL ? TAILQ_FIRST(&queue->waiters) : TAILQ_NEXT(waiter, link);
    pthread_mutex_unlock(&queue->lock);
    return next;
}

/* Returns when the first of the calls that still wait runs out of time. */
static int64_t
look_at_all(struct wait_queue *queue)
{
    struct wait_pass pass = {.now_ns = clock_now_ns(), .wake_ns = TIME_NEVER_NS};
    struct waiter *next;
    for (struct waiter *waiter = waiter_after(queue, NULL); waiter != NULL; waiter = next) {
        next = waiter_after(queue, waiter);
        look_at(queue, &pass, waiter);
    }
    return pass.wake_ns;
}

static void *
wait_main(void *context)
{
    struct wait_queue *queue = context;
    prctl(PR_SET_NAME, "shoald:waiting");
    for (;;) {
        bool ended =
            atomic_load(&queue->ended); /* `stopping` is set, too: the last look refuses all */
        uint32_t sequence = atomic_load(&queue->bell.sequence);
        if (wait_queue_is_used(queue))
            sequence = doorbell_prepare(&queue->bell);
        int64_t wake_ns = look_at_all(queue);
        if (ended)
            return NULL;
        int64_t now_ns = clock_now_ns();
        int64_t sleep_ns = SLEEP_NS_MAX;
        if (wake_ns != TIME_NEVER_NS && wake_ns - now_ns < sleep_ns)
            sleep_ns = wake_ns - now_ns;
        (void)doorbell_sleep(&queue->bell, sequence, sleep_ns);
    }
}

/* ---- life ---- */

struct wait_queue *
wait_queue_create(struct pipeline *pipeline)
{
    struct wait_queue *queue = aligned_alloc(_Alignof(struct wait_queue), sizeof(*queue));
    CHECK(queue != NULL);
    memset(queue, 0, sizeof(*queue));
    queue->pipeline = pipeline;
    TAILQ_INIT(&queue->waiters);
    CHECK(pthread_mutex_init(&queue->lock, NULL) == 0);
    return queue;
}

enum status
wait_queue_start(struct wait_queue *queue, struct error *error)
{
    if (atomic_load(&queue->started))
        return STATUS_OK;
    int failure = pthread_create(&queue->thread, NULL, wait_main, queue);
    if (failure != 0) /* the limit of threads of this user */
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "starting the thread of calls that wait: %s", strerror(failure));
    atomic_store(&queue->started, true);
    return STATUS_OK;
}

void
wait_queue_wake(struct wait_queue *queue)
{
    if (atomic_load(&queue->started))
        doorbell_wake(&queue->bell);
}

void
wait_queue_stop(struct wait_queue *queue)
{
    atomic_store(&queue->stopping, true);
    wait_queue_wake(queue);
}

void
wait_queue_destroy(struct wait_queue *queue)
{
    if (atomic_load(&queue->started)) {
        wait_queue_stop(queue);
        atomic_store(&queue->ended, true);
        doorbell_wake(&queue->bell);
        CHECK(pthread_join(queue->thread, NULL) == 0);
    }
    CHECK(TAILQ_EMPTY(&queue->waiters) && wait_queue_count(queue) == 0 && queue->bytes == 0);
    CHECK(share_total(&queue->share) == 0 && atomic_load(&queue->share.callers) == 0);
    CHECK(pthread_mutex_destroy(&queue->lock) == 0);
    free(queue);
}
