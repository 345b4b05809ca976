/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ownership. The stream lives from its first message until the stepping thread has ended the call,
 * which it does, by a post, when no request is left that could answer. A request lives from its
 * message until it has been answered and the last of its messages has left. Both are under the
 * stream's lock, which is taken within a lane's `pieces_lock` and never around a call to a
 * pipeline.
 */
#include "coordinator/front/stream_infer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/telemetry/trace_call.h"
#include "wire/wire.h"

/* Messages that gRPC has and has not sent; the others wait here. Fewer than its own limit. */
enum { GIVEN_MAX = 8 };

/* Bytes of a request's name and id that are sent back. More make a request that is refused. */
enum { NAMES_BYTES_MAX = 1 << 16 };

struct infer_stream;

struct stream_request {
    struct infer_stream *stream;
    struct stream_request *prev, *next; /* of those that are not answered */
    uint64_t tag;                       /* of the pipeline; 0: none yet */
    size_t unread;                      /* bytes of its messages that have not left */
    uint32_t messages;                  /* their number */
    bool answered;
    bool wants_end;     /* a last message even without outputs */
    size_t names_bytes; /* the model's name and the request's id, as fields of the answer */
    unsigned char names[];
};

struct stream_message {
    struct stream_message *next;
    struct stream_request *request;
    size_t bytes;
    unsigned char *data; /* what is not lent */
    size_t piece_count;
    struct rpc_piece pieces[];
};

struct stream_queue {
    struct stream_message *first, *last;
    uint32_t count;
};

struct infer_stream {
    pthread_mutex_t lock;
    const struct stream_infer *infer;
    struct rpc_call *call;
    struct rpc_queue *queue;
    struct rpc_post post;
    struct stream_request *requests; /* that are not answered */
    struct stream_queue waiting;
    struct stream_queue given; /* to gRPC, which has not sent them yet */
    size_t unread;             /* bytes of both */
    bool paused;               /* no request is read until less is unread; stepping thread */
    bool half_closed;
    bool cancelled;
    bool posted; /* it is about to end */
};

/* ---- messages, as bytes ---- */

enum { FIELD_ERROR = 1, FIELD_RESPONSE };                /* of ModelStreamInferResponse */
enum { FIELD_NAME = 1, FIELD_ID = 3, FIELD_PARAMETERS }; /* of ModelInferResponse */

/* An entry of its parameters: triton_final_response and an InferParameter with a bool_param, which
 * the last byte is. */
#define FINAL_NAME "triton_final_response"
enum { FINAL_NAME_BYTES = sizeof(FINAL_NAME) - 1, FINAL_BYTES = 2 + 2 + FINAL_NAME_BYTES + 4 };

static void
put_final(unsigned char *to, bool is_final)
{
    const unsigned char head[] = {FIELD_PARAMETERS << 3 | WIRE_BYTES, FINAL_BYTES - 2,
                                  1 << 3 | WIRE_BYTES, FINAL_NAME_BYTES};
    const unsigned char tail[] = {2 << 3 | WIRE_BYTES, 2, 1 << 3 | WIRE_VARINT, is_final};
    memcpy(to, head, sizeof(head));
    memcpy(to + sizeof(head), FINAL_NAME, FINAL_NAME_BYTES);
    memcpy(to + sizeof(head) + FINAL_NAME_BYTES, tail, sizeof(tail));
}

/* The parts of a message. */
struct stream_answer {
    const char *error; /* NULL: none */
    const struct rpc_piece *pieces;
    size_t piece_count;
    bool is_final;
};

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
    put_final(at, answer->is_final);
    at += FINAL_BYTES;
    *to++ = (struct rpc_piece){.data = copied, .bytes = (size_t)(at - copied)};
    message->piece_count = (size_t)(to - message->pieces);
}

