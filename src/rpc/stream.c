/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of a stream, a server's or a client's: a bounded queue of messages, of which the
 * library has at most one. A batch takes the operations that are ready: the initial metadata if
 * they were not sent, one message, and after the last one the end (a server's status, a client's
 * half-close).
 *
 * `busy` is a baton. The thread that sets it, under the lock, starts the next batch outside the
 * lock; that batch's event goes to the stepping thread, which starts the one after it or clears
 * `busy`. So batches never overlap, the lock is held for a few instructions, and no code of the
 * library or the user (a release function) runs under it. A unary call needs no lock: it has one
 * sending batch. The call cannot be freed while the baton is held: a server's last batch, the one
 * with the status, is still to come, and a client counts each batch in `pending`.
 */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdlib.h>

#include "base/check.h"
#include "rpc/internal.h"

/* A larger ring is freed with its call. */
enum { QUEUE_KEPT_MAX = 2 * (RPC_STREAM_QUEUE_MAX + 1) };

/* The operations to send at once, taken out of the stream: once the batch is started, the stream
 * may belong to another call. */
struct stream_batch {
    grpc_call *core;
    struct rpc_tag *tag;
    bool client;
    bool open;
    bool end;
    bool more; /* more follows: the transport may buffer */
    grpc_byte_buffer *message;
    struct rpc_headers initial;
    struct rpc_ending ending;
};

struct rpc_stream *
rpc_stream_create(void)
{
    struct rpc_stream *stream = rpc_allocate(1, sizeof(*stream));
    CHECK(pthread_mutex_init(&stream->lock, NULL) == 0);
    return stream;
}

void
rpc_stream_destroy(struct rpc_stream *stream)
{
    if (stream == NULL)
        return;
    pthread_mutex_destroy(&stream->lock);
    free(stream->queue);
    free(stream);
}

void
rpc_stream_begin(struct rpc_stream *stream, grpc_call *core)
{
    pthread_mutex_lock(&stream->lock);
    stream->core = core;
    stream->busy = false;
    stream->dead = false;
    stream->open_wanted = false;
    stream->opened = false;
    stream->finishing = false;
    stream->finished = false;
    stream->initial = (struct rpc_headers){0};
    stream->ending = (struct rpc_ending){.text = grpc_empty_slice()};
    stream->sending = NULL;
    stream->head = 0;
    stream->count = 0;
    stream->waiting_bytes = 0;
    pthread_mutex_unlock(&stream->lock);
}

/* ---- the queue, under the lock ---- */

static uint64_t
cost_of(const grpc_byte_buffer *message)
{
    return message->data.raw.slice_buffer.length + RPC_MESSAGE_COST;
}

static void
queue_grow(struct rpc_stream *stream)
{
    size_t capacity = stream->capacity;
    stream->queue = rpc_grow(stream->queue, &stream->capacity, stream->count + 1,
                             // NOLINTNEXTLINE(bugprone-sizeof-expression): pointers
                             sizeof(stream->queue[0]));
    for (size_t i = 0; i < stream->head; i++) /* those that were wrapped; it has doubled at least */
        stream->queue[capacity + i] = stream->queue[i];
}

static void
stream_push(struct rpc_stream *stream, grpc_byte_buffer *message)
{
    if (stream->count == stream->capacity)
        queue_grow(stream);
    stream->queue[(stream->head + stream->count++) % stream->capacity] = message;
    stream->waiting_bytes += cost_of(message);
}

static grpc_byte_buffer *
stream_pop(struct rpc_stream *stream)
{
    if (stream->count == 0)
        return NULL;
    grpc_byte_buffer *message = stream->queue[stream->head];
    stream->head = (stream->head + 1) % stream->capacity;
    stream->count--;
    stream->waiting_bytes -= cost_of(message);
    return message;
}

/* ---- batches ---- */

/* Call under the lock, on the thread that holds the baton or may take it. Returns false if there is
 * nothing to send and the baton is free. */
static bool
batch_take(struct rpc_stream *stream, struct stream_batch *batch)
{
    stream->busy = false;
    if (stream->client && stream->dead)
        return false; /* it is over; a server's call must still send its status */
    grpc_byte_buffer *message = stream_pop(stream);
    bool end = stream->finishing && !stream->finished && stream->count == 0;
    bool open = !stream->opened;
    if (message == NULL && !end && !(open && stream->open_wanted))
        return false;
    *batch = (struct stream_batch){
        .core = stream->core,
        .tag = end && !stream->client ? stream->ended_tag : stream->sent_tag,
        .client = stream->client,
        .open = open,
        .end = end,
        .message = message,
        .more = stream->count > 0,
        .initial = stream->initial,
    };
    stream->initial = (struct rpc_headers){0};
    if (end)
        batch->ending = stream->ending;
    CHECK(stream->sending == NULL); /* batches never overlap */
    stream->sending = message;
    stream->busy = stream->opened = true;
    stream->finished = stream->finished || end;
    if (stream->pending != NULL)
        atomic_fetch_add_explicit(stream->pending, 1, memory_order_relaxed);
    if (!stream->client) /* before the batch starts: once ended, the call may be reused */
        rpc_watch_sending(batch->tag->call, message);
    return true;
}

