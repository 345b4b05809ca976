/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that a client makes. A unary call is one batch with one event. A stream has the sending
 * half of stream.c, one receiving batch at a time, and a batch that waits for the status.
 *
 * The object has two references, ours and optionally the user's. Any thread may start batches of a
 * stream; each is counted in `pending` before it starts, and on_end comes after the last. No batch
 * starts once STATUS has come, since then
 *
 *     over            is set, under `lock`: no more cancelling, no more reading
 *     stream->dead    is set, under stream->lock: no more sending
 *
 * so a thread admitted before has counted its batch, and the end waits for it. The batch for the
 * status starts last when a call begins, so STATUS cannot come before the first batches have
 * started. `received` belongs to the thread that set `reading`, then to the stepping thread;
 * everything else is written before the first batch, or by the stepping thread alone.
 */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rpc/internal.h"

struct rpc_client_call {
    struct rpc_client *client;
    struct rpc_client_call *next; /* in the client's list, under its lock */
    struct rpc_client_call **link;
    enum rpc_kind kind;
    const struct rpc_client_events *events;
    void *context;
    atomic_uint references;
    atomic_uint pending; /* batches with an outstanding event */
    pthread_mutex_t lock;
    bool over;         /* under `lock`: STATUS has come */
    bool reading;      /* under `lock`: a message was requested, or none will come any more */
    bool initial_late; /* initial metadata were not delivered yet and go with the next event */
    grpc_call *core;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_byte_buffer *received;
    grpc_byte_buffer *sending; /* unary */
    grpc_status_code status;
    grpc_slice text;
    struct error *refusal;     /* why an answer could not be inflated; NULL: none */
    struct rpc_stream *stream; /* streams */
    struct rpc_tag tags[RPC_MADE_EVENTS];
};

static struct rpc_tag *
tag_of(struct rpc_client_call *call, enum rpc_event event)
{
    return &call->tags[event - RPC_EVENT_MADE_INITIAL];
}

static void
call_unref(struct rpc_client_call *call)
{
    if (atomic_fetch_sub_explicit(&call->references, 1, memory_order_acq_rel) != 1)
        return;
    rpc_stream_destroy(call->stream);
    pthread_mutex_destroy(&call->lock);
    free(call);
}

/* ---- the client's list ---- */

static void
list_add(struct rpc_client_call *call)
{
    struct rpc_client *client = call->client;
    pthread_mutex_lock(&client->lock);
    call->next = client->calls;
    call->link = &client->calls;
    if (call->next != NULL)
        call->next->link = &call->next;
    client->calls = call;
    pthread_mutex_unlock(&client->lock);
}

static void
list_remove(struct rpc_client_call *call)
{
    pthread_mutex_lock(&call->client->lock);
    *call->link = call->next;
    if (call->next != NULL)
        call->next->link = call->link;
    pthread_mutex_unlock(&call->client->lock);
}

struct rpc_client_call *
rpc_client_call_next(struct rpc_client_call *call)
{
    return call->next;
}

/* ---- start ---- */

static grpc_op
initial_op(struct rpc_client_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    op.data.recv_initial_metadata.recv_initial_metadata = &call->initial;
    return op;
}

static grpc_op
message_op(struct rpc_client_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->received;
    return op;
}

static grpc_op
status_op(struct rpc_client_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = &call->trailing;
    op.data.recv_status_on_client.status = &call->status;
    op.data.recv_status_on_client.status_details = &call->text;
    return op;
}

static struct rpc_client_call *
call_create(struct rpc_client *client, const struct rpc_client_request *request)
{
    struct rpc_client_call *call = rpc_allocate(1, sizeof(*call));
    call->client = client;
    call->kind = request->kind;
    call->events = request->events;
    call->context = request->context;
    call->text = grpc_empty_slice();
    CHECK(pthread_mutex_init(&call->lock, NULL) == 0);
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    for (size_t i = 0; i < RPC_MADE_EVENTS; i++) {
        call->tags[i].event = (enum rpc_event)(RPC_EVENT_MADE_INITIAL + i);
        call->tags[i].made = call;
    }
    grpc_slice path = grpc_slice_from_copied_string(request->method);
    call->core =
        grpc_channel_create_call(client->core, NULL, GRPC_PROPAGATE_DEFAULTS, client->queue->core,
                                 path, NULL, rpc_time_to_core(request->deadline_ns), NULL);
    CHECK(call->core != NULL);
    grpc_slice_unref(path);
    return call;
}

