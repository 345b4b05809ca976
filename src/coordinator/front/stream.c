/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rpc/spans.h"
#include "wire/wire.h"

/* ---- messages ---- */

size_t
stream_answer_bytes(const struct stream_answer *answer)
{
    size_t bytes = 0;
    for (size_t i = 0; i < answer->piece_count; i++)
        bytes += answer->pieces[i].bytes;
    return bytes;
}

/* Moves the pieces into the message: those that are lent as they are, the others copied between. */
static void
fill(struct stream_message *message, const struct stream_answer *answer, unsigned char *at)
{
    unsigned char *copied = message->data;
    struct rpc_piece *to = message->pieces;
    for (size_t i = 0; i < answer->piece_count; i++) {
        const struct rpc_piece *piece = &answer->pieces[i];
        if (piece->release == NULL) {
            if (piece->bytes > 0)
                memcpy(at, piece->data, piece->bytes);
            at += piece->bytes;
            continue;
        }
        *to++ = (struct rpc_piece){.data = copied, .bytes = (size_t)(at - copied)};
        *to++ = *piece;
        copied = at;
    }
    size_t left = message->data_bytes - (size_t)(copied - message->data);
    *to++ = (struct rpc_piece){.data = copied, .bytes = left};
    message->piece_count = (size_t)(to - message->pieces);
}

struct stream_message *
stream_message_create(const struct stream_answer *answer, size_t head_bytes, size_t tail_bytes)
{
    size_t lent_count = 0;
    size_t lent_bytes = 0;
    size_t bytes = head_bytes + stream_answer_bytes(answer) + tail_bytes;
    for (size_t i = 0; i < answer->piece_count; i++) {
        bool is_lent = answer->pieces[i].release != NULL;
        lent_count += is_lent;
        lent_bytes += is_lent ? answer->pieces[i].bytes : 0;
    }
    struct stream_message *message =
        calloc(1, sizeof(*message) + (2 * lent_count + 1) * sizeof(message->pieces[0]));
    CHECK(message != NULL);
    message->status = answer->status;
    message->is_final = answer->is_final;
    message->bytes = bytes;
    message->data_bytes = bytes - lent_bytes;
    message->data = malloc(message->data_bytes + 1);
    CHECK(message->data != NULL);
    fill(message, answer, message->data + head_bytes);
    return message;
}

void
stream_message_drop(struct stream_message *message)
{
    rpc_pieces_release(message->pieces, message->piece_count);
    free(message->data);
    free(message);
}

/* ---- under the stream's lock ---- */

void
stream_queue_put(struct stream_queue *queue, struct stream_message *message)
{
    message->next = NULL;
    if (queue->last != NULL)
        queue->last->next = message;
    else
        queue->first = message;
    queue->last = message;
    queue->count++;
}

struct stream_message *
stream_queue_take(struct stream_queue *queue)
{
    struct stream_message *message = queue->first;
    if (message == NULL)
        return NULL;
    queue->first = message->next;
    if (queue->first == NULL)
        queue->last = NULL;
    queue->count--;
    return message;
}

static void
free_if_done(struct stream_request *request)
{
    if (request->answered && request->messages == 0)
        free(request);
}

struct stream_credit
stream_forget(struct answer_stream *stream, const struct stream_message *message)
{
    struct stream_request *request = message->request;
    struct stream_credit credit = {request->tag, message->mesh_bytes, message->is_owed};
    stream->unread -= message->bytes;
    request->unread -= message->bytes;
    request->messages--;
    free_if_done(request);
    return credit;
}

void
stream_give_back(const struct answer_stream *stream, struct stream_credit credit)
{
    if (credit.is_owed)
        dispatch_taken(stream->dispatch, credit.tag, credit.bytes);
}

static void
send_message(struct answer_stream *stream, struct stream_request *request,
             struct stream_message *message)
{
    message->request = request;
    stream->unread += message->bytes;
    request->unread += message->bytes;
    request->messages++;
    stream_queue_put(&stream->waiting, message);
}

static void
unlink_request(struct answer_stream *stream, struct stream_request *request)
{
    if (request->next != NULL)
        request->next->prev = request->prev;
    if (request->prev != NULL)
        request->prev->next = request->next;
    else
        stream->requests = request->next;
    request->answered = true;
}

/* ---- a request's answers, on any thread ---- */

