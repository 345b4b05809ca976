/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client: its channel, the state of its connection, its end.
 *
 * The connection's state is watched all the time. So a call to a dead server fails without a
 * time-out, and the stepping thread reads from a connection without calls: otherwise the library
 * would check it only every few seconds.
 *
 * The end runs on the stepping thread, so that restarting the watch and destroying the channel
 * cannot race:
 *
 *   1. rpc_client_destroy, on any thread, adds the client to its queue's list and wakes the queue.
 *   2. Calls under way are cancelled and end normally.
 *   3. After the last of them the channel is destroyed, which ends the watch.
 *   4. At the last WATCHED the client is freed, and its queue may end.
 */
#include <limits.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "rpc/internal.h"

/* ---- making ---- */

static grpc_channel *
channel_create(const struct rpc_client_options *options, size_t *message_bytes_max)
{
    struct rpc_args args = {.count = 0};
    int64_t connect_ms = options->connect_timeout_ns / NS_PER_MS;
    rpc_args_add_connection(&args, connect_ms > 0 ? rpc_limit_to_core((size_t)connect_ms)
                                                  : RPC_CONNECT_MS);
    /* A connection without calls stays open: its end must mean that the server ended it. */
    rpc_args_add(&args, GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, INT_MAX);
    /* Upper layers decide about retries. */
    rpc_args_add(&args, GRPC_ARG_ENABLE_RETRIES, 0);
    *message_bytes_max = rpc_args_add_message(&args, options->message_bytes_max);
    rpc_args_add_limit(&args, GRPC_ARG_MAX_METADATA_SIZE, options->metadata_bytes_max);
    rpc_args_add_window(&args, options->stream_window_bytes);
    rpc_args_add(&args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    rpc_args_add_keepalive(&args, options->keepalive_time_ns, options->keepalive_timeout_ns);
    rpc_args_add_peer_name(&args, options->tls);
    grpc_channel_args core_args = {.num_args = args.count, .args = args.items};
    grpc_channel_credentials *credentials = rpc_tls_client(options->tls);
    grpc_channel *channel = grpc_channel_create(options->target, credentials, &core_args);
    grpc_channel_credentials_release(credentials);
    CHECK(channel != NULL); /* an invalid target fails its calls instead */
    return channel;
}

static enum rpc_client_state
state_from_core(grpc_connectivity_state state)
{
    switch (state) {
    case GRPC_CHANNEL_CONNECTING: return RPC_CLIENT_CONNECTING;
    case GRPC_CHANNEL_READY: return RPC_CLIENT_READY;
    case GRPC_CHANNEL_TRANSIENT_FAILURE:
    case GRPC_CHANNEL_SHUTDOWN: return RPC_CLIENT_FAILING;
    default: return RPC_CLIENT_IDLE;
    }
}

static void
client_watch(struct rpc_client *client, grpc_connectivity_state state)
{
    client->watched = true;
    atomic_store_explicit(&client->state, (int)state_from_core(state), memory_order_relaxed);
    rpc_queue_hand_over(client->queue);
    grpc_channel_watch_connectivity_state(client->core, state, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                          client->queue->core, &client->watch_tag);
}

enum status
rpc_client_create(const struct rpc_client_options *options, struct rpc_client **out,
                  struct error *error)
{
    if (options->target[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "empty address");
    struct rpc_client *client = rpc_allocate(1, sizeof(*client));
    client->queue = options->queue;
    client->watch_tag.event = RPC_EVENT_WATCHED;
    client->watch_tag.client = client;
    client->on_state = options->on_state;
    client->context = options->context;
    CHECK(pthread_mutex_init(&client->lock, NULL) == 0);
    atomic_fetch_add_explicit(&client->queue->client_count, 1, memory_order_relaxed);
    client->core = channel_create(options, &client->message_bytes_max);
    *out = client;
    /* A channel with an invalid target fails from the start and forever: a watch of it would never
     * end. */
    grpc_connectivity_state state = grpc_channel_check_connectivity_state(client->core, 0);
    if (state == GRPC_CHANNEL_IDLE)
        client_watch(client, state);
    else
        atomic_store_explicit(&client->state, RPC_CLIENT_FAILING, memory_order_relaxed);
    return STATUS_OK;
}

/* ---- its connection ---- */

enum rpc_client_state
rpc_client_state(const struct rpc_client *client)
{
    return (enum rpc_client_state)atomic_load_explicit(&client->state, memory_order_relaxed);
}

void
rpc_client_connect(struct rpc_client *client)
{
    grpc_channel_check_connectivity_state(client->core, 1);
}

/* ---- its end ---- */

void
rpc_client_destroy(struct rpc_client *client)
{
    if (client == NULL)
        return;
    struct rpc_queue *queue = client->queue;
    pthread_mutex_lock(&queue->lock);
    client->leaving = queue->leaving;
    queue->leaving = client;
    pthread_mutex_unlock(&queue->lock);
    rpc_queue_wake(queue);
}

static void
client_free(struct rpc_client *client)
{
    struct rpc_queue *queue = client->queue;
    pthread_mutex_destroy(&client->lock);
    free(client);
    atomic_fetch_sub_explicit(&queue->client_count, 1, memory_order_release);
}

/* Step 3 of the order above; step 4 if there is no watch. */
static void
client_end_if_done(struct rpc_client *client)
{
    if (!client->closing || client->calls != NULL || client->core == NULL)
        return;
    grpc_channel_destroy(client->core);
    client->core = NULL;
    if (!client->watched)
        client_free(client);
}

void
rpc_client_close(struct rpc_client *client)
{
    /* No more calls start, and calls leave the list on this thread only. */
    client->closing = true;
    for (struct rpc_client_call *call = client->calls; call != NULL;
         call = rpc_client_call_next(call))
        rpc_client_cancel(call);
    client_end_if_done(client);
}

void
rpc_client_on_call_gone(struct rpc_client *client)
{
    client_end_if_done(client);
}

void
rpc_client_on_watched(struct rpc_client *client)
{
    client->watched = false;
    if (client->core == NULL) {
        client_free(client);
        return;
    }
    client_watch(client, grpc_channel_check_connectivity_state(client->core, 0));
    if (client->on_state != NULL && !client->closing)
        client->on_state(client->context);
}