static void
unary_start(struct rpc_client_call *call, const struct rpc_client_request *request)
{
    struct rpc_headers metadata = rpc_headers_to_core(request->metadata, request->metadata_count);
    size_t piece_count = request->pieces != NULL ? request->piece_count : 0;
    call->sending = rpc_message_to_core(request->pieces, piece_count);
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        initial_op(call),
        message_op(call),
        status_op(call),
    };
    ops[0].data.send_initial_metadata.metadata = metadata.items;
    ops[0].data.send_initial_metadata.count = metadata.count;
    ops[1].data.send_message.send_message = call->sending;
    atomic_store_explicit(&call->pending, 1, memory_order_relaxed);
    rpc_queue_hand_over(call->client->queue);
    rpc_call_start(call->core, ops, ARRAY_COUNT(ops), tag_of(call, RPC_EVENT_MADE_STATUS));
    rpc_headers_release(&metadata);
}

/* Without on_initial the initial metadata come with the first message: saves an event. */
static void
stream_start(struct rpc_client_call *call, const struct rpc_client_request *request)
{
    call->initial_late = call->events->on_initial != NULL && request->initial_late;
    bool initial_alone = call->events->on_initial != NULL && !request->initial_late;
    grpc_byte_buffer *message = NULL;
    if (request->pieces != NULL)
        message = rpc_message_to_core(request->pieces, request->piece_count);
    call->stream = rpc_stream_create();
    call->stream->client = true;
    call->stream->sent_tag = tag_of(call, RPC_EVENT_MADE_SENT);
    call->stream->pending = &call->pending;
    call->reading = true;
    rpc_stream_begin(call->stream, call->core);
    /* The two batches below; sends count themselves. */
    atomic_store_explicit(&call->pending, 2, memory_order_relaxed);
    rpc_queue_hand_over(call->client->queue);
    rpc_stream_open(call->stream, rpc_headers_to_core(request->metadata, request->metadata_count),
                    message, request->last ? RPC_STREAM_LAST : RPC_STREAM_MORE);
    grpc_op receive[2] = {initial_op(call), message_op(call)};
    rpc_call_start(call->core, receive, initial_alone ? 1 : 2,
                   tag_of(call, initial_alone ? RPC_EVENT_MADE_INITIAL : RPC_EVENT_MADE_RECEIVED));
    grpc_op status = status_op(call);
    rpc_call_start(call->core, &status, 1, tag_of(call, RPC_EVENT_MADE_STATUS));
}

void
rpc_client_start(struct rpc_client *client, const struct rpc_client_request *request,
                 struct rpc_client_call **out)
{
    struct rpc_client_call *call = call_create(client, request);
    atomic_store_explicit(&call->references, out != NULL ? 2 : 1, memory_order_relaxed);
    list_add(call);
    if (out != NULL)
        *out = call;
    if (call->kind == RPC_UNARY)
        unary_start(call, request);
    else
        stream_start(call, request);
}

/* ---- events ---- */

/* False: the message cannot be delivered. */
static bool
inflate_received(struct rpc_client_call *call)
{
    struct error error;
    error_clear(&error);
    if (rpc_inflate(&call->received, call->client->message_bytes_max, &error) == STATUS_OK)
        return true;
    call->refusal = rpc_allocate(1, sizeof(*call->refusal));
    *call->refusal = error;
    return false;
}

static struct rpc_client_end
end_of(struct rpc_client_call *call)
{
    struct rpc_client_end end = {
        .status = status_from_number(call->status),
        .text = rpc_span_of(&call->text),
        .initial_count = call->kind == RPC_UNARY ? call->initial.count : 0,
        .trailer_count = call->trailing.count,
    };
    rpc_headers_from_core(call->client->queue, &call->initial, &call->trailing, &end.initial,
                          &end.trailers);
    if (call->refusal != NULL) { /* the server's status may have come before our cancellation */
        end.status = call->refusal->status;
        end.text = (struct wire_span){call->refusal->text, strlen(call->refusal->text)};
    }
    if (call->kind == RPC_UNARY && end.status == STATUS_OK && call->received == NULL) {
        static const char text[] = "status OK without a response message";
        end.status = STATUS_INTERNAL;
        end.text = (struct wire_span){text, sizeof(text) - 1};
    }
    return end;
}

static void
call_notify_end(struct rpc_client_call *call)
{
    struct rpc_client_end end = end_of(call);
    if (call->kind == RPC_UNARY && end.status == STATUS_OK && !inflate_received(call))
        end = end_of(call);
    if (call->kind != RPC_UNARY || end.status != STATUS_OK) {
        call->events->on_end(call->context, &end);
        return;
    }
    struct rpc_delivery delivery;
    rpc_delivery_begin(&delivery, call->client->queue, call->received);
    call->received = NULL;
    end.message = &delivery.message;
    call->events->on_end(call->context, &end);
    rpc_delivery_end(&delivery);
}