static struct stream_message *
message_create(struct stream_request *request, const struct stream_answer *answer)
{
    size_t lent_count = 0;
    size_t copied_bytes = FINAL_BYTES;
    size_t bytes = FINAL_BYTES;
    for (size_t i = 0; i < answer->piece_count; i++) {
        bool is_lent = answer->pieces[i].release != NULL;
        lent_count += is_lent;
        bytes += answer->pieces[i].bytes;
        copied_bytes += is_lent ? 0 : answer->pieces[i].bytes;
    }
    size_t error_bytes = answer->error == NULL ? 0 : strlen(answer->error);
    size_t head_bytes = wire_head_bytes(FIELD_RESPONSE, bytes);
    if (answer->error != NULL)
        head_bytes += wire_head_bytes(FIELD_ERROR, error_bytes) + error_bytes;
    struct stream_message *message =
        calloc(1, sizeof(*message) + (2 * lent_count + 1) * sizeof(message->pieces[0]));
    CHECK(message != NULL);
    message->data = malloc(head_bytes + copied_bytes);
    CHECK(message->data != NULL);
    message->request = request;
    message->bytes = head_bytes + bytes;
    unsigned char *at = message->data;
    if (answer->error != NULL) {
        at += wire_put_head(at, FIELD_ERROR, error_bytes);
        memcpy(at, answer->error, error_bytes);
        at += error_bytes;
    }
    at += wire_put_head(at, FIELD_RESPONSE, bytes);
    fill(message, answer, at);
    return message;
}

static void
message_drop(struct stream_message *message)
{
    rpc_pieces_release(message->pieces, message->piece_count);
    free(message->data);
    free(message);
}

/* ---- under the stream's lock ---- */

static void
queue_put(struct stream_queue *queue, struct stream_message *message)
{
    message->next = NULL;
    if (queue->last != NULL)
        queue->last->next = message;
    else
        queue->first = message;
    queue->last = message;
    queue->count++;
}

static struct stream_message *
queue_take(struct stream_queue *queue)
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
settle_request(struct stream_request *request)
{
    if (request->answered && request->messages == 0)
        free(request);
}

/* It has left, or will not. */
static void
forget_message(struct infer_stream *stream, const struct stream_message *message)
{
    struct stream_request *request = message->request;
    stream->unread -= message->bytes;
    request->unread -= message->bytes;
    request->messages--;
    settle_request(request);
}

/* Gives gRPC what it may have; it takes over what is lent. */
static void
pump(struct infer_stream *stream)
{
    while (!stream->cancelled && stream->given.count < GIVEN_MAX && stream->waiting.first != NULL) {
        struct stream_message *message = queue_take(&stream->waiting);
        if (message->piece_count == 1) { /* all is ours: not copied once more */
            message->pieces[0].release = free;
            message->pieces[0].release_context = message->data;
            message->data = NULL;
        }
        /* CANCELLED: on_cancel follows; its own limit is higher */
        (void)!rpc_call_send(stream->call, message->pieces, message->piece_count);
        free(message->data);
        message->data = NULL;
        message->piece_count = 0;
        queue_put(&stream->given, message);
    }
}

/* Ends the stream if nothing is left to do. */
static void
settle(struct infer_stream *stream)
{
    bool is_over = stream->requests == NULL &&
                   (stream->cancelled || (stream->half_closed && stream->waiting.first == NULL));
    if (!is_over || stream->posted)
        return;
    stream->posted = true;
    rpc_queue_post(stream->queue, &stream->post);
}

static void
send_message(struct infer_stream *stream, struct stream_message *message)
{
    struct stream_request *request = message->request;
    stream->unread += message->bytes;
    request->unread += message->bytes;
    request->messages++;
    queue_put(&stream->waiting, message);
    pump(stream);
}

static void
link_request(struct infer_stream *stream, struct stream_request *request)
{
    request->stream = stream;
    request->next = stream->requests;
    if (request->next != NULL)
        request->next->prev = request;
    stream->requests = request;
}

static void
unlink_request(struct infer_stream *stream, struct stream_request *request)
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
    struct infer_stream *stream = request->stream;
    pthread_mutex_lock(&stream->lock);
    bool is_sent = answer != NULL && !stream->cancelled;
    unlink_request(stream, request);
    if (is_sent)
        send_message(stream, message_create(request, answer));
    else
        settle_request(request);
    settle(stream);
    pthread_mutex_unlock(&stream->lock);
    if (answer != NULL && !is_sent) /* outside the lock: a slot is given back */
        rpc_pieces_release(answer->pieces, answer->piece_count);
}

