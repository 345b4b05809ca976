/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a pipeline that wait for a slot (key `queue_wait_ms`). A call waits with the bytes
 * of its message, in the order of arrival, and a thread of the pipeline's own tries to admit it
 * whenever a slot may have become free (DESIGN-overload.md, "Waiting for a slot").
 *
 * Threads. Anybody enters and cancels; only the queue's thread takes a call out, and it alone
 * submits or refuses it. The lock guards the list and the sums, and nothing is called with it held.
 *
 * No wake is lost. The thread prepares its doorbell before each look at the calls that wait, if any
 * do; whoever frees a slot rings afterwards (shm/doorbell.h: the look finds the slot, or the ring
 * finds the sleeper). Who enters wakes it whatever its flag says, and changes the bell's sequence
 * by that, so a call that came after the look ends the sleep at once. While nobody waits the bell
 * is not prepared, and freeing a slot costs the ring's fence and load.
 * tests/explore/model/wait.pml.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "coordinator/pipeline/share.h"
#include "shm/doorbell.h"
#include "shm/payload.h"

struct lane;
struct pipeline;
struct submission;
struct waiter;

struct wait_queue {
    struct pipeline *pipeline;
    _Atomic bool started;   /* once a generation has the key; true for good */
    _Atomic uint32_t count; /* of calls that wait [lock; read without] */
    _Atomic bool stopping;
    _Atomic bool ended;
    struct shm_doorbell bell;
    pthread_t thread;
    struct payload_builder builder; /* the thread's */
    pthread_mutex_t lock;           /* of what follows */
    TAILQ_HEAD(, waiter) waiters;   /* in the order of arrival */
    uint64_t bytes;
    uint64_t next_id;
    struct share share; /* of the places, by callers */
};

struct wait_queue *wait_queue_create(struct pipeline *pipeline);
/* Nobody waits any more, and nobody enters. */
void wait_queue_destroy(struct wait_queue *queue);

/* Before the first call may wait; again is harmless. Loop thread. */
enum status wait_queue_start(struct wait_queue *queue, struct error *error) WARN_UNUSED;
/* From now on whoever waits is refused. */
void wait_queue_stop(struct wait_queue *queue);
/* Has every call tried again: the pipeline has changed. Any thread. */
void wait_queue_wake(struct wait_queue *queue);

/* Whether calls wait, behind which others have to queue. */
static inline bool
wait_queue_is_used(const struct wait_queue *queue)
{
    return atomic_load_explicit(&queue->count, memory_order_relaxed) > 0;
}

static inline uint32_t
wait_queue_count(const struct wait_queue *queue)
{
    return atomic_load_explicit(&queue->count, memory_order_relaxed);
}

/* A slot, or a caller's share, is free again. Any thread, also within the library's locks. */
static inline void
wait_queue_on_freed(struct wait_queue *queue)
{
    /* Calls that wait for a slot of this lane entered after the thread was started, and the request
     * that frees it was admitted after that, too. */
    if (atomic_load_explicit(&queue->started, memory_order_relaxed))
        (void)doorbell_ring(&queue->bell);
}

/*
 * Has a call wait that was refused, by the limits of the lane's generation. STATUS_OK: its sink
 * will answer or refuse it, and model and trace are the queue's until then. Otherwise `error` says
 * why it cannot wait, and the call is refused as it would have been.
 */
enum status wait_queue_enter(struct wait_queue *queue, struct lane *lane,
                             struct submission *submission, int64_t now_ns,
                             struct error *error) WARN_UNUSED;

/* The caller of a call that waits has gone. Harmless if it does not wait any more. */
void wait_queue_cancel(struct wait_queue *queue, uint64_t id);
