/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a call object: free -> armed -> arrived -> (its message received) -> delivered to the
 * user -> ended by the user -> free, when the last event of the library has come. All transitions
 * are on the stepping thread, but for "ended", which is the atomic `ended` and a batch.
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
    for (size_t i = 0; i < ARRAY_COUNT(call->tags); i++)
        call->tags[i] = (struct rpc_tag){.event = (enum rpc_event)i, .call = call};
    queue->call_count++;
    return call;
}

void
rpc_call_destroy(struct rpc_call *call)
{
    rpc_stream_destroy(call->stream);
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

void
rpc_call_arm(struct rpc_queue *queue, const struct rpc_arm *arm)
{
    struct rpc_call *call = call_acquire(queue);
    grpc_server *server = queue->server->core;
    void *tag = &call->tags[RPC_EVENT_ARRIVED];
    call->arm = arm;
    call->method = arm->method;
    call->core = NULL;
    call->received = NULL;
    call->sending = NULL;
    call->pending = 0;
    call->delivered = false;
    call->closed = false;
    call->user = NULL;
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

static void
call_start_receive(struct rpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->received;
    call->pending++;
    rpc_call_start(call->core, &op, 1, &call->tags[RPC_EVENT_RECEIVED]);
}

static void
call_start_close(struct rpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &call->cancelled;
    rpc_call_start(call->core, &op, 1, &call->tags[RPC_EVENT_CLOSED]);
}

grpc_slice
rpc_text_to_core(const char *text)
{
    if (text == NULL)
        return grpc_empty_slice();
    return grpc_slice_from_copied_buffer(text, strnlen(text, RPC_TEXT_BYTES_MAX));
}

/* `ended` is set before the last batch starts and after all else was read from and written to the
 * call: the stepping thread, which looks at `ended` when that batch's event comes, may then have it
 * used again at once. */
static void
call_end(struct rpc_call *call)
{
    CHECK(!atomic_exchange_explicit(&call->ended, true, memory_order_acq_rel));
}

/* `trailers` are copied by the library, which is given slices that need no release. */
static void
unary_finish(struct rpc_call *call, enum status status, const char *text, grpc_metadata *trailers,
             size_t trailer_count)
{
    grpc_call *core = call->core;
    call_end(call);
    grpc_slice details = rpc_text_to_core(text);
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    ops[1].data.send_status_from_server.status = (grpc_status_code)status;
    ops[1].data.send_status_from_server.status_details = &details;
    ops[1].data.send_status_from_server.trailing_metadata = trailers;
    ops[1].data.send_status_from_server.trailing_metadata_count = trailer_count;
    rpc_call_start(core, ops, ARRAY_COUNT(ops), &call->tags[RPC_EVENT_ENDED]);
    grpc_slice_unref(details);
}

/* ---- towards the user ---- */

static bool
call_ended(struct rpc_call *call)
{
    return atomic_load_explicit(&call->ended, memory_order_acquire);
}

/* The call ends without the user ever having heard of it. */
static void
call_refuse(struct rpc_call *call, enum status status, const char *text)
{
    rpc_call_finish(call, status, text);
}

static void
call_deliver(struct rpc_call *call)
{
    struct rpc_message message = rpc_message_from_core(call->queue, call->received);
    grpc_byte_buffer *received = call->received;
    call->received = NULL;
    call->delivered = true;
    call->method->on_message(call->queue->server->context, call, &message);
    grpc_byte_buffer_destroy(received);
}

/* No message where there had to be one, or the end of those of a stream. */
static void
call_on_no_message(struct rpc_call *call)
{
    if (call->method->kind == RPC_BIDI_STREAM) {
        call->delivered = true;
        call->method->on_half_close(call->queue->server->context, call);
    } else {
        call_refuse(call, STATUS_INTERNAL, "the call ended without a request message");
    }
}

/*
 * CLOSED may have come first, and then nobody waits for what was received: a user who knows of the
 * call has been told so, and one who does not need not. The other order cannot be told from a
 * half-close: the library reports a lost connection, too, as the end of the messages.
 */
static void
call_on_received(struct rpc_call *call)
{
    bool lost = call->closed ||
                (call->received == NULL && grpc_call_failed_before_recv_message(call->core));
    if (lost || call_ended(call)) {
        grpc_byte_buffer_destroy(call->received);
        call->received = NULL;
        if (!call->delivered && !call_ended(call))
            call_refuse(call, STATUS_CANCELLED, NULL);
        return;
    }
    if (call->received == NULL) {
        call_on_no_message(call);
        return;
    }
    call_deliver(call);
    if (call->method->kind == RPC_BIDI_STREAM && !call_ended(call))
        call_start_receive(call);
}

static void
call_on_closed(struct rpc_call *call)
{
    call->closed = true;
    if (call->method != NULL && call->method->kind != RPC_UNARY)
        rpc_stream_drop(call);
    if (!call->delivered || call_ended(call) || call->method->on_cancel == NULL)
        return;
    uint64_t tag = atomic_load_explicit(&call->tag, memory_order_relaxed);
    call->method->on_cancel(call->queue->server->context, tag);
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
    char text[256];
    snprintf(text, sizeof(text), "unknown method %.*s",
             (int)GRPC_SLICE_LENGTH(call->details.method),
             (const char *)GRPC_SLICE_START_PTR(call->details.method));
    unary_finish(call, STATUS_UNIMPLEMENTED, text, NULL, 0);
}

static void
call_on_arrived(struct rpc_call *call, bool ok)
{
    struct rpc_server *server = call->queue->server;
    if (!ok) {
        call_release(call);
        return;
    }
    if (!atomic_load_explicit(&server->stopping, memory_order_relaxed))
        rpc_call_arm(call->queue, call->arm);
    call->pending = 2; /* ENDED and CLOSED */
    call_start_close(call);
    if (call->method == NULL) {
        call->deadline = call->details.deadline;
        call->method = method_find(server, call->details.method);
        if (call->method == NULL) {
            call_refuse_unknown(call);
            return;
        }
    }
    if (call->method->kind != RPC_UNARY)
        rpc_stream_begin(call);
    if (call->arm->method == NULL)
        call_start_receive(call);
    else
        call_on_received(call);
}

static void
call_on_last(struct rpc_call *call)
{
    /* Pairs with call_end on whichever thread it was: `sending` is ours now. */
    CHECK(call_ended(call));
    grpc_byte_buffer_destroy(call->sending);
    if (call->method != NULL && call->method->kind != RPC_UNARY)
        rpc_stream_end(call);
    grpc_call_unref(call->core);
    call_release(call);
}

void
rpc_call_on_event(struct rpc_call *call, enum rpc_event event, bool ok)
{
    if (event == RPC_EVENT_ARRIVED) {
        call_on_arrived(call, ok);
        return;
    }
    if (event == RPC_EVENT_SENT) {
        rpc_stream_on_sent(call);
        return;
    }
    if (event == RPC_EVENT_RECEIVED)
        call_on_received(call);
    else if (event == RPC_EVENT_CLOSED)
        call_on_closed(call);
    CHECK(call->pending > 0);
    if (--call->pending == 0)
        call_on_last(call);
}

/* ---- the user's side ---- */

const char *
rpc_call_method(const struct rpc_call *call)
{
    return call->method->path;
}

bool
rpc_call_server_has(const struct rpc_call *call, const char *service)
{
    const struct rpc_server *server = call->queue->server;
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
                       struct rpc_span *value)
{
    while (*position < call->metadata.count) {
        const grpc_metadata *entry = &call->metadata.metadata[(*position)++];
        if (grpc_slice_str_cmp(entry->key, key) == 0) {
            *value = (struct rpc_span){GRPC_SLICE_START_PTR(entry->value),
                                       GRPC_SLICE_LENGTH(entry->value)};
            return true;
        }
    }
    return false;
}

bool
rpc_call_metadata(const struct rpc_call *call, const char *key, struct rpc_span *value)
{
    size_t position = 0;
    return rpc_call_metadata_next(call, key, &position, value);
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

void
rpc_call_reply(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count)
{
    CHECK(call->method->kind == RPC_UNARY);
    grpc_byte_buffer *message = rpc_message_to_core(pieces, piece_count);
    grpc_call *core = call->core;
    call->sending = message;
    call_end(call);
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    ops[1].data.send_message.send_message = message;
    ops[2].data.send_status_from_server.status = GRPC_STATUS_OK;
    rpc_call_start(core, ops, ARRAY_COUNT(ops), &call->tags[RPC_EVENT_ENDED]);
}

void
rpc_call_finish(struct rpc_call *call, enum status status, const char *text)
{
    if (call->method->kind == RPC_UNARY) {
        CHECK(status != STATUS_OK);
        unary_finish(call, status, text, NULL, 0);
    } else {
        call_end(call);
        rpc_stream_finish(call, status, text);
    }
}

void
rpc_call_refuse(struct rpc_call *call, enum status status, const char *text, uint32_t retry_ms)
{
    CHECK(call->method->kind == RPC_UNARY && status != STATUS_OK);
    char number[16];
    int length = snprintf(number, sizeof(number), "%u", retry_ms);
    /* so few bytes lie within the slice itself: nothing is allocated */
    grpc_metadata trailer = {
        .key = grpc_slice_from_static_string("grpc-retry-pushback-ms"),
        .value = grpc_slice_from_copied_buffer(number, (size_t)length),
    };
    unary_finish(call, status, text, &trailer, 1);
}