static void
fail_request(struct stream_request *request, const char *text)
{
    const struct rpc_piece names = {.data = request->names, .bytes = request->names_bytes};
    const struct stream_answer answer = {.error =
                                             text[0] == '\0' ? "failed without a reason" : text,
                                         .pieces = &names,
                                         .piece_count = 1,
                                         .is_final = true};
    end_request(request, &answer);
}

static void
sink_tagged(void *call, uint64_t tag)
{
    struct stream_request *request = call;
    struct infer_stream *stream = request->stream;
    pthread_mutex_lock(&stream->lock);
    request->tag = tag;
    bool cancelled = stream->cancelled; /* while it waited for a slot */
    pthread_mutex_unlock(&stream->lock);
    if (cancelled)
        dispatch_cancel(stream->infer->dispatch, tag);
}

static enum status
sink_piece(void *call, const struct rpc_piece *pieces, size_t piece_count, uint64_t unread_max)
{
    struct stream_request *request = call;
    struct infer_stream *stream = request->stream;
    const struct stream_answer answer = {.pieces = pieces, .piece_count = piece_count};
    struct stream_message *message = message_create(request, &answer);
    enum status status = STATUS_OK;
    pthread_mutex_lock(&stream->lock);
    if (stream->cancelled)
        status = STATUS_CANCELLED;
    else if (request->unread > 0 && request->unread + message->bytes > unread_max)
        status = STATUS_RESOURCE_EXHAUSTED;
    else
        send_message(stream, message);
    pthread_mutex_unlock(&stream->lock);
    if (status != STATUS_OK)
        message_drop(message);
    return status;
}

static void
sink_reply(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    const struct stream_answer answer = {
        .pieces = pieces, .piece_count = piece_count, .is_final = true};
    end_request(call, &answer);
}

static void
sink_finish(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    struct stream_request *request = call;
    const struct stream_answer answer = {
        .pieces = pieces, .piece_count = piece_count, .is_final = true};
    end_request(request, request->wants_end ? &answer : NULL);
}

static void
sink_fail(void *call, enum status status, const char *text)
{
    (void)status;
    fail_request(call, text);
}

static void
refuse(const struct stream_infer *infer, const struct submission *submission,
       const struct error *error)
{
    struct stream_request *request = submission->call;
    dispatch_refused(infer->dispatch, STREAM_INFER_PATH, submission->message->bytes,
                     submission->trace, error);
    if (error->status == STATUS_RESOURCE_EXHAUSTED)
        rpc_server_relieve(infer->server);
    fail_request(request, error->text);
}

/* It had to wait for a slot, and gets none. */
static void
sink_refused(const struct submission *submission, const struct error *error)
{
    struct target target = {NULL, submission->model, submission->model_held};
    target_leave(&target);
    refuse(submission->context, submission, error);
}

static const struct request_sink sink = {.tagged = sink_tagged,
                                         .reply = sink_reply,
                                         .piece = sink_piece,
                                         .finish = sink_finish,
                                         .fail = sink_fail,
                                         .refused = sink_refused};

/* ---- a request as a call that came in (entry/inbound.h) ---- */

static struct rpc_call *
call_of(const void *call)
{
    return ((const struct stream_request *)call)->stream->call;
}

static bool
metadata(const void *call, const char *key, size_t *position, struct wire_span *value)
{
    return rpc_call_metadata_next(call_of(call), key, position, value);
}

static bool
walk(void *call, size_t *position, struct rpc_metadata *entry)
{
    return rpc_call_metadata_walk(call_of(call), position, entry);
}

static bool
names(const void *call, void (*take)(void *context, const void *name, size_t bytes), void *context)
{
    return rpc_call_caller_names(call_of(call), take, context);
}

static size_t
address(const void *call, char *text, size_t room)
{
    return rpc_call_peer(call_of(call), text, room);
}

