/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion queues: their events, wakes and end. A queue ends when nothing is left that could put
 * an event into it; server.c has the order.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "rpc/internal.h"

/* Flags of rpc_queue.wake_state. */
enum {
    WAKE_PENDING = 1, /* a wake event was or is being put into the queue: one is enough */
    WAKE_FORBIDDEN = 2,
};

enum { TIMERS_A_STEP = 16 };

void
rpc_queue_init(struct rpc_queue *queue, struct rpc_server *server)
{
    queue->server = server;
    queue->core = grpc_completion_queue_create_for_next(NULL);
    queue->wake_tag = (struct rpc_tag){.event = RPC_EVENT_WAKE};
    queue->wake_channel = grpc_lame_client_channel_create(NULL, GRPC_STATUS_UNAVAILABLE, "wake");
    grpc_slice method = grpc_slice_from_static_string("/wake");
    queue->wake_call =
        grpc_channel_create_call(queue->wake_channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue->core,
                                 method, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    CHECK(queue->wake_call != NULL);
    CHECK(pthread_mutex_init(&queue->lock, NULL) == 0);
}

/*
 * The library's queue locks order this too, but it does not promise that. Costs one atomic
 * read-modify-write for each call of a client; the other side only reads.
 */
void
rpc_queue_hand_over(struct rpc_queue *queue)
{
    atomic_fetch_add_explicit(&queue->handed_over, 1, memory_order_release);
}

/* ---- wake ---- */

void
rpc_queue_wake(struct rpc_queue *queue)
{
    if (atomic_fetch_or_explicit(&queue->wake_state, WAKE_PENDING, memory_order_acq_rel) != 0)
        return;
    /* An empty batch is the library's only public way to put an event into a queue at once. */
    grpc_call_error error =
        grpc_call_start_batch(queue->wake_call, NULL, 0, &queue->wake_tag, NULL);
    CHECK(error == GRPC_CALL_OK);
}

void
rpc_queue_post(struct rpc_queue *queue, struct rpc_post *post)
{
    pthread_mutex_lock(&queue->lock);
    bool waits = post->waits;
    if (!waits) {
        post->waits = true;
        post->next = queue->posts;
        queue->posts = post;
    }
    pthread_mutex_unlock(&queue->lock);
    if (!waits)
        rpc_queue_wake(queue);
}

static struct rpc_post *
post_take(struct rpc_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct rpc_post *post = queue->posts;
    if (post != NULL) {
        queue->posts = post->next;
        post->waits = false;
    }
    pthread_mutex_unlock(&queue->lock);
    return post;
}

static void
run_posts(struct rpc_queue *queue)
{
    struct rpc_post *post;
    while ((post = post_take(queue)) != NULL)
        post->run(post);
}

static void
close_leaving_clients(struct rpc_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct rpc_client *client = queue->leaving;
    queue->leaving = NULL;
    pthread_mutex_unlock(&queue->lock);
    while (client != NULL) {
        struct rpc_client *next = client->leaving;
        rpc_client_close(client);
        client = next;
    }
}

/* The stepping thread sees all writes of wakers that found WAKE_PENDING set: both sides read and
 * write the word in one operation, so the later one sees everything before the earlier one. */
static void
queue_on_wake(struct rpc_queue *queue)
{
    unsigned state = atomic_fetch_and_explicit(&queue->wake_state, ~(unsigned)WAKE_PENDING,
                                               memory_order_acq_rel);
    CHECK(state & WAKE_PENDING);
    if (atomic_load_explicit(&queue->client_count, memory_order_relaxed) > 0)
        close_leaving_clients(queue);
    run_posts(queue);
}

/* ---- the end of a step ---- */

static void
later_note(struct rpc_later **list, struct rpc_later *later)
{
    later->next = *list;
    later->link = list;
    if (later->next != NULL)
        later->next->link = &later->next;
    *list = later;
}

void
rpc_queue_later(struct rpc_queue *queue, struct rpc_later *later)
{
    CHECK(later->link == NULL);
    later_note(&queue->later, later);
}

void
rpc_later_drop(struct rpc_later *later)
{
    if (later->link == NULL)
        return;
    *later->link = later->next;
    if (later->next != NULL)
        later->next->link = later->link;
    later->link = NULL;
}

static void
later_run(struct rpc_later **list)
{
    while (*list != NULL) {
        struct rpc_later *later = *list;
        rpc_later_drop(later);
        later->run(later);
    }
}

/* After a full step more events may be pending, so what was queued in it waits for one more step,
 * and no longer, however many events there are. */
static void
queue_end_step(struct rpc_queue *queue, bool is_full)
{
    later_run(&queue->later_still);
    if (!is_full) {
        later_run(&queue->later);
        return;
    }
    while (queue->later != NULL) {
        struct rpc_later *later = queue->later;
        rpc_later_drop(later);
        later_note(&queue->later_still, later);
    }
}

/* ---- timers ---- */

void
rpc_timer_drop(struct rpc_queue *queue, struct rpc_timer *timer)
{
    if (!timer->is_set)
        return;
    struct rpc_timer **at = &queue->timers;
    while (*at != timer)
        at = &(*at)->next;
    *at = timer->next;
    timer->is_set = false;
}

void
rpc_queue_at(struct rpc_queue *queue, struct rpc_timer *timer, int64_t at_ns)
{
    rpc_timer_drop(queue, timer);
    struct rpc_timer **at = &queue->timers;
    while (*at != NULL && (*at)->at_ns <= at_ns)
        at = &(*at)->next;
    *timer = (struct rpc_timer){.run = timer->run, .next = *at, .at_ns = at_ns, .is_set = true};
    *at = timer;
}

/* A timer that sets itself for the past does not keep the step from ending. */
static void
run_timers(struct rpc_queue *queue)
{
    int64_t now_ns = clock_now_ns();
    for (size_t left = TIMERS_A_STEP; queue->timers != NULL && left > 0; left--) {
        struct rpc_timer *timer = queue->timers;
        if (timer->at_ns > now_ns)
            return;
        rpc_timer_drop(queue, timer);
        timer->run(timer);
    }
}

/* ---- step ---- */

static int
queue_on_event(struct rpc_queue *queue, const grpc_event *event)
{
    const struct rpc_tag *tag = event->tag;
    enum rpc_success success = event->success != 0 ? RPC_DONE : RPC_FAILED;
    atomic_load_explicit(&queue->handed_over, memory_order_acquire); /* pairs with hand_over */
    switch (tag->event) {
    case RPC_EVENT_WAKE: queue_on_wake(queue); return 0;
    case RPC_EVENT_STOPPED: rpc_server_on_stopped(tag->server); return 1;
    case RPC_EVENT_WATCHED: rpc_client_on_watched(tag->client); return 1;
    case RPC_EVENT_ARRIVED:
    case RPC_EVENT_RECEIVED:
    case RPC_EVENT_SENT:
    case RPC_EVENT_ENDED:
    case RPC_EVENT_CLOSED: rpc_call_on_event(tag->call, tag->event, success); return 1;
    default: rpc_client_call_on_event(tag->made, tag->event, success); return 1;
    }
}

/* Step 4 of the order in server.c. A wake under way will call this again. */
static void
queue_close_if_done(struct rpc_queue *queue)
{
    if (queue->closing || queue->live > 0 ||
        !atomic_load_explicit(&queue->stopped, memory_order_acquire) ||
        atomic_load_explicit(&queue->client_count, memory_order_acquire) > 0)
        return;
    unsigned quiet = 0;
    if (!atomic_compare_exchange_strong_explicit(&queue->wake_state, &quiet, WAKE_FORBIDDEN,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    queue->closing = true;
    grpc_completion_queue_shutdown(queue->core);
}

int
rpc_queue_step(struct rpc_queue *queue, int64_t deadline_ns)
{
    if (queue->closed)
        return -1;
    if (queue->timers != NULL && queue->timers->at_ns < deadline_ns)
        deadline_ns = queue->timers->at_ns;
    gpr_timespec deadline = rpc_time_to_core(deadline_ns);
    int handled = 0;
    int i = 0;
    for (; i < RPC_STEP_EVENTS_MAX; i++) {
        grpc_event event = grpc_completion_queue_next(queue->core, deadline, NULL);
        if (event.type == GRPC_QUEUE_TIMEOUT)
            break;
        if (event.type == GRPC_QUEUE_SHUTDOWN) {
            queue->closed = true;
            return -1;
        }
        handled += queue_on_event(queue, &event);
        deadline = gpr_inf_past(GPR_CLOCK_MONOTONIC);
    }
    if (atomic_load_explicit(&queue->is_watch_due, memory_order_relaxed) &&
        atomic_exchange_explicit(&queue->is_watch_due, false, memory_order_acquire))
        rpc_watch_calls(queue);
    if (queue->later != NULL || queue->later_still != NULL)
        queue_end_step(queue, i == RPC_STEP_EVENTS_MAX);
    if (queue->timers != NULL)
        run_timers(queue);
    queue_close_if_done(queue);
    return handled;
}

/* ---- end ---- */

void
rpc_queue_fini(struct rpc_queue *queue)
{
    CHECK(queue->closed && queue->live == 0);
    grpc_call_unref(queue->wake_call);
    grpc_channel_destroy(queue->wake_channel);
    grpc_completion_queue_destroy(queue->core);
    while (queue->free != NULL) {
        struct rpc_call *call = queue->free;
        queue->free = call->next_free;
        rpc_call_destroy(call);
    }
    pthread_mutex_destroy(&queue->lock);
    free(queue->spans);
    free(queue->entries);
}

/* ---- queues without a server ---- */

struct rpc_queue *
rpc_queue_create(void)
{
    struct rpc_queue *queue = rpc_allocate(1, sizeof(*queue));
    rpc_queue_init(queue, NULL);
    return queue;
}

void
rpc_queue_destroy(struct rpc_queue *queue)
{
    CHECK(queue->server == NULL);
    atomic_store_explicit(&queue->stopped, true, memory_order_release);
    rpc_queue_wake(queue);
    while (rpc_queue_step(queue, INT64_MAX) >= 0)
        continue;
    rpc_queue_fini(queue);
    free(queue);
}
