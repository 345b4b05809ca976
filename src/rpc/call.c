/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a call object: free -> armed -> arrived -> (message received) -> delivered to the
 * user -> ended by the user -> free after the library's last event. All transitions are on the
 * stepping thread, except "ended", which is the atomic `ended` and a batch.
 */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rpc/internal.h"

/* ---- free and armed ---- */

static struct rpc_call *
call_create(struct rpc_queue *queue)
{
    struct rpc_call *call = rpc_allocate(1, sizeof(*call));
    call->queue = queue;
    for (size_t i = 0; i < RPC_CALL_EVENTS; i++) {
        call->tags[i].event = (enum rpc_event)i;
        call->tags[i].call = call;
    }
    call->next_of_queue = queue->calls;
    queue->calls = call;
    queue->call_count++;
    return call;
}

void
rpc_call_destroy(struct rpc_call *call)
{
    rpc_stream_destroy(call->stream);
    free(call->path);
    free(call);
}

static struct rpc_call *
call_acquire(struct rpc_queue *queue)
{
    struct rpc_call *call = queue->free;
    if (call != NULL)
        queue->free = call->next_free;
    else
        call = call_create(queue);
    queue->live++;
    return call;
}

static void
call_release(struct rpc_call *call)
{
    struct rpc_queue *queue = call->queue;
    grpc_metadata_array_destroy(&call->metadata);
    if (call->arm->method == NULL)
        grpc_call_details_destroy(&call->details);
    CHECK(queue->live > 0);
    queue->live--;
    call->next_free = queue->free;
    queue->free = call;
}

/* If the user takes the call, it gets further events as if it had been delivered. */
static void
call_on_open(struct rpc_later *later)
{
    struct rpc_call *call =
        (struct rpc_call *)(void *)((char *)later - offsetof(struct rpc_call, open));
    const struct rpc_server *server = call->arm->server;
    call->delivered = server->any->on_open(server->context, call);
}

void
rpc_call_arm(struct rpc_queue *queue, const struct rpc_arm *arm)
{
    struct rpc_call *call = call_acquire(queue);
    grpc_server *server = arm->server->core;
    void *tag = &call->tags[RPC_EVENT_ARRIVED];
    call->arm = arm;
    call->method = arm->method;
    call->core = NULL;
    call->received = NULL;
    call->sending = NULL;
    call->open = (struct rpc_later){.run = call_on_open};
    call->delivered = false;
    call->closed = false;
    call->user = NULL;
    atomic_store_explicit(&call->pending, 0, memory_order_relaxed);
    atomic_store_explicit(&call->reading, false, memory_order_relaxed);
    atomic_store_explicit(&call->ended, false, memory_order_relaxed);
    atomic_store_explicit(&call->tag, 0, memory_order_relaxed);
    grpc_metadata_array_init(&call->metadata);
    grpc_call_error error;
    if (arm->method != NULL) {
        error = grpc_server_request_registered_call(server, arm->registered, &call->core,
                                                    &call->deadline, &call->metadata,
                                                    &call->received, queue->core, queue->core, tag);
    } else {
        grpc_call_details_init(&call->details);
        error = grpc_server_request_call(server, &call->core, &call->details, &call->metadata,
                                         queue->core, queue->core, tag);
    }
    CHECK(error == GRPC_CALL_OK);
}

/* ---- batches ---- */

void
rpc_call_start(grpc_call *core, const grpc_op *ops, size_t op_count, struct rpc_tag *tag)
{
    grpc_call_error error = grpc_call_start_batch(core, ops, op_count, tag, NULL);
    CHECK(error == GRPC_CALL_OK);
}

/* The user has not ended the call, or ENDED is outstanding: `pending` is not 0. */
static void
call_start_receive(struct rpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->received;
    atomic_fetch_add_explicit(&call->pending, 1, memory_order_relaxed);
    rpc_call_start(call->core, &op, 1, &call->tags[RPC_EVENT_RECEIVED]);
}

