/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A turn on the HTTP thread writes what has come. At most one is posted or runs; the one that finds
 * the request answered and nothing waiting ends the call.
 */
#include "coordinator/front/rest_stream.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/front/stream.h"
#include "loop/loop.h"
#include "rpc/spans.h"

enum {
    TURN_BYTES = 64 << 10,   /* of messages, before other connections have their turn */
    COPIED_BYTES = 16 << 10, /* of an event that is sent together with others */
};

/* The time that a node that stops waits for clients to read: as for those of other answers. */
#define PATIENCE_NS NS_PER_S

struct rest_stream {
    struct answer_stream base; /* its lock is that of the next one, too */
    bool posted;               /* a turn is, or runs */
    bool waits;                /* for the client to read; HTTP thread, as the next */
    bool has_begun;
    struct rest_call *call;
    struct stream_request *request;
    LIST_ENTRY(rest_stream) link; /* in the front */
};

static struct rest_stream *
rest_stream_of(struct answer_stream *base)
{
    return (struct rest_stream *)(void *)((char *)base - offsetof(struct rest_stream, base));
}

/* A weight of zero means that the client does not take the type (RFC 9110, 12.5.1). */
static bool
has_weight(const char *parameters, const char *end)
{
    while (parameters < end) {
        parameters += strspn(parameters, "; \t");
        if (strncasecmp(parameters, "q=", 2) == 0)
            return strspn(parameters + 2, "0.") < strcspn(parameters + 2, ",; \t");
        parameters += strcspn(parameters, ",;");
    }
    return true;
}

static bool
takes_events(const char *accept)
{
    static const char type[] = "text/event-stream";
    while (*accept != '\0') {
        accept += strspn(accept, ", \t");
        size_t bytes = strcspn(accept, ",; \t");
        const char *end = accept + strcspn(accept, ",");
        if (bytes == sizeof(type) - 1 && strncasecmp(accept, type, bytes) == 0 &&
            has_weight(accept + bytes, end))
            return true;
        accept = end;
    }
    return false;
}

bool
rest_stream_is_wanted(const struct http_request *request)
{
    size_t position = 0;
    const char *name, *value;
    while (http_request_header_walk(request, &position, &name, &value))
        if (strcasecmp(name, "Accept") == 0 && takes_events(value))
            return true;
    return false;
}

/* ---- to the client ---- */

static void post_turn(struct answer_stream *base);

static void
on_writable(struct http_request *request)
{
    struct rest_call *call = http_request_user(request);
    if (call == NULL)
        return; /* the deadline has passed */
    struct rest_stream *stream = call->stream;
    stream->waits = false;
    pthread_mutex_lock(&stream->base.lock);
    post_turn(&stream->base);
    pthread_mutex_unlock(&stream->base.lock);
}

static void
begin(struct rest_call *call)
{
    static const struct http_header headers[] = {{"Content-Type", "text/event-stream"},
                                                 {"Cache-Control", "no-cache"}};
    if (!call->stream->has_begun)
        http_answer_begin(call->request, 200, headers, ARRAY_COUNT(headers), on_writable);
    call->stream->has_begun = true;
}

/* Begins an event, which send_event ends and sends. */
static struct bytes
event_begin(void)
{
    struct bytes text = {0};
    bytes_put_text(&text, "data: ");
    return text;
}

