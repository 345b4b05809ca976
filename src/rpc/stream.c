/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of a stream: a bounded queue of messages, of which the library has at most one.
 *
 * `busy` is a baton. Who turns it on, under the lock, starts the next batch, outside the lock; the
 * event of that batch comes to the stepping thread, which starts the one after it or turns `busy`
 * off. So batches never overlap, the lock is held for a few instructions, and nothing of the
 * library or of the user (a release function) runs under it. A unary call needs no lock: it has
 * one sending batch. The call cannot be freed while the baton is out, because its last batch, the
 * one with the status, is still to come.
 */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdlib.h>

#include "base/check.h"
#include "rpc/internal.h"

static struct rpc_stream *
stream_create(void)
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
    free(stream);
}

/* Initial metadata go out at once, so that the caller knows that the stream is open. */
void
rpc_stream_begin(struct rpc_call *call)
{
    if (call->stream == NULL)
        call->stream = stream_create();
    struct rpc_stream *stream = call->stream;
    pthread_mutex_lock(&stream->lock);
    stream->busy = true;
    stream->dead = false;
    stream->finishing = false;
    stream->head = 0;
    stream->count = 0;
    pthread_mutex_unlock(&stream->lock);
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    rpc_call_start(call->core, &op, 1, &call->tags[RPC_EVENT_SENT]);
}

static void
stream_start_message(struct rpc_call *call, grpc_call *core, grpc_byte_buffer *message)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = message;
    rpc_call_start(core, &op, 1, &call->tags[RPC_EVENT_SENT]);
}

static void
stream_start_status(struct rpc_call *call, grpc_call *core, enum status status, grpc_slice *text)
{
    grpc_op op = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op.data.send_status_from_server.status = (grpc_status_code)status;
    op.data.send_status_from_server.status_details = text;
    rpc_call_start(core, &op, 1, &call->tags[RPC_EVENT_ENDED]);
    grpc_slice_unref(*text);
}

enum status
rpc_call_send(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count)
{
    CHECK(call->method->kind != RPC_UNARY);
    struct rpc_stream *stream = call->stream;
    grpc_byte_buffer *message = rpc_message_to_core(pieces, piece_count);
    enum status status = STATUS_OK;
    bool start = false;
    pthread_mutex_lock(&stream->lock);
    grpc_call *core = call->core;
    CHECK(!stream->finishing);
    if (stream->dead) {
        status = STATUS_CANCELLED;
    } else if (!stream->busy) {
        stream->busy = start = true;
        call->sending = message;
    } else if (stream->count == RPC_STREAM_QUEUE_MAX) {
        status = STATUS_RESOURCE_EXHAUSTED;
    } else {
        stream->queue[(stream->head + stream->count++) % RPC_STREAM_QUEUE_MAX] = message;
    }
    pthread_mutex_unlock(&stream->lock);
    if (start)
        stream_start_message(call, core, message);
    else if (status != STATUS_OK)
        grpc_byte_buffer_destroy(message);
    return status;
}

static grpc_byte_buffer *
stream_pop(struct rpc_stream *stream)
{
    if (stream->count == 0)
        return NULL;
    grpc_byte_buffer *message = stream->queue[stream->head];
    stream->head = (stream->head + 1) % RPC_STREAM_QUEUE_MAX;
    stream->count--;
    return message;
}

void
rpc_stream_drop(struct rpc_call *call)
{
    struct rpc_stream *stream = call->stream;
    pthread_mutex_lock(&stream->lock);
    stream->dead = true;
    pthread_mutex_unlock(&stream->lock);
    /* `dead` keeps others from adding, so what is left is the stepping thread's. */
    for (grpc_byte_buffer *message; (message = stream_pop(stream)) != NULL;)
        grpc_byte_buffer_destroy(message);
}

void
rpc_stream_on_sent(struct rpc_call *call)
{
    struct rpc_stream *stream = call->stream;
    pthread_mutex_lock(&stream->lock);
    grpc_byte_buffer *sent = call->sending;
    grpc_byte_buffer *next = stream_pop(stream);
    bool finish = next == NULL && stream->finishing;
    call->sending = next;
    stream->busy = next != NULL || finish;
    pthread_mutex_unlock(&stream->lock);
    grpc_byte_buffer_destroy(sent);
    if (next != NULL)
        stream_start_message(call, call->core, next);
    else if (finish)
        stream_start_status(call, call->core, stream->status, &stream->text);
}

void
rpc_stream_finish(struct rpc_call *call, enum status status, const char *text)
{
    struct rpc_stream *stream = call->stream;
    grpc_slice details = rpc_text_to_core(text);
    pthread_mutex_lock(&stream->lock);
    grpc_call *core = call->core;
    stream->finishing = true;
    stream->status = status;
    stream->text = details;
    bool start = !stream->busy;
    stream->busy = true;
    pthread_mutex_unlock(&stream->lock);
    if (start)
        stream_start_status(call, core, status, &details);
}

/* The last event has come, so no batch is out and nothing waits. */
void
rpc_stream_end(struct rpc_call *call)
{
    struct rpc_stream *stream = call->stream;
    pthread_mutex_lock(&stream->lock);
    CHECK(stream->finishing && stream->count == 0);
    pthread_mutex_unlock(&stream->lock);
}
