/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of HTTP/2 is a request with its answer:
 *
 *     HEAD_IN -> BODY_IN -> OPEN -> ANSWERED -> (closed by nghttp2)
 *
 * It is freed when nghttp2 has closed it and its handler has answered. A paused body keeps the
 * stream's window shut, so that no more than one window of it is held; an answer that is not read
 * stays in `out`, and its handler is asked to wait.
 */
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/http2.h"

static struct http2_stream *
stream_of(const struct http_request *request)
{
    return (struct http2_stream *)((uintptr_t)request - offsetof(struct http2_stream, request));
}

static struct http_pool *
pool_of(const struct http2_stream *stream)
{
    return stream->http2->connection->listener->pool;
}

/* ---- time ---- */

static int64_t
timeout_of(const struct http2_stream *stream)
{
    const struct http_pool_options *options = &pool_of(stream)->options;
    bool waits = stream->request.waits;
    switch (stream->state) {
    case HTTP_HEAD_IN: return options->header_timeout_ns;
    case HTTP_BODY_IN:
        if (!stream->request.is_paused && !stream->request.is_free)
            return options->body_timeout_ns;
        return waits ? options->write_timeout_ns : 0;
    case HTTP_OPEN: return waits ? options->write_timeout_ns : 0;
    default: return options->write_timeout_ns;
    }
}

/* Returns when its time is over if nothing moves until then: the rules of a connection of
 * HTTP/1. */
static int64_t
due_of(const struct http2_stream *stream)
{
    int64_t timeout_ns = timeout_of(stream);
    int64_t pace_ns = (int64_t)(stream->moved / HTTP_PACE_BYTES) * NS_PER_S;
    int64_t silence_ns = stream->progress_ns + timeout_ns;
    int64_t whole_ns = stream->since_ns + timeout_ns + pace_ns;
    bool is_handlers =
        stream->state == HTTP_OPEN ||
        (stream->state == HTTP_BODY_IN && (stream->request.is_paused || stream->request.is_free));
    if (timeout_ns == 0 || stream->is_closed)
        return INT64_MAX;
    return is_handlers || silence_ns < whole_ns ? silence_ns : whole_ns;
}

static void
restart_time(struct http2_stream *stream)
{
    struct http2 *http2 = stream->http2;
    stream->since_ns = stream->progress_ns = clock_now_ns();
    stream->moved = stream->moved_before = 0;
    int64_t due_ns = due_of(stream);
    if (due_ns < http2->due_ns)
        http2->due_ns = due_ns;
    if (http2->connection->state == HTTP_STREAMS)
        http_connection_arm_at(http2->connection, http2->due_ns);
}

/* Keeps bytes of a paused body. Returns how many fill the connection's window: none while the pool
 * has room, so that other bodies of the connection go on. */
static size_t
input_keep(struct http2_stream *stream, const char *data, size_t bytes)
{
    struct http_pool *pool = pool_of(stream);
    bool has_room = bytes <= pool->options.paused_bytes_max - pool->paused_bytes;
    CHECK(evbuffer_add(stream->in, data, bytes) == 0);
    if (!has_room) {
        http_count(pool, HTTP_HELD_UP, 1);
        return bytes;
    }
    stream->paused_bytes += bytes;
    pool->paused_bytes += bytes;
    return 0;
}

/* So many of these bytes were handed over or dropped. */
static void
input_release(struct http2_stream *stream, size_t bytes)
{
    size_t counted = bytes < stream->paused_bytes ? bytes : stream->paused_bytes;
    stream->paused_bytes -= counted;
    pool_of(stream)->paused_bytes -= counted;
    http2_consume(stream->http2, bytes - counted);
}

/* Nobody wants the rest of the body. */
static void
drop_input(struct http2_stream *stream)
{
    size_t bytes = evbuffer_get_length(stream->in);
    evbuffer_drain(stream->in, bytes);
    input_release(stream, bytes);
}

static void
enter(struct http2_stream *stream, enum http_state state)
{
    CHECK(state > stream->state && state <= HTTP_ANSWERED);
    stream->state = state;
    if (state == HTTP_ANSWERED)
        drop_input(stream);
    restart_time(stream);
}

