/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: creation, stop and end. The library's order of ending is a trap (a batch or a wake
 * after the completion queue's shutdown aborts the process), so here it is:
 *
 *   1. rpc_server_stop: the library stops listening and returns armed calls unused.
 *   2. The user ends the calls under way; each call object waits for its last event.
 *   3. The library reports, on queue 0, that no connection is left: `stopped` is set in all queues,
 *      and they are woken to see it.
 *   4. Each queue, on its stepping thread: when `stopped` is set, no call object is live, no client
 *      is bound to it and no wake is under way, it forbids further wakes and shuts down (queue.c).
 *   5. Its next step reaches the end of the queue and returns -1, as all later ones do.
 *   6. rpc_server_destroy.
 *
 * A server may use another's queue. Until it is stopped, its live armed calls keep that queue from
 * ending; then the library does, which has yet to put STOPPED into it.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "rpc/internal.h"

/* A name in the library's style for connections that are handed to it. */
#define EXTERNAL "external:shoal"

/* Clients that ping every 10 s, which is usual, must not be refused. */
enum { CLIENT_PING_INTERVAL_MS_MIN = 5000 };

/* ---- making ---- */

static void
args_add_server(struct rpc_args *args, const struct rpc_server_options *options)
{
    if (options->compression == RPC_COMPRESSION_OFF)
        rpc_args_add(args, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                     1 << GRPC_COMPRESS_NONE);
    rpc_args_add(args, GRPC_ARG_ENABLE_CHANNELZ, 1); /* flood.c reads its counts */
    rpc_args_add(args, GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0);
    rpc_args_add(args, GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, RPC_READ_BYTES_MAX);
    rpc_args_add_limit(args, GRPC_ARG_MAX_METADATA_SIZE, options->metadata_bytes_max);
    rpc_args_add_limit(args, GRPC_ARG_MAX_CONCURRENT_STREAMS, options->concurrent_streams_max);
    if (options->any != NULL) /* all others read at once */
        rpc_args_add_window(args, options->stream_window_bytes);
    rpc_args_add(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    rpc_args_add(args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                 CLIENT_PING_INTERVAL_MS_MIN);
    rpc_args_add_keepalive(args, options->keepalive_time_ns, options->keepalive_timeout_ns);
    rpc_args_add(args, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, RPC_HANDSHAKE_MS);
}

static void
server_create_core(struct rpc_server *server, const struct rpc_server_options *options)
{
    struct rpc_args args = {.count = 0};
    args_add_server(&args, options);
    rpc_args_add_pointer(&args, EXTERNAL, &server->handler);
    server->message_bytes_max = rpc_args_add_message(&args, options->message_bytes_max);
    grpc_channel_args core_args = {.num_args = args.count, .args = args.items};
    server->core =
        rpc_flood_server_create(&core_args, options->concurrent_streams_max, &server->flood);
}

/* Hot methods first, each with its own arm; the last arm takes all others. */
static void
arms_create(struct rpc_server *server, const struct rpc_server_options *options)
{
    server->arms = rpc_allocate(server->method_count + 1, sizeof(*server->arms));
    for (size_t i = 0; i < server->method_count; i++) {
        const struct rpc_method *method = &server->methods[i];
        CHECK(method->path[0] == '/' && method->on_message != NULL);
        CHECK((method->kind != RPC_BIDI_STREAM && method->kind != RPC_BIDI_READ) ||
              method->on_half_close != NULL);
        if (!method->hot)
            continue;
        struct rpc_arm *arm = &server->arms[server->arm_count++];
        arm->server = server;
        arm->method = method;
        arm->count = options->armed_calls;
        arm->registered = grpc_server_register_method(server->core, method->path, NULL,
                                                      GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
        CHECK(arm->registered != NULL);
    }
    struct rpc_arm *other = &server->arms[server->arm_count++];
    other->server = server;
    other->count = options->armed_calls_other;
}

static void
any_create(struct rpc_server *server, const struct rpc_any *any)
{
    if (any == NULL)
        return;
    CHECK(any->on_message != NULL && any->on_half_close != NULL);
    server->any = any;
    server->any_method = (struct rpc_method){.kind = RPC_BIDI_READ,
                                             .on_message = any->on_message,
                                             .on_half_close = any->on_half_close,
                                             .on_cancel = any->on_cancel};
}

/* The library's one listener takes the connections handed to it; accept.c. */
static enum status
listeners_open(struct rpc_server *server, const struct rpc_server_options *options,
               struct error *error)
{
    enum status status = STATUS_OK;
    for (size_t i = 0; i < options->listen_count && status == STATUS_OK; i++) {
        server->listeners[i].sockets = options->sockets;
        status = rpc_listener_open(&server->listeners[i], options->listen[i], options->socket_mode,
                                   error);
        server->listener_count += status == STATUS_OK;
        if (status == STATUS_OK && options->name != NULL)
            log_info("grpc_listening address=\"%s\" port=%d service=%s tls=%s", options->listen[i],
                     server->listeners[i].port, options->name, options->tls != NULL ? "yes" : "no");
    }
    if (status != STATUS_OK || server->listener_count == 0)
        return status;
    server->tls.tls = options->tls;
    grpc_server_credentials *credentials = rpc_tls_server(&server->tls);
    (void)grpc_server_add_http2_port(server->core, EXTERNAL, credentials); /* it has no port */
    grpc_server_credentials_release(credentials);
    CHECK(server->handler != NULL);
    return STATUS_OK;
}

static void
server_start(struct rpc_server *server)
{
    grpc_server_start(server->core);
    for (size_t q = 0; q < server->queue_count; q++)
        for (size_t a = 0; a < server->arm_count; a++)
            for (size_t i = 0; i < server->arms[a].count; i++)
                rpc_call_arm(rpc_server_queue(server, q), &server->arms[a]);
}

static void
queues_create(struct rpc_server *server, const struct rpc_server_options *options)
{
    server->queue_count = options->queue_count;
    server->host = options->queue;
    if (server->host == NULL)
        server->queues = rpc_allocate(options->queue_count, sizeof(*server->queues));
    for (size_t i = 0; i < server->queue_count; i++) {
        if (server->host == NULL)
            rpc_queue_init(&server->queues[i], server);
        grpc_server_register_completion_queue(server->core, rpc_server_queue(server, i)->core,
                                              NULL);
    }
}

/* The library must be shut down properly even if the server never started. If it uses another's
 * queue, that queue's stepping thread handles the events. */
static void
server_give_up(struct rpc_server *server)
{
    server->has_failed = true;
    rpc_server_stop(server);
    if (server->host != NULL)
        return;
    for (size_t i = 0; i < server->queue_count; i++)
        while (rpc_server_step(server, i, TIME_NEVER_NS) >= 0)
            continue;
    rpc_server_destroy(server);
}

enum status
rpc_server_create(const struct rpc_server_options *options, struct rpc_server **out,
                  struct error *error)
{
    CHECK(options->queue_count > 0 && options->armed_calls > 0 && options->armed_calls_other > 0);
    CHECK(options->queue == NULL || options->queue_count == 1);
    enum status status = rpc_tls_check_server(options->tls, error);
    if (status != STATUS_OK)
        return status;
    struct rpc_server *server = rpc_allocate(1, sizeof(*server));
    server->methods = options->methods;
    server->method_count = options->method_count;
    server->on_sent = options->on_sent;
    server->on_server_stream_sent = options->on_server_stream_sent;
    server->is_for_any = options->is_for_any;
    server->on_unknown = options->on_unknown;
    server->context = options->context;
    server->send_timeout_ns = options->send_timeout_ns;
    any_create(server, options->any);
    server->stopped_tag = (struct rpc_tag){.event = RPC_EVENT_STOPPED, .server = server};
    server->listeners = rpc_allocate(options->listen_count + 1, sizeof(*server->listeners));
    server_create_core(server, options);
    queues_create(server, options);
    arms_create(server, options);
    status = listeners_open(server, options, error);
    if (status != STATUS_OK) {
        server_give_up(server);
        return status;
    }
    server_start(server);
    if (server->listener_count > 0) {
        server->acceptor = rpc_acceptor_create(&(struct rpc_acceptor_options){
            .server = server,
            .handler = server->handler,
            .listeners = server->listeners,
            .listener_count = server->listener_count,
            .connections_max = options->connections_max,
            .connections_per_peer_max = options->connections_per_peer_max,
        });
        if (options->accept == RPC_ACCEPT_AT_ONCE)
            rpc_acceptor_open(server->acceptor);
    }
    *out = server;
    return STATUS_OK;
}

int
rpc_server_port(const struct rpc_server *server, size_t index)
{
    CHECK(index < server->listener_count);
    return server->listeners[index].port;
}

void
rpc_server_relieve(struct rpc_server *server)
{
    for (size_t i = 0; i < server->queue_count; i++) {
        struct rpc_queue *queue = rpc_server_queue(server, i);
        if (!atomic_load_explicit(&queue->wants_relief, memory_order_relaxed))
            atomic_store_explicit(&queue->wants_relief, true, memory_order_relaxed);
    }
}

struct rpc_figures
rpc_server_figures(const struct rpc_server *server)
{
    if (server->acceptor == NULL)
        return (struct rpc_figures){.is_accepting = true};
    return rpc_acceptor_figures(server->acceptor);
}

/* ---- its queues ---- */

struct rpc_queue *
rpc_server_queue(struct rpc_server *server, size_t queue_index)
{
    CHECK(queue_index < server->queue_count);
    return server->host != NULL ? server->host : &server->queues[queue_index];
}

void
rpc_server_wake(struct rpc_server *server, size_t queue_index)
{
    rpc_queue_wake(rpc_server_queue(server, queue_index));
}

int
rpc_server_step(struct rpc_server *server, size_t queue_index, int64_t deadline_ns)
{
    return rpc_queue_step(rpc_server_queue(server, queue_index), deadline_ns);
}

/* ---- end ---- */

void
rpc_server_stop(struct rpc_server *server)
{
    CHECK(!atomic_exchange_explicit(&server->stopping, true, memory_order_relaxed));
    if (server->acceptor != NULL)
        rpc_acceptor_stop(server->acceptor);
    grpc_server_shutdown_and_notify(server->core, rpc_server_queue(server, 0)->core,
                                    &server->stopped_tag);
}

void
rpc_server_on_stopped(struct rpc_server *server)
{
    if (server->acceptor != NULL)
        rpc_acceptor_forget_queues(server->acceptor);
    for (size_t i = 0; server->host == NULL && i < server->queue_count; i++) {
        atomic_store_explicit(&server->queues[i].stopped, true, memory_order_release);
        rpc_queue_wake(&server->queues[i]);
    }
    if (server->host != NULL && server->has_failed)
        rpc_server_destroy(server);
}

void
rpc_server_cancel_all(struct rpc_server *server)
{
    CHECK(atomic_load_explicit(&server->stopping, memory_order_relaxed));
    grpc_server_cancel_all_calls(server->core);
}

void
rpc_server_destroy(struct rpc_server *server)
{
    grpc_server_destroy(server->core);
    if (server->acceptor != NULL)
        rpc_acceptor_destroy(server->acceptor);
    for (size_t i = 0; server->host == NULL && i < server->queue_count; i++)
        rpc_queue_fini(&server->queues[i]);
    for (size_t i = 0; i < server->listener_count; i++)
        rpc_listener_close(&server->listeners[i]);
    rpc_flood_destroy(server->flood);
    free(server->listeners);
    free(server->queues);
    free(server->arms);
    free(server);
}