static enum status
send_event(struct rest_call *call, struct bytes *text, struct error *error)
{
    struct http_piece piece = {.release = free};
    bytes_put_text(text, "\n\n");
    if (text->failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to write the answer");
    piece.data = piece.release_context = bytes_take(text, &piece.bytes);
    begin(call);
    enum http_flow flow = piece.bytes <= COPIED_BYTES ? http_answer_append(call->request, &piece)
                                                      : http_answer_write(call->request, &piece);
    if (flow == HTTP_WAIT)
        call->stream->waits = true;
    return STATUS_OK;
}

static enum status
send_message(struct rest_call *call, const struct wire_message *response, enum oip_json_part part,
             struct error *error)
{
    struct bytes text = event_begin();
    enum status status = oip_json_append(call->json, response, part, &text, error);
    if (status == STATUS_OK)
        status = send_event(call, &text, error);
    bytes_fini(&text);
    return status;
}

/* Releases the request, whose end the client has. */
static void
end_answer(struct rest_call *call)
{
    struct http_request *request = call->request;
    call->request = NULL;
    http_request_set_user(request, NULL);
    http_answer_end(request);
}

static void
events_fail(struct rest_call *call, enum status status, const char *text)
{
    struct http_request *request = call->request;
    if (call->stream->has_begun) {
        struct error ignored = ERROR_NONE; /* without memory it ends without a reason */
        struct bytes event = event_begin();
        oip_json_put_error(&event, text);
        (void)!send_event(call, &event, &ignored);
        bytes_fini(&event);
        end_answer(call);
    } else {
        call->request = NULL;
        http_request_set_user(request, NULL);
        rest_answer_error(request, rest_code(status), text, call->retry_ms);
    }
    rest_call_cancel(call);
}

/* ---- messages, on the HTTP thread ---- */

static void
take_message(struct rest_call *call, const struct stream_message *message)
{
    struct error error = {.status = message->status};
    struct rpc_spans spans;
    if (call->request == NULL)
        return;
    if (message->status != STATUS_OK) {
        events_fail(call, message->status, (const char *)message->data);
        return;
    }
    spans_of_pieces(&spans, message->pieces, message->piece_count);
    enum oip_json_part part = message->is_final ? OIP_JSON_LAST : OIP_JSON_PIECE;
    if (send_message(call, &spans.message, part, &error) != STATUS_OK)
        events_fail(call, error.status, error.text);
    spans_fini(&spans);
}

static void
finish(struct rest_call *call)
{
    struct rest *rest = call->rest;
    loop_timer_destroy(call->timer);
    call->timer = NULL;
    if (call->request != NULL) {
        begin(call); /* there was no message */
        end_answer(call);
    }
    rest_call_free(call);
    rest_one_answered(rest);
}

static void
turn(void *context)
{
    struct rest_stream *stream = context;
    struct answer_stream *base = &stream->base;
    size_t bytes = 0;
    for (;;) {
        pthread_mutex_lock(&base->lock);
        bool takes = !stream->waits && bytes < TURN_BYTES;
        struct stream_message *message = takes ? stream_queue_take(&base->waiting) : NULL;
        bool is_over = message == NULL && base->requests == NULL && base->waiting.first == NULL;
        stream->posted = message != NULL;
        if (message == NULL && !is_over && !stream->waits && base->waiting.first != NULL)
            post_turn(base);
        pthread_mutex_unlock(&base->lock);
        if (is_over)
            finish(stream->call);
        if (message == NULL)
            return;
        bytes += message->bytes;
        take_message(stream->call, message);
        pthread_mutex_lock(&base->lock);
        struct stream_credit credit = stream_forget(base, message);
        pthread_mutex_unlock(&base->lock);
        stream_give_back(base, credit);
        stream_message_drop(message);
    }
}

/* ---- messages, on any thread ---- */

static void
post_turn(struct answer_stream *base)
{
    struct rest_stream *stream = rest_stream_of(base);
    if (stream->posted)
        return;
    stream->posted = true;
    http_thread_post(stream->call->rest->thread, turn, stream);
}

static struct stream_message *
make(struct stream_request *request, const struct stream_answer *answer)
{
    (void)request;
    size_t bytes = answer->error == NULL ? 0 : strlen(answer->error) + 1;
    struct stream_message *message = stream_message_create(answer, bytes, 0);
    if (answer->error != NULL)
        memcpy(message->data, answer->error, bytes);
    return message;
}

static const struct stream_carrier carrier = {.make = make, .changed = post_turn};

/* Copies what is lent or kept, so that a slot does not wait for a client. */
static void
sink_reply(void *request, const struct rpc_piece *pieces, size_t piece_count)
{
    struct rpc_spans spans;
    spans_of_pieces(&spans, pieces, piece_count);
    size_t count = spans.message.span_count;
    struct rpc_piece *copied = calloc(count + 1, sizeof(*copied));
    CHECK(copied != NULL);
    for (size_t i = 0; i < count; i++) {
        const struct wire_span *span = &spans.message.spans[i];
        copied[i] = (struct rpc_piece){.data = span->data, .bytes = span->bytes};
    }
    stream_sink_reply(request, copied, count);
    free(copied);
    spans_fini(&spans);
    rpc_pieces_release(pieces, piece_count);
}

/* It had to wait for a slot, and gets none. */
static void
sink_refused(const struct submission *submission, const struct error *error)
{
    struct stream_request *request = submission->call;
    struct rest_call *call = rest_stream_of(request->stream)->call;
    struct target target = {NULL, submission->model, submission->model_held};
    target_leave(&target);
    dispatch_refused(&call->rest->dispatch, INBOUND_INFER, submission->message->bytes,
                     submission->trace, error);
    call->retry_ms = submission->retry_ms;
    stream_sink_fail(request, error->status, error->text);
}

static const struct request_sink sink = {.tagged = stream_sink_tagged,
                                         .reply = sink_reply,
                                         .piece = stream_sink_piece,
                                         .finish = stream_sink_finish,
                                         .fail = stream_sink_fail,
                                         .refused = sink_refused};

static void
events_tagged(struct rest_call *call, uint64_t tag)
{
    stream_sink_tagged(call->stream->request, tag);
}

static void
events_piece(struct rest_call *call, const struct rpc_piece *pieces, size_t piece_count)
{
    stream_mesh_piece(call->stream->request, pieces, piece_count);
}

static void
events_answer(struct rest_call *call, const struct rpc_answer *answer)
{
    stream_mesh_answer(call->stream->request, answer);
}

/* ---- life ---- */

static void
events_cancel(struct rest_call *call)
{
    stream_cancel(&call->stream->base);
}

static void
events_destroy(struct rest_stream *stream)
{
    struct rest *rest = stream->call->rest;
    if (stream->base.requests != NULL) /* it was refused */
        stream_remove(&stream->base, stream->request);
    LIST_REMOVE(stream, link);
    if (LIST_EMPTY(&rest->streams)) {
        loop_timer_destroy(rest->patience);
        rest->patience = NULL;
    }
    counter_add_shared(rest->node.counters, NODE_STREAMS, (uint64_t)-1);
    stream_fini(&stream->base);
    free(stream);
}

static const struct rest_stream_type stream_type = {.cancel = events_cancel,
                                                    .fail = events_fail,
                                                    .tagged = events_tagged,
                                                    .piece = events_piece,
                                                    .answer = events_answer,
                                                    .destroy = events_destroy};

void
rest_stream_open(struct rest_call *call)
{
    struct rest_stream *stream = calloc(1, sizeof(*stream));
    struct stream_request *request = calloc(1, sizeof(*request));
    CHECK(stream != NULL && request != NULL);
    stream_init(&stream->base, &carrier, &call->rest->dispatch);
    stream->call = call;
    stream->request = request;
    request->wants_end = oip_json_wants_end(call->json);
    stream_add(&stream->base, request);
    call->stream = stream;
    call->stream_type = &stream_type;
    LIST_INSERT_HEAD(&call->rest->streams, stream, link);
    counter_add_shared(call->rest->node.counters, NODE_STREAMS, 1);
}

void
rest_stream_direct(const struct rest_call *call, struct submission *submission)
{
    submission->sink = &sink;
    submission->call = call->stream->request;
}

/* ---- the node stops ---- */

static void
on_patience_over(void *context)
{
    struct rest *rest = context;
    struct rest_stream *stream;
    LIST_FOREACH (stream, &rest->streams, link) {
        struct rest_call *call = stream->call;
        struct http_request *request = call->request;
        if (request == NULL || !stream->has_begun)
            continue;
        call->request = NULL;
        http_request_set_user(request, NULL);
        http_answer_abort(request);
        rest_call_cancel(call); /* its turn, which this posts, ends the call */
    }
    loop_timer_set(rest->patience, PATIENCE_NS); /* for one that has not begun */
}

void
rest_streams_stop(void *context)
{
    struct rest *rest = context;
    if (LIST_EMPTY(&rest->streams) || rest->patience != NULL)
        return;
    rest->patience =
        loop_timer_create(loop_base(http_thread_loop(rest->thread)), on_patience_over, rest);
    loop_timer_set(rest->patience, PATIENCE_NS);
}
