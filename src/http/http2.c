/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a connection that speaks HTTP/2, through nghttp2. */
#include "http/http2.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/http2_limits.h"

enum {
    STREAM_WINDOW_BYTES = HTTP_READ_BYTES,
    CONNECTION_WINDOW_BYTES = 1 << 20,
    SLICE_BYTES = 8 << 10, /* of input, before others may have a turn */
    HEADS_PER_TURN = 16,
    FAULTS_PER_S = 100,
    ANSWER_HEAD_BYTES_MAX = 4 << 20, /* above what a server behind the gateway may send */
};

/* ---- output ---- */

static bool
is_full(const struct http2 *http2)
{
    return http_channel_output_bytes(&http2->connection->channel) > HTTP2_WRITE_BYTES;
}

static ssize_t
on_send_frame(nghttp2_session *session, const uint8_t *data, size_t bytes, int flags, void *context)
{
    (void)session, (void)flags;
    struct http2 *http2 = context;
    if (is_full(http2))
        return NGHTTP2_ERR_WOULDBLOCK;
    CHECK(evbuffer_add(http2->connection->channel.output, data, bytes) == 0);
    return (ssize_t)bytes;
}

static int
on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t bytes,
             nghttp2_data_source *source, void *context)
{
    (void)session, (void)frame;
    struct http2 *http2 = context;
    struct http2_stream *stream = source->ptr;
    struct evbuffer *output = http2->connection->channel.output;
    if (is_full(http2))
        return NGHTTP2_ERR_WOULDBLOCK;
    if (stream->is_cut) /* between the head of this frame and its bytes */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    CHECK(evbuffer_add(output, head, HTTP2_DATA_HEAD_BYTES) == 0);
    CHECK(evbuffer_remove_buffer(stream->out, output, bytes) == (int)bytes);
    http2_stream_on_sent(stream, bytes);
    return 0;
}

/* Our end of a stream was sent: a client that still sends is asked to stop. */
static int
on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct http2 *http2 = context;
    uint32_t code =
        frame->hd.type == NGHTTP2_RST_STREAM ? frame->rst_stream.error_code : NGHTTP2_NO_ERROR;
    if (code == NGHTTP2_PROTOCOL_ERROR || code == NGHTTP2_FLOW_CONTROL_ERROR ||
        code == NGHTTP2_FRAME_SIZE_ERROR || code == NGHTTP2_STREAM_CLOSED ||
        (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR))
        http2_note_fault(http2);
    bool is_end = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                  (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const struct http2_stream *stream =
        is_end ? nghttp2_session_get_stream_user_data(session, frame->hd.stream_id) : NULL;
    if (stream == NULL || stream->input_ended)
        return 0;
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                     NGHTTP2_NO_ERROR);
}

/* The last of the requests that are served. Said just before output, so that it is none that came
 * meanwhile. */
static void
say_last(struct http2 *http2)
{
    if (!http2->takes_no_more || http2->has_said_last)
        return;
    http2->has_said_last = true;
    CHECK(nghttp2_submit_goaway(http2->session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(http2->session),
                                NGHTTP2_NO_ERROR, NULL, 0) == 0);
}

void
http2_flush(struct http2 *http2, enum http2_moment moment)
{
    struct http_channel *channel = &http2->connection->channel;
    size_t before;
    bool has_framed;
    if (http2->is_running || http2->is_over)
        return;
    do {
        before = http_channel_output_bytes(channel);
        http2->is_running = true;
        say_last(http2);
        CHECK(nghttp2_session_send(http2->session) == 0);
        http2->is_running = false;
        has_framed = http_channel_output_bytes(channel) > before;
        if (moment == HTTP2_NOW)
            http_channel_flush(channel);
        else if (has_framed)
            http_channel_flush_later(channel);
    } while (has_framed && http_channel_output_bytes(channel) == 0);
}

/* ---- input ---- */

void
http2_note_fault(struct http2 *http2)
{
    int64_t now_s = clock_now_ns() / NS_PER_S;
    http_count(http2->connection->listener->pool, HTTP_REFUSED, 1);
    if (http2->fault_s != now_s)
        http2->fault_count = 0;
    http2->fault_s = now_s;
    if (++http2->fault_count == FAULTS_PER_S)
        CHECK(nghttp2_session_terminate_session(http2->session, NGHTTP2_ENHANCE_YOUR_CALM) == 0);
}