static void
call_end(struct rpc_client_call *call)
{
    struct rpc_client *client = call->client;
    call_notify_end(call);
    grpc_byte_buffer_destroy(call->received);
    grpc_byte_buffer_destroy(call->sending);
    if (call->stream != NULL)
        rpc_stream_end(call->stream);
    grpc_slice_unref(call->text);
    free(call->refusal);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_call_unref(call->core);
    list_remove(call);
    call_unref(call);
    rpc_client_on_call_gone(client);
}

static void
call_on_status(struct rpc_client_call *call)
{
    pthread_mutex_lock(&call->lock);
    call->over = true;
    pthread_mutex_unlock(&call->lock);
    if (call->stream != NULL)
        rpc_stream_drop(call->stream);
}

static void
call_start_receive(struct rpc_client_call *call)
{
    grpc_op op = message_op(call);
    rpc_call_start(call->core, &op, 1, tag_of(call, RPC_EVENT_MADE_RECEIVED));
}

static void
call_notify_initial(struct rpc_client_call *call)
{
    static const grpc_metadata_array none;
    const struct rpc_metadata *initial;
    const struct rpc_metadata *ignored;
    rpc_headers_from_core(call->client->queue, &call->initial, &none, &initial, &ignored);
    call->events->on_initial(call->context, initial, call->initial.count);
}

static void
call_on_initial(struct rpc_client_call *call)
{
    call_notify_initial(call);
    if (call->over)
        return;
    atomic_fetch_add_explicit(&call->pending, 1, memory_order_relaxed);
    call_start_receive(call);
}

static void
call_on_received(struct rpc_client_call *call)
{
    if (call->initial_late) {
        call->initial_late = false;
        call_notify_initial(call);
    }
    if (call->received == NULL)
        return; /* STATUS gives the reason; `reading` stays set */
    if (!inflate_received(call)) {
        grpc_call_cancel(call->core, NULL);
        return; /* likewise; call_end destroys it */
    }
    struct rpc_delivery delivery;
    rpc_delivery_begin(&delivery, call->client->queue, call->received);
    call->received = NULL;
    pthread_mutex_lock(&call->lock);
    call->reading = false;
    pthread_mutex_unlock(&call->lock);
    call->events->on_message(call->context, &delivery.message);
    rpc_delivery_end(&delivery);
}

static void
call_on_sent(struct rpc_client_call *call, bool ok)
{
    size_t waiting;
    if (rpc_stream_on_sent(call->stream, &waiting) && ok && !call->over &&
        call->events->on_sent != NULL)
        call->events->on_sent(call->context, waiting);
}

void
rpc_client_call_on_event(struct rpc_client_call *call, enum rpc_event event,
                         enum rpc_success success)
{
    switch (event) {
    case RPC_EVENT_MADE_INITIAL: call_on_initial(call); break;
    case RPC_EVENT_MADE_RECEIVED: call_on_received(call); break;
    case RPC_EVENT_MADE_SENT: call_on_sent(call, success == RPC_DONE); break;
    default: call_on_status(call); break;
    }
    if (atomic_fetch_sub_explicit(&call->pending, 1, memory_order_acq_rel) == 1)
        call_end(call);
}

/* ---- the user's side ---- */

/* The library is not called under the lock: it may call a release function of the user's. */
void
rpc_client_cancel(struct rpc_client_call *call)
{
    pthread_mutex_lock(&call->lock);
    bool over = call->over;
    if (!over)
        grpc_call_ref(call->core);
    grpc_call *core = call->core;
    pthread_mutex_unlock(&call->lock);
    if (over)
        return;
    grpc_call_cancel(core, NULL);
    grpc_call_unref(core);
}

enum status
rpc_client_send(struct rpc_client_call *call, const struct rpc_piece *pieces, size_t piece_count)
{
    CHECK(call->kind != RPC_UNARY);
    return rpc_stream_send(call->stream, rpc_message_to_core(pieces, piece_count), RPC_STREAM_COUNT,
                           RPC_STREAM_QUEUE_MAX);
}

void
rpc_client_half_close(struct rpc_client_call *call)
{
    CHECK(call->kind != RPC_UNARY);
    struct rpc_ending ending = {.text = grpc_empty_slice()};
    rpc_stream_finish(call->stream, NULL, (struct rpc_headers){0}, &ending);
}

void
rpc_client_read(struct rpc_client_call *call)
{
    CHECK(call->kind != RPC_UNARY);
    pthread_mutex_lock(&call->lock);
    bool start = !call->over && !call->reading;
    if (start) {
        call->reading = true;
        atomic_fetch_add_explicit(&call->pending, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&call->lock);
    if (start)
        call_start_receive(call);
}

void
rpc_client_release(struct rpc_client_call *call)
{
    call_unref(call);
}
