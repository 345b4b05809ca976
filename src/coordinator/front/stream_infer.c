/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream lives from its first message until the stepping thread has ended the call, which it
 * does, by a post, when no request is left that could answer.
 */
#include "coordinator/front/stream_infer.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/front/stream.h"
#include "coordinator/telemetry/trace_call.h"
#include "wire/wire.h"

/* Messages that gRPC has and has not sent; the others wait here. Fewer than its own limit. */
enum { GIVEN_MAX = 8 };

/* Bytes of a request's name and id that are sent back. More make a request that is refused. */
enum { NAMES_BYTES_MAX = 1 << 16 };

struct infer_stream {
    struct answer_stream base; /* its lock is that of what follows, too */
    const struct stream_infer *infer;
    struct rpc_call *call;
    struct rpc_queue *queue;
    struct rpc_post post;
    struct stream_queue given; /* to gRPC, which has not sent them yet */
    bool paused;               /* no request is read until less is unread; stepping thread */
    bool half_closed;
    bool posted; /* it is about to end */
};

static struct infer_stream *
infer_stream_of(struct answer_stream *base)
{
    return (struct infer_stream *)(void *)((char *)base - offsetof(struct infer_stream, base));
}

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

/* A ModelStreamInferResponse. */
static struct stream_message *
make(struct stream_request *request, const struct stream_answer *answer)
{
    (void)request;
    size_t bytes = stream_answer_bytes(answer) + FINAL_BYTES;
    size_t error_bytes = answer->error == NULL ? 0 : strlen(answer->error);
    size_t head_bytes = wire_head_bytes(FIELD_RESPONSE, bytes);
    if (answer->error != NULL)
        head_bytes += wire_head_bytes(FIELD_ERROR, error_bytes) + error_bytes;
    struct stream_message *message = stream_message_create(answer, head_bytes, FINAL_BYTES);
    unsigned char *at = message->data;
    if (answer->error != NULL) {
        at += wire_put_head(at, FIELD_ERROR, error_bytes);
        memcpy(at, answer->error, error_bytes);
        at += error_bytes;
    }
    wire_put_head(at, FIELD_RESPONSE, bytes);
    put_final(message->data + message->data_bytes - FINAL_BYTES, answer->is_final);
    return message;
}

/* ---- under the stream's lock ---- */

/* Gives gRPC what it may have; it takes over what is lent. */
static void
pump(struct infer_stream *stream)
{
    struct stream_queue *waiting = &stream->base.waiting;
    while (!stream->base.cancelled && stream->given.count < GIVEN_MAX && waiting->first != NULL) {
        struct stream_message *message = stream_queue_take(waiting);
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
        stream_queue_put(&stream->given, message);
    }
}

/* Ends the stream if nothing is left to do. */
static void
end_if_done(struct infer_stream *stream)
{
    const struct answer_stream *base = &stream->base;
    bool is_over = base->requests == NULL &&
                   (base->cancelled || (stream->half_closed && base->waiting.first == NULL));
    if (!is_over || stream->posted)
        return;
    stream->posted = true;
    rpc_queue_post(stream->queue, &stream->post);
}

static void
changed(struct answer_stream *base)
{
    struct infer_stream *stream = infer_stream_of(base);
    pump(stream);
    end_if_done(stream);
}

static const struct stream_carrier carrier = {.make = make, .changed = changed};

/* ---- a request's answers, on any thread ---- */

static void
refuse(const struct stream_infer *infer, const struct submission *submission,
       const struct error *error)
{
    struct stream_request *request = submission->call;
    dispatch_refused(infer->dispatch, STREAM_INFER_PATH, submission->message->bytes,
                     submission->trace, error);
    if (error->status == STATUS_RESOURCE_EXHAUSTED)
        rpc_server_relieve(infer->server);
    stream_sink_fail(request, error->status, error->text);
}

/* It had to wait for a slot, and gets none. */
static void
sink_refused(const struct submission *submission, const struct error *error)
{
    struct target target = {NULL, submission->model, submission->model_held};
    target_leave(&target);
    refuse(submission->context, submission, error);
}

static const struct request_sink sink = {.tagged = stream_sink_tagged,
                                         .reply = stream_sink_reply,
                                         .piece = stream_sink_piece,
                                         .finish = stream_sink_finish,
                                         .fail = stream_sink_fail,
                                         .refused = sink_refused};

/* ---- a request as a call that came in (entry/inbound.h) ---- */

static struct rpc_call *
call_of(const void *call)
{
    return infer_stream_of(((const struct stream_request *)call)->stream)->call;
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

static const struct inbound_type request_type = {.metadata = metadata,
                                                 .walk = walk,
                                                 .names = names,
                                                 .address = address,
                                                 .sink = &sink,
                                                 .answer = stream_mesh_answer,
                                                 .refuse = stream_mesh_refuse,
                                                 .piece = stream_mesh_piece};

static const struct trace_origin origin = {"inference.GRPCInferenceService/ModelStreamInfer",
                                           {{"rpc.system", "grpc"},
                                            {"rpc.service", "inference.GRPCInferenceService"},
                                            {"rpc.method", "ModelStreamInfer"}}};

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
    request->wants_end = wire_map_is_true(wire_begin(message), FIELD_PARAMETERS,
                                          "triton_enable_empty_final_response");
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
    pthread_mutex_lock(&stream->base.lock); /* the thread that posted may still have it */
    bool cancelled = stream->base.cancelled;
    while ((message = stream_queue_take(&stream->given)) != NULL) {
        (void)stream_forget(&stream->base, message); /* its call has ended */
        stream_message_drop(message);
    }
    pthread_mutex_unlock(&stream->base.lock);
    rpc_call_finish(stream->call, cancelled ? STATUS_CANCELLED : STATUS_OK, NULL);
    counter_add_shared(stream->infer->counters, NODE_STREAMS, (uint64_t)-1);
    stream_fini(&stream->base);
    free(stream);
}

static struct infer_stream *
stream_create(const struct stream_infer *infer, uint32_t queue, struct rpc_call *call)
{
    struct infer_stream *stream = calloc(1, sizeof(*stream));
    CHECK(stream != NULL);
    stream_init(&stream->base, &carrier, infer->dispatch);
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
    pthread_mutex_lock(&stream->base.lock);
    stream->paused = stream->base.unread >= STREAM_UNREAD_MAX;
    bool reads = !stream->paused && !stream->half_closed && !stream->base.cancelled;
    pthread_mutex_unlock(&stream->base.lock);
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
    stream_add(&stream->base, request);
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
    pthread_mutex_lock(&stream->base.lock);
    stream->half_closed = true;
    end_if_done(stream);
    pthread_mutex_unlock(&stream->base.lock);
}

void
stream_infer_on_cancel(uint64_t tag)
{
    struct infer_stream *stream = (struct infer_stream *)(uintptr_t)tag;
    if (stream != NULL)
        stream_cancel(&stream->base);
}

void
stream_infer_on_sent(uint64_t tag)
{
    struct infer_stream *stream = (struct infer_stream *)(uintptr_t)tag;
    pthread_mutex_lock(&stream->base.lock);
    struct stream_message *message = stream_queue_take(&stream->given);
    struct stream_credit credit = {0};
    if (message != NULL)
        credit = stream_forget(&stream->base, message);
    pump(stream);
    end_if_done(stream);
    bool paused = stream->paused;
    pthread_mutex_unlock(&stream->base.lock);
    free(message);
    stream_give_back(&stream->base, credit);
    if (paused)
        read_more(stream);
}