static void
call_start_close(struct rpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &call->cancelled;
    rpc_call_start(call->core, &op, 1, &call->tags[RPC_EVENT_CLOSED]);
}

/* Returns whether each message after the first comes on request. */
static bool
is_read_on_request(const struct rpc_call *call)
{
    return call->method->kind == RPC_BIDI_READ;
}

/* Such messages are received on request. At their end, or the call's, `reading` stays set:
 * there is nothing more to request. */
void
rpc_call_read(struct rpc_call *call)
{
    CHECK(is_read_on_request(call));
    if (!atomic_exchange_explicit(&call->reading, true, memory_order_acq_rel))
        call_start_receive(call);
}

/* ---- towards the user ---- */

bool
rpc_call_is_any(const struct rpc_call *call)
{
    return call->method == &call->arm->server->any_method;
}

static bool
is_stream(const struct rpc_call *call)
{
    return call->method != NULL && call->method->kind != RPC_UNARY;
}

static bool
rpc_call_has_ended(struct rpc_call *call)
{
    return atomic_load_explicit(&call->ended, memory_order_acquire);
}

static void
call_deliver(struct rpc_call *call)
{
    struct rpc_delivery delivery;
    rpc_delivery_begin(&delivery, call->queue, call->received);
    call->received = NULL;
    call->delivered = true;
    atomic_store_explicit(&call->reading, false, memory_order_release);
    call->method->on_message(call->arm->server->context, call, &delivery.message);
    rpc_delivery_end(&delivery);
}

/* The message cannot be delivered. A user that knows the call ends it after on_cancel. */
static void
call_refuse_message(struct rpc_call *call, const struct error *error)
{
    grpc_byte_buffer_destroy(call->received);
    call->received = NULL;
    if (call->delivered)
        (void)grpc_call_cancel_with_status(call->core, (grpc_status_code)error->status, error->text,
                                           NULL);
    else
        rpc_call_fail(call, error->status, error->text);
}

/* A required message is missing, or a stream's messages have ended. */
static void
call_on_no_message(struct rpc_call *call)
{
    if (call->method->kind == RPC_BIDI_STREAM || call->method->kind == RPC_BIDI_READ) {
        call->delivered = true;
        call->method->on_half_close(call->arm->server->context, call);
    } else {
        rpc_call_fail(call, STATUS_INTERNAL, "Half-closed without a request");
    }
}

/*
 * If CLOSED came first, nobody waits for the message: a user that knows the call has been notified,
 * and no other needs to be. The opposite order looks like a half-close: the library reports a lost
 * connection as the end of messages too.
 */
static void
call_on_received(struct rpc_call *call)
{
    rpc_later_drop(&call->open);
    bool lost = call->closed ||
                (call->received == NULL && grpc_call_failed_before_recv_message(call->core));
    if (lost || rpc_call_has_ended(call)) {
        grpc_byte_buffer_destroy(call->received);
        call->received = NULL;
        if (!call->delivered && !rpc_call_has_ended(call))
            rpc_call_fail(call, STATUS_CANCELLED, NULL);
        return;
    }
    if (call->received == NULL) {
        call_on_no_message(call);
        return;
    }
    struct error error;
    error_clear(&error);
    if (rpc_inflate(&call->received, call->arm->server->message_bytes_max, &error) != STATUS_OK) {
        call_refuse_message(call, &error);
        return;
    }
    call_deliver(call);
    if (call->method->kind == RPC_BIDI_STREAM && !rpc_call_has_ended(call))
        call_start_receive(call);
}

static void
call_on_sent(struct rpc_call *call, bool ok)
{
    size_t waiting;
    rpc_watch_sent(call);
    bool message = rpc_stream_on_sent(call->stream, &waiting);
    const struct rpc_server *server = call->arm->server;
    void (*on_sent)(void *context, uint64_t tag, size_t waiting) = NULL;
    if (rpc_call_is_any(call))
        on_sent = server->any->on_sent;
    else if (call->method->kind == RPC_SERVER_STREAM)
        on_sent = server->on_server_stream_sent;
    else if (is_read_on_request(call))
        on_sent = server->on_sent;
    if (!message || !ok || on_sent == NULL || call->closed || rpc_call_has_ended(call))
        return;
    on_sent(server->context, atomic_load_explicit(&call->tag, memory_order_relaxed), waiting);
}