/* ---- life ---- */

struct http2_stream *
http2_stream_open(struct http2 *http2, int32_t id)
{
    struct http2_stream *stream = calloc(1, sizeof(*stream));
    CHECK(stream != NULL);
    stream->http2 = http2;
    stream->id = id;
    stream->in = evbuffer_new();
    stream->out = evbuffer_new();
    CHECK(stream->in != NULL && stream->out != NULL);
    stream->state = HTTP_HEAD_IN;
    stream->request.wire = &http2_wire;
    stream->request.connection = http2->connection;
    stream->request.head = &stream->parser;
    http_parser_init(&stream->parser, HTTP_PARSE_REQUEST,
                     http2->connection->listener->service.header_bytes_max);
    LIST_INSERT_HEAD(&http2->streams, stream, link);
    if (http2->connection->state == HTTP_IDLE)
        http_connection_enter(http2->connection, HTTP_STREAMS);
    http2->stream_count++;
    CHECK(http2->stream_count <= http2->connection->listener->service.streams_max);
    http2->output_due_ns = INT64_MAX;
    restart_time(stream);
    return stream;
}

static void
news_add(struct http2_stream *stream)
{
    if (!stream->has_news)
        TAILQ_INSERT_TAIL(&stream->http2->news, stream, news_link);
    stream->has_news = true;
}

static void
news_remove(struct http2_stream *stream)
{
    if (stream->has_news)
        TAILQ_REMOVE(&stream->http2->news, stream, news_link);
    stream->has_news = false;
}

static void
stream_free(struct http2_stream *stream)
{
    struct http2 *http2 = stream->http2;
    news_remove(stream);
    LIST_REMOVE(stream, link);
    CHECK(http2->stream_count > 0 && stream->is_closed);
    http2->stream_count--;
    http_request_clear(&stream->request, HTTP_FREE_ROOM);
    http2_head_fini(stream);
    http_parser_fini(&stream->parser);
    evbuffer_free(stream->in);
    evbuffer_free(stream->out);
    bytes_fini(&stream->trailers);
    free(stream);
}

static void
close_buffers(struct http2_stream *stream)
{
    stream->is_closed = true;
    drop_input(stream);
    evbuffer_drain(stream->out, evbuffer_get_length(stream->out));
}

void
http2_stream_on_close(struct http2_stream *stream)
{
    close_buffers(stream);
    if (stream->request.is_open)
        news_add(stream);
    else
        stream_free(stream);
}

bool
http2_is_answering(const struct http2 *http2)
{
    const struct http2_stream *stream;
    const struct http_connection *connection = http2->connection;
    LIST_FOREACH (stream, &http2->streams, link)
        if (stream->state == HTTP_ANSWERED && !stream->is_closed)
            return true;
    return connection->has_channel && http_channel_output_bytes(&connection->channel) > 0;
}

/* A handler that is notified may answer other requests too: the search begins anew. */
void
http2_lose_streams(struct http2 *http2)
{
    struct http2_stream *stream;
    struct http2_stream *next;
    for (stream = LIST_FIRST(&http2->streams); stream != NULL; stream = next) {
        next = LIST_NEXT(stream, link);
        close_buffers(stream);
        news_remove(stream);
        if (!stream->request.is_open)
            stream_free(stream);
    }
    do {
        LIST_FOREACH (stream, &http2->streams, link)
            // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was freed left the list
            if (!stream->request.is_gone)
                break;
        if (stream != NULL)
            http_request_lose(&stream->request);
    } while (stream != NULL);
}

void
http2_forget_streams(struct http2 *http2)
{
    while (!LIST_EMPTY(&http2->streams))
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it leaves the list
        stream_free(LIST_FIRST(&http2->streams));
}

/* ---- output ---- */