/* The request's last message, or its end without one. */
static void
end_request(struct stream_request *request, const struct stream_answer *answer)
{
    struct answer_stream *stream = request->stream;
    pthread_mutex_lock(&stream->lock);
    bool is_sent = answer != NULL && !stream->cancelled;
    unlink_request(stream, request);
    if (is_sent)
        send_message(stream, request, stream->carrier->make(request, answer));
    else
        free_if_done(request);
    stream->carrier->changed(stream);
    pthread_mutex_unlock(&stream->lock);
    if (answer != NULL && !is_sent) /* outside the lock: a slot is given back */
        rpc_pieces_release(answer->pieces, answer->piece_count);
}

void
stream_sink_fail(void *call, enum status status, const char *text)
{
    struct stream_request *request = call;
    bool is_empty = text == NULL || text[0] == '\0';
    const struct rpc_piece names = {.data = request->names, .bytes = request->names_bytes};
    const struct stream_answer answer = {.status = status == STATUS_OK ? STATUS_UNKNOWN : status,
                                         .error = !is_empty ? text
                                                  : status == STATUS_DEADLINE_EXCEEDED
                                                      ? "the deadline has passed"
                                                      : "failed without a reason",
                                         .pieces = &names,
                                         .piece_count = 1,
                                         .is_final = true};
    end_request(request, &answer);
}

void
stream_sink_tagged(void *call, uint64_t tag)
{
    struct stream_request *request = call;
    struct answer_stream *stream = request->stream;
    pthread_mutex_lock(&stream->lock);
    request->tag = tag;
    bool cancelled = stream->cancelled; /* while it waited for a slot */
    pthread_mutex_unlock(&stream->lock);
    if (cancelled)
        dispatch_cancel(stream->dispatch, tag);
}

