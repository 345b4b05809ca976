/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: its making, stepping, stopping and end. The library's order of ending is a trap (a
 * batch or a wake after the completion queue's shutdown aborts the process), so it is spelled out:
 *
 *   1. rpc_server_stop: the library stops listening and gives armed calls back unused.
 *   2. The user ends the calls under way; each call object waits for its last event.
 *   3. The library reports, on queue 0, that no connection is left: `stopped` is set, and the other
 *      queues are woken to see it.
 *   4. Each queue by itself, on its stepping thread: when `stopped` is set, none of its call
 *      objects is live and no wake is on its way, it forbids further wakes and shuts down.
 *   5. Its next step meets the end of the queue and returns -1, now and ever after.
 *   6. rpc_server_destroy.
 */
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "rpc/internal.h"

/* rpc_queue.wake_state, a set of these. */
enum {
    WAKE_PENDING = 1, /* a wake event was or is being put into the queue: no second one is needed */
    WAKE_FORBIDDEN = 2,
};

/* Clients that ping every 10 s, which is usual, must not be taken for a nuisance. */
enum { CLIENT_PING_INTERVAL_MS_MIN = 5000 };

/* ---- making ---- */

struct args {
    grpc_arg items[16];
    size_t count;
};

static void
args_add(struct args *args, const char *key, int value)
{
    CHECK(args->count < ARRAY_COUNT(args->items));
    grpc_arg *arg = &args->items[args->count++];
    arg->type = GRPC_ARG_INTEGER;
    arg->key = (char *)(uintptr_t)key; /* only read */
    arg->value.integer = value;
}

static void
args_add_limit(struct args *args, const char *key, size_t limit)
{
    if (limit > 0)
        args_add(args, key, rpc_limit_to_core(limit));
}