static void
call_on_closed(struct rpc_call *call)
{
    call->closed = true;
    rpc_later_drop(&call->open);
    if (is_stream(call))
        rpc_stream_drop(call->stream);
    if (!call->delivered || rpc_call_has_ended(call) || call->method->on_cancel == NULL)
        return;
    uint64_t tag = atomic_load_explicit(&call->tag, memory_order_relaxed);
    call->method->on_cancel(call->arm->server->context, tag);
}

/* ---- events ---- */

static const struct rpc_method *
method_find(const struct rpc_server *server, grpc_slice path)
{
    for (size_t i = 0; i < server->method_count; i++)
        if (grpc_slice_str_cmp(path, server->methods[i].path) == 0)
            return &server->methods[i];
    return NULL;
}

static void
call_refuse_unknown(struct rpc_call *call)
{
    const struct rpc_server *server = call->arm->server;
    char path[200];
    char text[256];
    snprintf(path, sizeof(path), "%.*s", (int)GRPC_SLICE_LENGTH(call->details.method),
             (const char *)GRPC_SLICE_START_PTR(call->details.method));
    const char *reported =
        server->on_unknown == NULL ? NULL : server->on_unknown(server->context, path);
    snprintf(text, sizeof(text), "unknown method %s", path);
    rpc_call_fail(call, STATUS_UNIMPLEMENTED, reported != NULL ? reported : text);
}

/* The library's text is not terminated; a zero byte in it, which no method has, ends it. */
static void
call_keep_path(struct rpc_call *call)
{
    struct wire_span path = rpc_span_of(&call->details.method);
    if (path.bytes + 1 > call->path_room)
        call->path = rpc_grow(call->path, &call->path_room, path.bytes + 1, 1);
    memcpy(call->path, path.data, path.bytes);
    call->path[path.bytes] = '\0';
}

/* False if nobody serves the method. */
static bool
call_find_method(struct rpc_call *call)
{
    const struct rpc_server *server = call->arm->server;
    call->deadline = call->details.deadline;
    call->method = method_find(server, call->details.method);
    if (call->method != NULL && is_read_on_request(call) && server->any != NULL &&
        server->is_for_any != NULL && server->is_for_any(server->context, call))
        call->method = NULL;
    if (call->method == NULL && server->any != NULL) {
        call->method = &server->any_method;
        call_keep_path(call);
    }
    return call->method != NULL;
}

static void
call_begin_stream(struct rpc_call *call)
{
    if (call->stream == NULL) {
        call->stream = rpc_stream_create();
        call->stream->sent_tag = &call->tags[RPC_EVENT_SENT];
        call->stream->ended_tag = &call->tags[RPC_EVENT_ENDED];
    }
    rpc_stream_begin(call->stream, call->core);
    /* A stream's caller learns at once that it is open; other calls may be unary. */
    if (!rpc_call_is_any(call) && call->method->kind != RPC_SERVER_STREAM)
        rpc_stream_open(call->stream, (struct rpc_headers){0}, NULL, RPC_STREAM_MORE);
}

static void
call_on_arrived(struct rpc_call *call, bool ok)
{
    struct rpc_server *server = call->arm->server;
    if (!ok) {
        call_release(call);
        return;
    }
    atomic_fetch_add_explicit(&server->arrived, 1, memory_order_relaxed);
    if (!atomic_load_explicit(&server->stopping, memory_order_relaxed))
        rpc_call_arm(call->queue, call->arm);
    atomic_store_explicit(&call->pending, 2, memory_order_relaxed); /* ENDED and CLOSED */
    call_start_close(call);
    if (rpc_call_refuse_late(call))
        return;
    if (call->method == NULL && !call_find_method(call)) {
        call_refuse_unknown(call);
        return;
    }
    if (is_stream(call))
        call_begin_stream(call);
    if (call->arm->method != NULL) {
        call_on_received(call);
        return;
    }
    if (rpc_call_is_any(call) && server->any->on_open != NULL)
        rpc_queue_later(call->queue, &call->open);
    atomic_store_explicit(&call->reading, true, memory_order_relaxed);
    call_start_receive(call);
}