static int
on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct http2 *http2 = context;
    int32_t id = frame->hd.stream_id;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (http2->stream_count >= http2->connection->listener->service.streams_max) {
        http_count(http2->connection->listener->pool, HTTP_REFUSED, 1);
        CHECK(nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM) ==
              0);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    struct http2_stream *stream = http2_stream_open(http2, id);
    CHECK(nghttp2_session_set_stream_user_data(session, id, stream) == 0);
    return 0;
}

/* Fields of a trailer are judged by nghttp2, counted, and dropped. */
static int
on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name,
          nghttp2_rcbuf *value, uint8_t flags, void *context)
{
    (void)flags, (void)context;
    struct http2_stream *stream =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream == NULL)
        return 0;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        http2_head_take(stream, name, value);
        return 0;
    }
    stream->trailer_bytes += nghttp2_rcbuf_get_buf(name).len + nghttp2_rcbuf_get_buf(value).len +
                             HTTP2_HEADER_COST_BYTES;
    if (stream->trailer_bytes <= HTTP_TRAILER_BYTES_MAX)
        return 0;
    http2_note_fault(stream->http2);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* nghttp2 would skip a field with a malformed name or value: others may read it differently. */
static int
on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                  nghttp2_rcbuf *value, uint8_t flags, void *context)
{
    (void)session, (void)frame, (void)name, (void)value, (void)flags, (void)context;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int
on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct http2 *http2 = context;
    bool is_headers = frame->hd.type == NGHTTP2_HEADERS;
    if (!is_headers && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct http2_stream *stream =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream == NULL)
        return 0;
    stream->input_ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (is_headers && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        http2->turn_count++;
        http2_stream_on_head(stream);
    } else if (stream->input_ended) {
        http2_stream_on_end(stream);
    }
    return 0;
}

void
http2_consume(struct http2 *http2, size_t bytes)
{
    if (bytes > 0)
        CHECK(nghttp2_session_consume_connection(http2->session, bytes) == 0);
}

static int
on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t bytes,
        void *context)
{
    (void)flags;
    struct http2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    size_t kept = stream != NULL ? http2_stream_on_data(stream, (const char *)data, bytes) : 0;
    http2_consume(context, bytes - kept);
    return 0;
}

static int
on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *context)
{
    (void)code;
    struct http2 *http2 = context;
    struct http2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    if (stream != NULL)
        http2_stream_on_close(stream);
    http2->takes_no_more = http2->has_parted;
    return 0;
}

static void
take_input(struct http2 *http2)
{
    struct http_connection *connection = http2->connection;
    struct evbuffer *input = connection->channel.input;
    struct evbuffer_iovec piece;
    http2->turn_count = 0;
    while (!http2->is_over && evbuffer_peek(input, -1, NULL, &piece, 1) > 0 && piece.iov_len > 0) {
        size_t bytes = piece.iov_len < SLICE_BYTES ? piece.iov_len : SLICE_BYTES;
        if (http2->turn_count >= HEADS_PER_TURN) { /* let other connections have their turn */
            http_connection_run_later(connection);
            return;
        }
        http2->is_running = true;
        ssize_t used = nghttp2_session_mem_recv(http2->session, piece.iov_base, bytes);
        http2->is_running = false;
        evbuffer_drain(input, bytes);
        if (used >= 0 && !http2_is_flooded(http2->session))
            continue;
        http_count(connection->listener->pool, HTTP_REFUSED, 1);
        http2->is_over = true;
    }
}

/* ---- a turn ---- */

/* The last answer is complete; the client may still have to read it. */
static void
finish_output(struct http2 *http2)
{
    struct http_connection *connection = http2->connection;
    const struct http_pool *pool = connection->listener->pool;
    size_t waiting = http_channel_output_bytes(&connection->channel);
    if (waiting == 0 && http2->is_over)
        return; /* http2_run closes it */
    if (waiting == 0) {
        http2->output_due_ns = http2->due_ns = INT64_MAX;
        http_connection_enter(connection, HTTP_IDLE);
        http_connection_arm(connection);
        if (pool->server->is_draining || pool->server->is_parting)
            http2_part(http2);
    } else if (http2->output_due_ns == INT64_MAX) {
        http2->output_due_ns = http2->due_ns = clock_now_ns() + pool->options.write_timeout_ns +
                                               (int64_t)(waiting / HTTP_PACE_BYTES) * NS_PER_S;
        http_connection_arm(connection);
    }
}