/* Not served in a mesh, so no other node answers. */
static const struct inbound_type request_type = {
    .metadata = metadata, .walk = walk, .names = names, .address = address, .sink = &sink};

static const struct trace_origin origin = {"inference.GRPCInferenceService/ModelStreamInfer",
                                           {{"rpc.system", "grpc"},
                                            {"rpc.service", "inference.GRPCInferenceService"},
                                            {"rpc.method", "ModelStreamInfer"}}};

/* Whether the parameter triton_enable_empty_final_response is true. */
static bool
wants_end(const struct wire_message *message)
{
    static const char wanted[] = "triton_enable_empty_final_response";
    enum { KEY = 1, VALUE = 2, BOOL = 1, KEY_BYTES = sizeof(wanted) - 1 };
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    while (wire_next(&cursor, &field) == WIRE_FIELD) {
        struct wire_cursor entry = field.data;
        struct wire_field part;
        bool is_it = false;
        if (field.number != FIELD_PARAMETERS || field.type != WIRE_BYTES)
            continue;
        while (wire_next(&entry, &part) == WIRE_FIELD) {
            char key[KEY_BYTES];
            if (part.number == KEY && part.type == WIRE_BYTES && part.value == KEY_BYTES) {
                wire_read(&part.data, key, KEY_BYTES);
                is_it = memcmp(key, wanted, KEY_BYTES) == 0;
            } else if (part.number == VALUE && part.type == WIRE_BYTES && is_it) {
                struct wire_cursor value = part.data;
                struct wire_field choice;
                return wire_next(&value, &choice) == WIRE_FIELD && choice.number == BOOL &&
                       choice.type == WIRE_VARINT && choice.value != 0;
            }
        }
    }
    return false;
}

static size_t
put_name(unsigned char *to, uint32_t number, struct wire_cursor name)
{
    size_t bytes = (size_t)name.left;
    if (bytes == 0)
        return 0;
    size_t head_bytes = wire_put_head(to, number, bytes);
    wire_read(&name, to + head_bytes, bytes);
    return wire_text_ok(to + head_bytes, bytes) ? head_bytes + bytes : 0;
}

static struct stream_request *
request_create(const struct wire_message *message)
{
    struct error error = ERROR_NONE; /* the decoder reports it */
    struct oip_head head = {.is_read = false};
    size_t room = 0;
    if (oip_head_read(&head, message, &error) == STATUS_OK &&
        head.name.left + head.id.left <= NAMES_BYTES_MAX)
        room = (size_t)(head.name.left + head.id.left) + (size_t)2 * WIRE_HEAD_BYTES_MAX;
    struct stream_request *request = calloc(1, sizeof(*request) + room);
    CHECK(request != NULL);
    request->wants_end = wants_end(message);
    if (room > 0) {
        request->names_bytes = put_name(request->names, FIELD_NAME, head.name);
        request->names_bytes += put_name(request->names + request->names_bytes, FIELD_ID, head.id);
    }
    return request;
}

/* ---- the stream, on the thread that steps its queue ---- */