static void
end_op(grpc_op *op, struct stream_batch *batch)
{
    if (batch->client) {
        *op = (grpc_op){.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
        return;
    }
    *op = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op->data.send_status_from_server.status = (grpc_status_code)batch->ending.status;
    if (GRPC_SLICE_LENGTH(batch->ending.text) > 0)
        op->data.send_status_from_server.status_details = &batch->ending.text;
    op->data.send_status_from_server.trailing_metadata = batch->ending.trailers.items;
    op->data.send_status_from_server.trailing_metadata_count = batch->ending.trailers.count;
}

static void
batch_start(struct stream_batch *batch)
{
    grpc_op ops[3];
    size_t count = 0;
    if (batch->open) {
        ops[count] = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
        ops[count].data.send_initial_metadata.metadata = batch->initial.items;
        ops[count++].data.send_initial_metadata.count = batch->initial.count;
    }
    if (batch->message != NULL) {
        ops[count] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE,
                               .flags = batch->more ? GRPC_WRITE_BUFFER_HINT : 0};
        ops[count++].data.send_message.send_message = batch->message;
    }
    if (batch->end)
        end_op(&ops[count++], batch);
    rpc_call_start(batch->core, ops, count, batch->tag);
    rpc_headers_release(&batch->initial);
    if (batch->end && !batch->client) {
        grpc_slice_unref(batch->ending.text);
        rpc_headers_release(&batch->ending.trailers);
    }
}

/* ---- sending ---- */

void
rpc_stream_open(struct rpc_stream *stream, struct rpc_headers initial, grpc_byte_buffer *message,
                enum rpc_stream_next next)
{
    struct stream_batch batch;
    pthread_mutex_lock(&stream->lock);
    CHECK(!stream->opened && !stream->busy);
    stream->initial = initial;
    stream->open_wanted = true;
    stream->finishing = next == RPC_STREAM_LAST;
    if (message != NULL)
        stream_push(stream, message);
    bool start = batch_take(stream, &batch);
    pthread_mutex_unlock(&stream->lock);
    CHECK(start);
    batch_start(&batch);
}

/* Call under the lock. */
static bool
is_full(const struct rpc_stream *stream, const grpc_byte_buffer *message,
        enum rpc_stream_limit limit, uint64_t most)
{
    switch (limit) {
    case RPC_STREAM_COUNT: return stream->count >= most;
    case RPC_STREAM_BYTES:
        return stream->count > 0 && stream->waiting_bytes + cost_of(message) > most;
    }
    UNREACHABLE();
}

enum status
rpc_stream_send(struct rpc_stream *stream, grpc_byte_buffer *message, enum rpc_stream_limit limit,
                uint64_t most)
{
    struct stream_batch batch;
    enum status status = STATUS_OK;
    bool start = false;
    pthread_mutex_lock(&stream->lock);
    CHECK(!stream->finishing || stream->dead);
    if (stream->dead) {
        status = STATUS_CANCELLED;
    } else if (is_full(stream, message, limit, most)) {
        status = STATUS_RESOURCE_EXHAUSTED;
    } else {
        stream_push(stream, message);
        start = !stream->busy && batch_take(stream, &batch);
    }
    pthread_mutex_unlock(&stream->lock);
    if (start)
        batch_start(&batch);
    else if (status != STATUS_OK)
        grpc_byte_buffer_destroy(message);
    return status;
}

void
rpc_stream_finish(struct rpc_stream *stream, grpc_byte_buffer *message, struct rpc_headers initial,
                  const struct rpc_ending *ending)
{
    struct stream_batch batch;
    pthread_mutex_lock(&stream->lock);
    CHECK(!stream->finishing);
    stream->finishing = true;
    stream->ending = *ending;
    if (!stream->opened) {
        struct rpc_headers none = stream->initial;
        stream->initial = initial;
        initial = none;
    }
    if (message != NULL) /* even if the call is over: the message is dropped with the status */
        stream_push(stream, message);
    bool start = !stream->busy && batch_take(stream, &batch);
    pthread_mutex_unlock(&stream->lock);
    if (start)
        batch_start(&batch);
    rpc_headers_release(&initial);
}

bool
rpc_stream_on_sent(struct rpc_stream *stream, size_t *waiting)
{
    struct stream_batch batch;
    pthread_mutex_lock(&stream->lock);
    CHECK(stream->busy && stream->opened); /* this event has the baton */
    grpc_byte_buffer *sent = stream->sending;
    stream->sending = NULL;
    bool start = batch_take(stream, &batch);
    *waiting = stream->count + (start && batch.message != NULL);
    pthread_mutex_unlock(&stream->lock);
    grpc_byte_buffer_destroy(sent);
    if (start)
        batch_start(&batch);
    return sent != NULL;
}

/* ---- the end ---- */

void
rpc_stream_drop(struct rpc_stream *stream)
{
    grpc_byte_buffer *dropped;
    pthread_mutex_lock(&stream->lock);
    stream->dead = true;
    while ((dropped = stream_pop(stream)) != NULL) {
        pthread_mutex_unlock(&stream->lock);
        grpc_byte_buffer_destroy(dropped);
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
}

void
rpc_stream_end(struct rpc_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    CHECK(stream->count == 0);
    if (stream->capacity > QUEUE_KEPT_MAX) {
        free(stream->queue);
        stream->queue = NULL;
        stream->capacity = 0;
    }
    pthread_mutex_unlock(&stream->lock);
    grpc_byte_buffer_destroy(stream->sending);
    rpc_headers_release(&stream->initial); /* of a call that ended before it was opened */
}