/* nghttp2 copies names, in small letters, and values. */
static nghttp2_nv
field(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static void
submit_trailers(struct http2_stream *stream)
{
    nghttp2_nv fields[HTTP2_TRAILERS_MAX];
    size_t count = 0;
    const char *end = stream->trailers.data + stream->trailers.used;
    for (const char *name = stream->trailers.data; name < end;) {
        const char *value = name + strlen(name) + 1;
        fields[count++] = field(name, value);
        name = value + strlen(value) + 1;
    }
    CHECK(nghttp2_submit_trailer(stream->http2->session, stream->id, fields, count) == 0);
}

static ssize_t
on_wanted(nghttp2_session *session, int32_t id,
          uint8_t *to, // NOLINT(readability-non-const-parameter): nghttp2's type
          size_t room, uint32_t *flags, nghttp2_data_source *source, void *context)
{
    (void)session, (void)id, (void)to, (void)context;
    struct http2_stream *stream = source->ptr;
    size_t waiting = evbuffer_get_length(stream->out);
    if (waiting == 0 && !stream->is_ending) {
        stream->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (waiting > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (waiting <= room && stream->is_ending)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (waiting <= room && stream->is_ending && stream->has_trailers) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(stream);
    }
    return (ssize_t)(waiting < room ? waiting : room);
}

void
http2_stream_on_sent(struct http2_stream *stream, size_t bytes)
{
    if (stream->state != HTTP_BODY_IN || stream->request.is_paused || stream->request.is_free)
        stream->moved += bytes;
    if (stream->request.waits && evbuffer_get_length(stream->out) <= HTTP_LOW_WATER_BYTES)
        news_add(stream);
}

static void
more(struct http2_stream *stream)
{
    if (!stream->is_deferred)
        return;
    stream->is_deferred = false;
    /* an error: nghttp2 is about to close it */
    (void)nghttp2_session_resume_data(stream->http2->session, stream->id);
}

static void
put(struct http2_stream *stream, const struct http_piece *piece)
{
    if (piece->bytes == 0 || stream->is_closed)
        http_pieces_release(piece, 1);
    else
        http_piece_add(stream->out, piece, 0);
}

static void
submit_head(struct http2_stream *stream, const struct http_message *message,
            const nghttp2_data_provider *provider)
{
    enum { OUR_FIELDS = 3 };
    char code[8];
    char length[24];
    size_t count = 0;
    nghttp2_nv *fields = calloc(message->header_count + OUR_FIELDS, sizeof(*fields));
    CHECK(fields != NULL);
    snprintf(code, sizeof(code), "%d", message->code);
    snprintf(length, sizeof(length), "%llu", (unsigned long long)message->body_bytes);
    fields[count++] = field(":status", code);
    for (size_t i = 0; i < message->header_count; i++)
        fields[count++] = field(message->headers[i].name, message->headers[i].value);
    if (message->framing == HTTP_FRAMED_BY_LENGTH)
        fields[count++] = field("content-length", length);
    fields[count++] = field("date", http_date(pool_of(stream)->server));
    CHECK(nghttp2_submit_response(stream->http2->session, stream->id, fields, count, provider) ==
          0);
    free(fields);
}

static void
send_message(struct http2_stream *stream, const struct http_message *message)
{
    const nghttp2_data_provider provider = {.source = {.ptr = stream}, .read_callback = on_wanted};
    for (size_t i = 0; i < message->piece_count; i++)
        put(stream, &message->pieces[i]);
    bool has_body =
        message->is_whole ? evbuffer_get_length(stream->out) > 0 : !stream->request.drops_body;
    stream->is_ending = message->is_whole;
    if (!stream->is_closed)
        submit_head(stream, message, has_body ? &provider : NULL);
}

/* ---- ends that the server decides ---- */

/* Its answer cannot be whole any more. */
static void
cut(struct http2_stream *stream, uint32_t code)
{
    evbuffer_drain(stream->out, evbuffer_get_length(stream->out));
    if (stream->is_closed)
        return;
    stream->is_cut = true;
    stream->is_ending = false;
    CHECK(nghttp2_submit_rst_stream(stream->http2->session, NGHTTP2_FLAG_NONE, stream->id, code) ==
          0);
    if (stream->state != HTTP_ANSWERED)
        enter(stream, HTTP_ANSWERED);
    else
        restart_time(stream);
}

/* Clients of gRPC read a status, and no body. */
static void
send_status(struct http2_stream *stream, int code, const char *text)
{
    const char *status = code == 408                                 ? "4"  /* DEADLINE_EXCEEDED */
                         : code == 413 || code == 414 || code == 431 ? "8"  /* RESOURCE_EXHAUSTED */
                                                                     : "3"; /* INVALID_ARGUMENT */
    const struct http_header headers[] = {
        {"content-type", "application/grpc"}, {"grpc-status", status}, {"grpc-message", text}};
    send_message(stream, &(struct http_message){.code = 200,
                                                .headers = headers,
                                                .header_count = ARRAY_COUNT(headers),
                                                .framing = HTTP_FRAMED_BY_NOTHING,
                                                .is_whole = true});
}

static void
send_refusal(struct http2_stream *stream, int code, const char *text)
{
    const struct http_service *service = &stream->http2->connection->listener->service;
    char body[HTTP_OWN_BODY_BYTES];
    const struct http_header header = {"Content-Type", http_own_body(service, text, body)};
    const struct http_piece piece = {.data = body, .bytes = strlen(body)};
    bool is_head =
        stream->parser.has_first_line && http_request_method(&stream->request) == HTTP_HEAD;
    send_message(stream, &(struct http_message){.code = code,
                                                .headers = &header,
                                                .header_count = 1,
                                                .body_bytes = piece.bytes,
                                                .pieces = &piece,
                                                .piece_count = is_head ? 0 : 1,
                                                .is_whole = true});
}

static void
refuse(struct http2_stream *stream, int code, const char *text)
{
    http2_note_fault(stream->http2);
    if (stream->request.answering == HTTP_ANSWER_NONE) {
        (stream->head.is_grpc ? send_status : send_refusal)(stream, code, text);
        enter(stream, HTTP_ANSWERED);
    } else {
        cut(stream, NGHTTP2_CANCEL);
    }
    http_request_lose(&stream->request);
}

static void
refuse_large(struct http2_stream *stream)
{
    char text[96];
    snprintf(text, sizeof(text), "the body has more than %llu bytes",
             (unsigned long long)stream->http2->connection->listener->service.body_bytes_max);
    refuse(stream, 413, text);
}

static void
refuse_head(struct http2_stream *stream)
{
    const struct http_parser *parser = &stream->parser;
    char text[HTTP_OWN_BODY_BYTES / 2];
    if (parser->code == 414 || parser->code == 431)
        snprintf(text, sizeof(text), "%s: more than %zu bytes, or %d headers", parser->mistake,
                 parser->bytes_max, HTTP_FIELDS_MAX);
    else
        snprintf(text, sizeof(text), "%s", parser->mistake);
    refuse(stream, parser->code, text);
}

static void
expire(struct http2_stream *stream)
{
    struct http_connection *connection = stream->http2->connection;
    bool may_answer =
        stream->state == HTTP_BODY_IN && stream->request.answering == HTTP_ANSWER_NONE;
    http_count(pool_of(stream), HTTP_TIMED_OUT, 1);
    if (stream->state == HTTP_HEAD_IN || stream->is_cut) {
        http_connection_close(connection);
    } else if (may_answer) {
        refuse(stream, 408, "the request took too long to arrive");
    } else {
        cut(stream, NGHTTP2_CANCEL);
        http_request_lose(&stream->request);
    }
}

/* The first whose time is over; counts what has moved. */
static struct http2_stream *
late_stream(struct http2 *http2, int64_t now_ns)
{
    struct http2_stream *stream;
    http2->due_ns = http2->output_due_ns;
    LIST_FOREACH (stream, &http2->streams, link) {
        if (stream->moved != stream->moved_before) {
            stream->moved_before = stream->moved;
            stream->progress_ns = now_ns;
        }
        int64_t due_ns = due_of(stream);
        if (due_ns <= now_ns)
            return stream;
        http2->due_ns = due_ns < http2->due_ns ? due_ns : http2->due_ns;
    }
    return NULL;
}

void
http2_on_time(struct http2 *http2, int64_t now_ns)
{
    struct http_connection *connection = http2->connection;
    struct http2_stream *stream;
    http_connection_hold(connection);
    while (connection->state == HTTP_STREAMS && (stream = late_stream(http2, now_ns)) != NULL)
        expire(stream);
    if (connection->state == HTTP_STREAMS && http2->output_due_ns <= now_ns) {
        http_count(connection->listener->pool, HTTP_TIMED_OUT, 1);
        http_connection_close(connection);
    }
    http_connection_run(connection);
    http_connection_release(connection);
}

/* ---- input ---- */

void
http2_stream_on_head(struct http2_stream *stream)
{
    const nghttp2_nv go_on = field(":status", "100");
    enum http_rest rest = stream->input_ended ? HTTP_NO_BODY : HTTP_BODY_FOLLOWS;
    uint64_t body_bytes_max = stream->http2->connection->listener->service.body_bytes_max;
    if (http2_head_end(stream, rest) == HTTP_BAD) {
        refuse_head(stream);
        return;
    }
    if (!http_request_find_path(&stream->request)) {
        refuse(stream, 400, "the path is malformed");
        return;
    }
    if (stream->parser.length > body_bytes_max) {
        refuse_large(stream);
        return;
    }
    http_request_on_head(&stream->request);
    if (stream->state != HTTP_HEAD_IN)
        return;
    enter(stream, HTTP_BODY_IN);
    if (rest == HTTP_NO_BODY)
        http2_stream_on_end(stream);
    else if (stream->parser.expects_continue && stream->request.answering == HTTP_ANSWER_NONE)
        CHECK(nghttp2_submit_headers(stream->http2->session, NGHTTP2_FLAG_NONE, stream->id, NULL,
                                     &go_on, 1, NULL) >= 0);
}

/* Hands the piece over, and lets the client send as much again. */
static void
hand_over(struct http2_stream *stream, const char *data, size_t bytes)
{
    stream->moved += bytes;
    http_request_on_body(&stream->request, data, bytes);
    if (stream->state == HTTP_BODY_IN && !stream->is_closed)
        CHECK(nghttp2_session_consume_stream(stream->http2->session, stream->id, bytes) == 0);
}

/* Input behind an answer is dropped, and its stream's window stays shut. */
size_t
http2_stream_on_data(struct http2_stream *stream, const char *data, size_t bytes)
{
    if (stream->state != HTTP_BODY_IN)
        return 0;
    stream->body_bytes += bytes;
    if (!stream->request.is_free &&
        stream->body_bytes > stream->http2->connection->listener->service.body_bytes_max) {
        refuse_large(stream);
        return 0;
    }
    if (stream->request.is_paused || evbuffer_get_length(stream->in) > 0)
        return input_keep(stream, data, bytes);
    hand_over(stream, data, bytes);
    return 0;
}

void
http2_stream_on_end(struct http2_stream *stream)
{
    if (stream->state != HTTP_BODY_IN || stream->request.is_paused ||
        evbuffer_get_length(stream->in) > 0)
        return;
    enter(stream, HTTP_OPEN);
    http_request_on_end(&stream->request);
}

/* The rest of a body that was paused. Taken out of `in`, which the handler empties if it answers.
 */
static void
input_resume(struct http2_stream *stream)
{
    struct evbuffer *rest = evbuffer_new();
    struct evbuffer_iovec piece;
    CHECK(rest != NULL && evbuffer_add_buffer(rest, stream->in) == 0);
    while (stream->state == HTTP_BODY_IN && !stream->request.is_paused &&
           evbuffer_peek(rest, -1, NULL, &piece, 1) > 0 && piece.iov_len > 0) {
        hand_over(stream, piece.iov_base, piece.iov_len);
        input_release(stream, piece.iov_len);
        evbuffer_drain(rest, piece.iov_len);
    }
    CHECK(evbuffer_add_buffer(stream->in, rest) == 0);
    evbuffer_free(rest);
    if (stream->state != HTTP_BODY_IN)
        drop_input(stream);
    if (stream->input_ended)
        http2_stream_on_end(stream);
}

void
http2_notify_news(struct http2 *http2)
{
    struct http2_stream *stream;
    http2->is_running = true;
    for (uint32_t left = http2->stream_count;
         left > 0 && (stream = TAILQ_FIRST(&http2->news)) != NULL; left--) {
        struct http_request *request = &stream->request;
        news_remove(stream);
        if (stream->is_closed) {
            http_request_lose(request);
            continue;
        }
        if (request->waits && evbuffer_get_length(stream->out) <= HTTP_LOW_WATER_BYTES) {
            request->waits = false;
            if (request->on_writable != NULL)
                request->on_writable(request);
        }
        input_resume(stream); /* which may be news, too */
    }
    http2->is_running = false;
}

/* ---- answers ---- */

static void
message(struct http_request *request, const struct http_message *message)
{
    send_message(stream_of(request), message);
    if (!message->is_whole)
        http2_flush(stream_of(request)->http2, HTTP2_NOW);
}

static void
write_piece(struct http_request *request, const struct http_piece *piece)
{
    struct http2_stream *stream = stream_of(request);
    put(stream, piece);
    more(stream);
    http2_flush(stream->http2, HTTP2_NOW);
}

static void
append_piece(struct http_request *request, const struct http_piece *piece)
{
    struct http2_stream *stream = stream_of(request);
    if (stream->is_closed)
        return;
    CHECK(evbuffer_add(stream->out, piece->data, piece->bytes) == 0);
    more(stream);
    http2_flush(stream->http2, HTTP2_LATER);
}

static void
end(struct http_request *request)
{
    struct http2_stream *stream = stream_of(request);
    stream->is_ending = true;
    if (!stream->is_closed)
        more(stream);
}

/* The handler has released it. */
static void
let_go(struct http2_stream *stream)
{
    struct http2 *http2 = stream->http2;
    struct http_connection *connection = http2->connection;
    http_connection_hold(connection);
    stream->request.is_open = false;
    if (stream->is_closed) {
        stream_free(stream);
    } else {
        http_request_clear(&stream->request, HTTP_FREE_ROOM);
        http_parser_fini(&stream->parser);
    }
    if (connection->state != HTTP_CLOSED && !http2->is_running) {
        http2_flush(http2, HTTP2_NOW);
        http2_finish_turn(http2);
    }
    http_connection_release(connection);
}

static void
answered(struct http_request *request)
{
    struct http2_stream *stream = stream_of(request);
    if (stream->state != HTTP_ANSWERED)
        enter(stream, HTTP_ANSWERED);
    let_go(stream);
}

static void
abort_answer(struct http_request *request)
{
    struct http2_stream *stream = stream_of(request);
    if (!request->is_gone)
        cut(stream, NGHTTP2_INTERNAL_ERROR);
    let_go(stream);
}

static size_t
waiting(const struct http_request *request)
{
    return evbuffer_get_length(stream_of(request)->out);
}

static void
wait_for_client(struct http_request *request)
{
    struct http2_stream *stream = stream_of(request);
    bool waited = request->waits;
    request->waits = true;
    if (!waited)
        restart_time(stream);
}

static void
resume(struct http_request *request)
{
    struct http2_stream *stream = stream_of(request);
    if (stream->is_closed)
        return;
    restart_time(stream);
    news_add(stream);
    http_connection_run_later(stream->http2->connection);
}

static void
put_trailers(struct http_request *request, const struct http_header *headers, size_t count)
{
    struct bytes *trailers = &stream_of(request)->trailers;
    CHECK(count <= HTTP2_TRAILERS_MAX);
    for (size_t i = 0; i < count; i++) {
        bytes_put(trailers, headers[i].name, strlen(headers[i].name) + 1);
        bytes_put(trailers, headers[i].value, strlen(headers[i].value) + 1);
    }
    CHECK(!trailers->failed);
    stream_of(request)->has_trailers = count > 0;
}

const struct http_wire http2_wire = {
    .message = message,
    .write = write_piece,
    .append = append_piece,
    .end = end,
    .answered = answered,
    .abort = abort_answer,
    .waiting = waiting,
    .wait = wait_for_client,
    .resume = resume,
    .trailers = put_trailers,
};