enum status
stream_sink_piece(void *call, const struct rpc_piece *pieces, size_t piece_count,
                  uint64_t unread_max)
{
    struct stream_request *request = call;
    struct answer_stream *stream = request->stream;
    const struct stream_answer answer = {.pieces = pieces, .piece_count = piece_count};
    struct stream_message *message = stream->carrier->make(request, &answer);
    enum status status = STATUS_OK;
    pthread_mutex_lock(&stream->lock);
    if (stream->cancelled) {
        status = STATUS_CANCELLED;
    } else if (request->unread > 0 && request->unread + message->bytes > unread_max) {
        status = STATUS_RESOURCE_EXHAUSTED;
    } else {
        send_message(stream, request, message);
        stream->carrier->changed(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    if (status != STATUS_OK)
        stream_message_drop(message);
    return status;
}

void
stream_sink_reply(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    const struct stream_answer answer = {
        .pieces = pieces, .piece_count = piece_count, .is_final = true};
    end_request(call, &answer);
}

void
stream_sink_finish(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    struct stream_request *request = call;
    const struct stream_answer answer = {
        .pieces = pieces, .piece_count = piece_count, .is_final = true};
    end_request(request, request->wants_end ? &answer : NULL);
}

/* ---- the answer of another node ---- */

/* Kept and lent pieces as one copy, which is lent. */
static struct rpc_piece
copy_of(const struct rpc_piece *pieces, size_t piece_count)
{
    struct rpc_spans spans;
    spans_of_pieces(&spans, pieces, piece_count);
    size_t bytes = spans.message.bytes;
    char *copy = malloc(bytes + 1);
    CHECK(copy != NULL);
    size_t at = 0;
    for (size_t i = 0; i < spans.message.span_count; i++) {
        memcpy(copy + at, spans.message.spans[i].data, spans.message.spans[i].bytes);
        at += spans.message.spans[i].bytes;
    }
    spans_fini(&spans);
    rpc_pieces_release(pieces, piece_count);
    return (struct rpc_piece){
        .data = copy, .bytes = bytes, .release = free, .release_context = copy};
}

void
stream_mesh_piece(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    struct stream_request *request = call;
    struct answer_stream *stream = request->stream;
    const struct rpc_piece copy = copy_of(pieces, piece_count);
    const struct stream_answer answer = {.pieces = &copy, .piece_count = 1};
    struct stream_message *message = stream->carrier->make(request, &answer);
    message->mesh_bytes = copy.bytes;
    message->is_owed = true;
    pthread_mutex_lock(&stream->lock);
    bool is_sent = !stream->cancelled;
    if (is_sent) {
        send_message(stream, request, message);
        stream->carrier->changed(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    if (!is_sent)
        stream_message_drop(message);
}

/* A pipeline's end without outputs looks like this (request_sink.finish). */
static bool
has_outputs(const struct rpc_piece *message)
{
    enum { OUTPUTS = 5 }; /* of ModelInferResponse */
    const struct wire_span span = {message->data, message->bytes};
    const struct wire_message whole = {&span, 1, message->bytes};
    struct wire_cursor cursor = wire_begin(&whole);
    struct wire_field field;
    while (wire_next(&cursor, &field) == WIRE_FIELD)
        if (field.number == OUTPUTS)
            return true;
    return false;
}

void
stream_mesh_answer(void *call, const struct rpc_answer *answer)
{
    if (answer->status != STATUS_OK) {
        char *text = strndup(answer->text.bytes > 0 ? answer->text.data : "", answer->text.bytes);
        CHECK(text != NULL);
        rpc_pieces_release(answer->pieces, answer->piece_count);
        stream_sink_fail(call, answer->status, text);
        free(text);
        return;
    }
    const struct rpc_piece copy = copy_of(answer->pieces, answer->piece_count);
    if (has_outputs(&copy)) {
        stream_sink_reply(call, &copy, 1);
        return;
    }
    const struct stream_request *request = call;
    struct rpc_piece head = {.data = copy.data, .bytes = copy.bytes};
    if (copy.bytes == 0) /* of an external runtime that says no more than the end */
        head = (struct rpc_piece){.data = request->names, .bytes = request->names_bytes};
    stream_sink_finish(call, &head, 1);
    rpc_pieces_release(&copy, 1);
}

void
stream_mesh_refuse(void *call, enum status status, const char *text, uint32_t retry_ms)
{
    (void)retry_ms;
    stream_sink_fail(call, status, text);
}

/* ---- the stream ---- */

void
stream_init(struct answer_stream *stream, const struct stream_carrier *carrier,
            const struct dispatch *dispatch)
{
    *stream = (struct answer_stream){.carrier = carrier, .dispatch = dispatch};
    CHECK(pthread_mutex_init(&stream->lock, NULL) == 0);
}

void
stream_fini(struct answer_stream *stream)
{
    CHECK(stream->requests == NULL && stream->waiting.first == NULL);
    pthread_mutex_destroy(&stream->lock);
}

void
stream_add(struct answer_stream *stream, struct stream_request *request)
{
    pthread_mutex_lock(&stream->lock);
    request->stream = stream;
    request->next = stream->requests;
    if (request->next != NULL)
        request->next->prev = request;
    stream->requests = request;
    pthread_mutex_unlock(&stream->lock);
}

void
stream_remove(struct answer_stream *stream, struct stream_request *request)
{
    pthread_mutex_lock(&stream->lock);
    unlink_request(stream, request);
    free_if_done(request);
    pthread_mutex_unlock(&stream->lock);
}

/* The tags of the requests that are not answered; they may be answered meanwhile. */
static uint64_t *
tags_take(const struct answer_stream *stream, size_t *count)
{
    *count = 0;
    for (const struct stream_request *request = stream->requests; request != NULL;
         request = request->next)
        ++*count;
    uint64_t *tags = calloc(*count + 1, sizeof(*tags));
    CHECK(tags != NULL);
    size_t i = 0;
    for (const struct stream_request *request = stream->requests; request != NULL;
         request = request->next)
        tags[i++] = request->tag;
    return tags;
}

void
stream_cancel(struct answer_stream *stream)
{
    const struct dispatch *dispatch = stream->dispatch;
    struct stream_queue dropped = {0};
    struct stream_message *message;
    size_t count;
    pthread_mutex_lock(&stream->lock);
    stream->cancelled = true;
    uint64_t *tags = tags_take(stream, &count);
    while ((message = stream_queue_take(&stream->waiting)) != NULL) {
        (void)stream_forget(stream, message); /* its call ends */
        stream_queue_put(&dropped, message);
    }
    stream->carrier->changed(stream);
    pthread_mutex_unlock(&stream->lock);
    while ((message = stream_queue_take(&dropped)) != NULL)
        stream_message_drop(message);
    for (size_t i = 0; i < count; i++)
        dispatch_cancel(dispatch, tags[i]);
    free(tags);
}