static void
args_add_server(struct args *args, const struct rpc_server_options *options)
{
    /* A second process on the same port would silently get every other connection. */
    args_add(args, GRPC_ARG_ALLOW_REUSEPORT, 0);
    args_add(args, GRPC_ARG_ENABLE_CHANNELZ, 0);
    args_add_limit(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, options->message_bytes_max);
    args_add_limit(args, GRPC_ARG_MAX_METADATA_SIZE, options->metadata_bytes_max);
    args_add_limit(args, GRPC_ARG_MAX_CONCURRENT_STREAMS, options->concurrent_streams_max);
    args_add(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    args_add(args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
             CLIENT_PING_INTERVAL_MS_MIN);
    if (options->keepalive_time_ns > 0) {
        int64_t time_ms = options->keepalive_time_ns / NS_PER_MS;
        int64_t timeout_ms = options->keepalive_timeout_ns / NS_PER_MS;
        args_add_limit(args, GRPC_ARG_KEEPALIVE_TIME_MS, time_ms > 0 ? (size_t)time_ms : 1);
        args_add_limit(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                       timeout_ms > 0 ? (size_t)timeout_ms : 1);
        /* By default the library stops pinging after two pings without data. */
        args_add(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    }
}

static void
server_create_core(struct rpc_server *server, const struct rpc_server_options *options)
{
    struct args args = {.count = 0};
    args_add_server(&args, options);
    grpc_channel_args core_args = {.num_args = args.count, .args = args.items};
    server->core = grpc_server_create(&core_args, NULL);
    CHECK(server->core != NULL);
}

static void
queue_create(struct rpc_queue *queue, struct rpc_server *server)
{
    queue->server = server;
    queue->core = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server->core, queue->core, NULL);
    queue->wake_tag = (struct rpc_tag){.event = RPC_EVENT_WAKE};
    grpc_slice method = grpc_slice_from_static_string("/wake");
    queue->wake_call =
        grpc_channel_create_call(server->wake_channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue->core,
                                 method, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    CHECK(queue->wake_call != NULL);
}

/* Hot methods first, each with its own arm; the last arm takes everything else. */
static void
arms_create(struct rpc_server *server, const struct rpc_server_options *options)
{
    server->arms = rpc_allocate(server->method_count + 1, sizeof(*server->arms));
    for (size_t i = 0; i < server->method_count; i++) {
        const struct rpc_method *method = &server->methods[i];
        CHECK(method->path[0] == '/' && method->on_message != NULL);
        CHECK(method->kind != RPC_BIDI_STREAM || method->on_half_close != NULL);
        if (!method->hot)
            continue;
        struct rpc_arm *arm = &server->arms[server->arm_count++];
        arm->method = method;
        arm->count = options->armed_calls;
        arm->registered = grpc_server_register_method(server->core, method->path, NULL,
                                                      GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
        CHECK(arm->registered != NULL);
    }
    server->arms[server->arm_count++].count = options->armed_calls_other;
}

static enum status
listeners_open(struct rpc_server *server, const struct rpc_server_options *options,
               struct error *error)
{
    for (size_t i = 0; i < options->listen_count; i++) {
        enum status status =
            rpc_listener_open(&server->listeners[i], server->core, options->listen[i], error);
        if (status != STATUS_OK)
            return status;
        server->listener_count++;
    }
    return STATUS_OK;
}

static void
server_start(struct rpc_server *server)
{
    grpc_server_start(server->core);
    for (size_t q = 0; q < server->queue_count; q++)
        for (size_t a = 0; a < server->arm_count; a++)
            for (size_t i = 0; i < server->arms[a].count; i++)
                rpc_call_arm(&server->queues[q], &server->arms[a]);
}

enum status
rpc_server_create(const struct rpc_server_options *options, struct rpc_server **out,
                  struct error *error)
{
    CHECK(options->queue_count > 0 && options->armed_calls > 0 && options->armed_calls_other > 0);
    struct rpc_server *server = rpc_allocate(1, sizeof(*server));
    server->methods = options->methods;
    server->method_count = options->method_count;
    server->context = options->context;
    server->stopped_tag = (struct rpc_tag){.event = RPC_EVENT_STOPPED};
    server->listeners = rpc_allocate(options->listen_count + 1, sizeof(*server->listeners));
    server->queues = rpc_allocate(options->queue_count, sizeof(*server->queues));
    server->queue_count = options->queue_count;
    server->wake_channel = grpc_lame_client_channel_create(NULL, GRPC_STATUS_UNAVAILABLE, "wake");
    server_create_core(server, options);
    for (size_t i = 0; i < server->queue_count; i++)
        queue_create(&server->queues[i], server);
    arms_create(server, options);
    enum status status = listeners_open(server, options, error);
    if (status == STATUS_OK) {
        server_start(server);
        *out = server;
        return STATUS_OK;
    }
    /* The library wants even a server that never started to be stopped in due form. */
    rpc_server_stop(server);
    for (size_t i = 0; i < server->queue_count; i++)
        while (rpc_server_step(server, i, TIME_NEVER_NS) >= 0)
            continue;
    rpc_server_destroy(server);
    return status;
}

int
rpc_server_port(const struct rpc_server *server, size_t index)
{
    CHECK(index < server->listener_count);
    return server->listeners[index].port;
}

/* ---- wake ---- */

void
rpc_server_wake(struct rpc_server *server, size_t queue_index)
{
    CHECK(queue_index < server->queue_count);
    struct rpc_queue *queue = &server->queues[queue_index];
    if (atomic_fetch_or_explicit(&queue->wake_state, WAKE_PENDING, memory_order_acq_rel) != 0)
        return;
    /* An empty batch is the library's one public way to put an event into a queue at once. */
    grpc_call_error error =
        grpc_call_start_batch(queue->wake_call, NULL, 0, &queue->wake_tag, NULL);
    CHECK(error == GRPC_CALL_OK);
}

/* What wakers wrote before they found WAKE_PENDING set is seen by who steps: both sides read and
 * write the word in one operation, so the one that comes later sees all that came before. */
static void
queue_on_wake(struct rpc_queue *queue)
{
    unsigned state = atomic_fetch_and_explicit(&queue->wake_state, ~(unsigned)WAKE_PENDING,
                                               memory_order_acq_rel);
    CHECK(state & WAKE_PENDING);
}

/* ---- step ---- */

static void
server_on_stopped(struct rpc_server *server)
{
    atomic_store_explicit(&server->stopped, true, memory_order_release);
    for (size_t i = 0; i < server->queue_count; i++)
        rpc_server_wake(server, i);
}

static int
queue_on_event(struct rpc_queue *queue, const grpc_event *event)
{
    const struct rpc_tag *tag = event->tag;
    if (tag->event == RPC_EVENT_WAKE) {
        queue_on_wake(queue);
        return 0;
    }
    if (tag->event == RPC_EVENT_STOPPED)
        server_on_stopped(queue->server);
    else
        rpc_call_on_event(tag->call, tag->event, event->success != 0);
    return 1;
}

/* Point 4 of the order above. A wake that is on its way will bring us here again. */
static void
queue_close_if_done(struct rpc_queue *queue)
{
    if (queue->closing || queue->live > 0 ||
        !atomic_load_explicit(&queue->server->stopped, memory_order_acquire))
        return;
    unsigned quiet = 0;
    if (!atomic_compare_exchange_strong_explicit(&queue->wake_state, &quiet, WAKE_FORBIDDEN,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    queue->closing = true;
    grpc_completion_queue_shutdown(queue->core);
}

int
rpc_server_step(struct rpc_server *server, size_t queue_index, int64_t deadline_ns)
{
    CHECK(queue_index < server->queue_count);
    struct rpc_queue *queue = &server->queues[queue_index];
    if (queue->closed)
        return -1;
    gpr_timespec deadline = rpc_time_to_core(deadline_ns);
    int handled = 0;
    for (int i = 0; i < RPC_STEP_EVENTS_MAX; i++) {
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
    queue_close_if_done(queue);
    return handled;
}

/* ---- end ---- */

void
rpc_server_stop(struct rpc_server *server)
{
    CHECK(!atomic_exchange_explicit(&server->stopping, true, memory_order_relaxed));
    grpc_server_shutdown_and_notify(server->core, server->queues[0].core, &server->stopped_tag);
}

void
rpc_server_cancel_all(struct rpc_server *server)
{
    CHECK(atomic_load_explicit(&server->stopping, memory_order_relaxed));
    grpc_server_cancel_all_calls(server->core);
}

static void
queue_destroy(struct rpc_queue *queue)
{
    CHECK(queue->closed && queue->live == 0);
    grpc_call_unref(queue->wake_call);
    grpc_completion_queue_destroy(queue->core);
    while (queue->free != NULL) {
        struct rpc_call *call = queue->free;
        queue->free = call->next_free;
        rpc_call_destroy(call);
    }
    free(queue->spans);
}

void
rpc_server_destroy(struct rpc_server *server)
{
    grpc_server_destroy(server->core);
    for (size_t i = 0; i < server->queue_count; i++)
        queue_destroy(&server->queues[i]);
    grpc_channel_destroy(server->wake_channel);
    for (size_t i = 0; i < server->listener_count; i++)
        rpc_listener_close(&server->listeners[i]);
    free(server->listeners);
    free(server->queues);
    free(server->arms);
    free(server);
}