static void
stream_end(struct rpc_post *post)
{
    struct infer_stream *stream =
        (struct infer_stream *)(void *)((char *)post - offsetof(struct infer_stream, post));
    struct stream_message *message;
    pthread_mutex_lock(&stream->lock); /* the thread that posted may still have it */
    bool cancelled = stream->cancelled;
    while ((message = queue_take(&stream->given)) != NULL) {
        forget_message(stream, message);
        message_drop(message);
    }
    CHECK(stream->requests == NULL && stream->waiting.first == NULL);
    pthread_mutex_unlock(&stream->lock);
    rpc_call_finish(stream->call, cancelled ? STATUS_CANCELLED : STATUS_OK, NULL);
    counter_add_shared(stream->infer->counters, NODE_STREAMS, (uint64_t)-1);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

static struct infer_stream *
stream_create(const struct stream_infer *infer, uint32_t queue, struct rpc_call *call)
{
    struct infer_stream *stream = calloc(1, sizeof(*stream));
    CHECK(stream != NULL && pthread_mutex_init(&stream->lock, NULL) == 0);
    stream->infer = infer;
    stream->call = call;
    stream->queue = rpc_server_queue(infer->server, queue);
    stream->post.run = stream_end;
    rpc_call_set_user(call, stream);
    /* only this thread ends the call: as long as it has the tag, the stream is there */
    rpc_call_set_tag(call, (uint64_t)(uintptr_t)stream);
    counter_add_shared(infer->counters, NODE_STREAMS, 1);
    return stream;
}

/* Reads the next request, or pauses until the caller has read more. */
static void
read_more(struct infer_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->paused = stream->unread >= STREAM_UNREAD_MAX;
    bool reads = !stream->paused && !stream->half_closed && !stream->cancelled;
    pthread_mutex_unlock(&stream->lock);
    if (reads)
        rpc_call_read(stream->call);
}

void
stream_infer_on_message(const struct stream_infer *infer, const struct stream_infer_thread *thread,
                        struct rpc_call *call, const struct wire_message *message)
{
    struct infer_stream *stream = rpc_call_user(call);
    struct error error = ERROR_NONE;
    if (stream == NULL)
        stream = stream_create(infer, thread->queue, call);
    struct stream_request *request = request_create(message);
    pthread_mutex_lock(&stream->lock);
    link_request(stream, request);
    pthread_mutex_unlock(&stream->lock);
    counter_add_shared(infer->counters, NODE_CALLS, 1);
    struct inbound inbound = {
        .type = &request_type,
        .call = request,
        .method = INBOUND_INFER,
        .message = message,
        .deadline_ns = rpc_call_deadline_ns(call),
        .trace = infer->tracer == NULL ? NULL : trace_call_begin(infer->tracer, &origin, call),
        .queue = thread->queue,
    };
    struct submission submission = dispatch_submission(&inbound, thread->builder);
    submission.context = (void *)(uintptr_t)infer;
    if (dispatch_infer(infer->dispatch, &inbound, NULL, &submission, &error) != STATUS_OK)
        refuse(infer, &submission, &error);
    read_more(stream);
}

void
stream_infer_on_half_close(struct rpc_call *call)
{
    struct infer_stream *stream = rpc_call_user(call);
    if (stream == NULL) { /* there was no request */
        rpc_call_finish(call, STATUS_OK, NULL);
        return;
    }
    pthread_mutex_lock(&stream->lock);
    stream->half_closed = true;
    settle(stream);
    pthread_mutex_unlock(&stream->lock);
}

/* The tags of the requests that are not answered; they may be answered meanwhile. */
static uint64_t *
tags_take(const struct infer_stream *stream, size_t *count)
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
stream_infer_on_cancel(uint64_t tag)
{
    struct infer_stream *stream = (struct infer_stream *)(uintptr_t)tag;
    struct stream_queue dropped = {0};
    struct stream_message *message;
    size_t count;
    if (stream == NULL)
        return;
    pthread_mutex_lock(&stream->lock);
    stream->cancelled = true;
    uint64_t *tags = tags_take(stream, &count);
    while ((message = queue_take(&stream->waiting)) != NULL) {
        forget_message(stream, message);
        queue_put(&dropped, message);
    }
    settle(stream);
    pthread_mutex_unlock(&stream->lock);
    const struct dispatch *dispatch = stream->infer->dispatch;
    while ((message = queue_take(&dropped)) != NULL)
        message_drop(message);
    for (size_t i = 0; i < count; i++)
        dispatch_cancel(dispatch, tags[i]);
    free(tags);
}

void
stream_infer_on_sent(uint64_t tag)
{
    struct infer_stream *stream = (struct infer_stream *)(uintptr_t)tag;
    pthread_mutex_lock(&stream->lock);
    struct stream_message *message = queue_take(&stream->given);
    if (message != NULL)
        forget_message(stream, message);
    pump(stream);
    settle(stream);
    bool paused = stream->paused;
    pthread_mutex_unlock(&stream->lock);
    free(message);
    if (paused)
        read_more(stream);
}