void
http2_finish_turn(struct http2 *http2)
{
    struct http_connection *connection = http2->connection;
    http2->is_over = http2->is_over || (!nghttp2_session_want_read(http2->session) &&
                                        !nghttp2_session_want_write(http2->session));
    bool is_last = http2->is_over || http2->stream_count == 0;
    if (is_last && connection->state == HTTP_STREAMS)
        finish_output(http2);
    connection->channel.low_bytes = is_last ? 0 : HTTP_LOW_WATER_BYTES;
    connection->ahead_bytes = is_full(http2) ? 0 : HTTP_AHEAD_BYTES;
    bool may_close = http2->is_over && http_channel_output_bytes(&connection->channel) == 0;
    if (may_close || !TAILQ_EMPTY(&http2->news))
        http_connection_run_later(connection);
}

void
http2_run(struct http_connection *connection)
{
    struct http2 *http2 = connection->http2;
    struct http_server *server = connection->listener->pool->server;
    take_input(http2);
    http2_flush(http2, HTTP2_NOW);
    http2_notify_news(http2);
    http2_flush(http2, HTTP2_NOW);
    http2_finish_turn(http2);
    if (http2->is_over)
        http2_lose_streams(http2);
    if (http2->is_over && http_channel_output_bytes(&connection->channel) == 0)
        http_connection_linger(connection);
    if (server->is_draining)
        http_drain_look(server);
}

/* ---- life ---- */

static void
session_create(struct http2 *http2)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option = http2_option_create();
    nghttp2_option_set_max_send_header_block_length(option, ANSWER_HEAD_BYTES_MAX);
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send_frame);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback2(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    CHECK(nghttp2_session_server_new2(&http2->session, callbacks, http2, option) == 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
}

void
http2_begin(struct http_connection *connection)
{
    const struct http_service *service = &connection->listener->service;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, service->streams_max},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)service->header_bytes_max},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    struct http2 *http2 = calloc(1, sizeof(*http2));
    CHECK(http2 != NULL);
    http2->connection = connection;
    http2->due_ns = http2->output_due_ns = INT64_MAX;
    LIST_INIT(&http2->streams);
    TAILQ_INIT(&http2->news);
    session_create(http2);
    CHECK(nghttp2_submit_settings(http2->session, NGHTTP2_FLAG_NONE, settings,
                                  sizeof(settings) / sizeof(settings[0])) == 0);
    CHECK(nghttp2_session_set_local_window_size(http2->session, NGHTTP2_FLAG_NONE, 0,
                                                CONNECTION_WINDOW_BYTES) == 0);
    connection->http2 = http2;
    http_parser_fini(&connection->parser);
    if (connection->state != HTTP_IDLE)
        http_connection_enter(connection, HTTP_STREAMS); /* until its input was seen */
}

void
http2_part(struct http2 *http2)
{
    if (http2->is_over)
        return;
    if (!http2->has_parted)
        CHECK(nghttp2_submit_shutdown_notice(http2->session) == 0);
    http2->has_parted = true;
    if (http2->stream_count == 0)
        CHECK(nghttp2_session_terminate_session(http2->session, NGHTTP2_NO_ERROR) == 0);
    http2_flush(http2, HTTP2_NOW);
    if (http2->stream_count == 0)
        http_connection_run_later(http2->connection);
}

void
http2_say_end(struct http2 *http2)
{
    CHECK(!http2->is_running);
    if (http2->is_over)
        return;
    (void)nghttp2_session_terminate_session(http2->session, NGHTTP2_NO_ERROR);
    http2_flush(http2, HTTP2_NOW);
    http2->is_over = true;
}

void
http2_free(struct http2 *http2)
{
    if (http2 == NULL)
        return;
    CHECK(http2->stream_count == 0 && TAILQ_EMPTY(&http2->news));
    nghttp2_session_del(http2->session);
    free(http2);
}
