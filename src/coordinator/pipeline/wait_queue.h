/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a pipeline that wait for a slot (key `queue_wait_ms`). A call waits with the bytes
 * of its message, in order of arrival. A thread of the pipeline tries to admit it whenever a slot
 * may have become free (DESIGN-overload.md, "Waiting for a slot").
 *
 * Threads. Any thread enters and cancels calls; only the queue's thread removes, submits and
 * refuses them. The lock guards the list and the sums; nothing is called with it held.
 *
 * No wake is lost. The thread prepares its doorbell before each look at the waiting calls, if there
 * are any; a thread that frees a slot rings afterwards (shm/doorbell.h: the look finds the slot, or
 * the ring finds the sleeper). A thread that enters a call wakes the queue unconditionally and so
 * changes the bell's sequence, so a call that came after the look ends the sleep at once. While no
 * call waits the bell is not prepared, and freeing a slot costs a fence and a load.
 * tests/explore/model/wait.pml checks this.
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
    _Atomic uint32_t count; /* waiting calls [lock; read without] */
    _Atomic bool stopping;
    _Atomic bool ended;
    struct shm_doorbell bell;
    pthread_t thread;
    struct payload_builder builder; /* the thread's */
    pthread_mutex_t lock;           /* guards the members below */
    TAILQ_HEAD(, waiter) waiters;   /* in the order of arrival */
    uint64_t bytes;
    uint64_t next_id;
    struct share share; /* places by caller */
};

struct wait_queue *wait_queue_create(struct pipeline *pipeline);
/* No call waits any more, and none enters. */
void wait_queue_destroy(struct wait_queue *queue);

/* Starts the thread, before the first call may wait. May be repeated. Loop thread. */
enum status wait_queue_start(struct wait_queue *queue, struct error *error) WARN_UNUSED;
/* Refuses waiting calls from now on. */
void wait_queue_stop(struct wait_queue *queue);
/* Has every call tried again: the pipeline has changed. Any thread. */
void wait_queue_wake(struct wait_queue *queue);

/* Returns whether calls wait, so that new ones must queue behind them. */
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

/* A slot or a share is free again. Any thread, also with gRPC's locks held. */
static inline void
wait_queue_on_freed(struct wait_queue *queue)
{
    /* Calls that wait for a slot of this lane entered after the thread was started, and the request
     * that frees it was admitted after that, too. */
    if (atomic_load_explicit(&queue->started, memory_order_relaxed))
        (void)doorbell_ring(&queue->bell);
}

/*
 * Has a refused call wait, within the limits of the lane's generation. STATUS_OK: its sink answers
 * or refuses it later; until then the queue owns model and trace. Otherwise `error` says why it
 * cannot wait, and the call is refused as before.
 */
enum status wait_queue_enter(struct wait_queue *queue, struct lane *lane,
                             struct submission *submission, int64_t now_ns,
                             struct error *error) WARN_UNUSED;

/* The caller of a waiting call is gone. Harmless if the call no longer waits. */
void wait_queue_cancel(struct wait_queue *queue, uint64_t id);