static void
call_on_last(struct rpc_call *call)
{
    /* Pairs with the end on any thread: `sending` is ours now. */
    CHECK(rpc_call_has_ended(call));
    rpc_watch_sent(call);
    grpc_byte_buffer_destroy(call->sending);
    if (is_stream(call))
        rpc_stream_end(call->stream);
    grpc_call_unref(call->core);
    atomic_fetch_add_explicit(&call->arm->server->released, 1, memory_order_relaxed);
    call_release(call);
}

void
rpc_call_on_event(struct rpc_call *call, enum rpc_event event, enum rpc_success success)
{
    if (event == RPC_EVENT_ARRIVED) {
        call_on_arrived(call, success == RPC_DONE);
        return;
    }
    if (event == RPC_EVENT_SENT) {
        call_on_sent(call, success == RPC_DONE);
        return;
    }
    if (event == RPC_EVENT_RECEIVED)
        call_on_received(call);
    else if (event == RPC_EVENT_CLOSED)
        call_on_closed(call);
    if (atomic_fetch_sub_explicit(&call->pending, 1, memory_order_acq_rel) == 1)
        call_on_last(call);
}

/* ---- the user's side ---- */

const char *
rpc_call_method(const struct rpc_call *call)
{
    return call->method->path != NULL ? call->method->path : call->path;
}

bool
rpc_call_server_has(const struct rpc_call *call, const char *service)
{
    const struct rpc_server *server = call->arm->server;
    size_t bytes = strlen(service);
    for (size_t i = 0; i < server->method_count; i++) {
        const char *path = server->methods[i].path + 1;
        if (strncmp(path, service, bytes) == 0 && path[bytes] == '/')
            return true;
    }
    return false;
}

int64_t
rpc_call_deadline_ns(const struct rpc_call *call)
{
    return rpc_time_from_core(call->deadline);
}

bool
rpc_call_metadata_next(const struct rpc_call *call, const char *key, size_t *position,
                       struct wire_span *value)
{
    while (*position < call->metadata.count) {
        const grpc_metadata *entry = &call->metadata.metadata[(*position)++];
        if (grpc_slice_str_cmp(entry->key, key) == 0) {
            *value = (struct wire_span){GRPC_SLICE_START_PTR(entry->value),
                                        GRPC_SLICE_LENGTH(entry->value)};
            return true;
        }
    }
    return false;
}

bool
rpc_call_metadata_walk(const struct rpc_call *call, size_t *position, struct rpc_metadata *entry)
{
    if (*position >= call->metadata.count)
        return false;
    const grpc_metadata *at = &call->metadata.metadata[(*position)++];
    *entry = (struct rpc_metadata){rpc_span_of(&at->key), rpc_span_of(&at->value)};
    return true;
}

size_t
rpc_call_peer(const struct rpc_call *call, char *address, size_t room)
{
    char *peer = grpc_call_get_peer(call->core);
    if (peer == NULL)
        return 0;
    const char *port = strncmp(peer, "unix", 4) == 0 ? NULL : strrchr(peer, ':');
    size_t length = port != NULL ? (size_t)(port - peer) : strlen(peer);
    if (length > room)
        length = room;
    memcpy(address, peer, length); // NOLINT(bugprone-not-null-terminated-result): bytes, no string
    gpr_free(peer);
    return length;
}

void
rpc_call_set_tag(struct rpc_call *call, uint64_t tag)
{
    atomic_store_explicit(&call->tag, tag, memory_order_relaxed);
}

void
rpc_call_set_user(struct rpc_call *call, void *user)
{
    call->user = user;
}

void *
rpc_call_user(const struct rpc_call *call)
{
    return call->user;
}
