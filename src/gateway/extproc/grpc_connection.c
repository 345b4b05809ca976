/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: bytes in, frames through nghttp2, messages to the user, and back. The output of a
 * stream waits in `out`; nghttp2 takes it as windows allow, on_writable is asked for more. While
 * `out` is full, the client gets no new window, so neither side can make the other grow.
 */
#include <errno.h>
#include <event2/event.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "gateway/extproc/grpc_internal.h"
#include "http/http2_limits.h"

enum {
    STREAM_WINDOW_BYTES = 256 << 10,
    CONNECTION_WINDOW_BYTES = 16 << 20,
    IN_FIRST_BYTES = 64 << 10,
    OUT_HIGH_BYTES = 256 << 10, /* of a stream: the client's window stays shut above it */
    OUT_LOW_BYTES = 16 << 10,   /* of a stream: on_writable is asked below it */
    READS_PER_TURN = 4,
    HEADER_LIST_BYTES = 64 << 10, /* of a stream: a byte of HPACK may stand for 4 KiB */
};

/* nghttp2 wants names and values that it could change, but copies them. */
static nghttp2_nv
field(char *name, char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

/* ---- output ---- */

size_t
grpc_waiting(const struct grpc_stream *stream)
{
    return stream->out.used - stream->out_at;
}

/* Answers that nobody reads are held like messages that do not end: no large one comes beside. */
static void
out_count(struct grpc_stream *stream)
{
    uint64_t *held = &stream->connection->server->figures.held_bytes;
    *held = *held - stream->out_held + stream->out.capacity;
    stream->out_held = stream->out.capacity;
}

static void
out_put(struct grpc_stream *stream, const void *data, size_t bytes)
{
    struct bytes *out = &stream->out;
    if (stream->out_at > 0 && out->capacity - out->used < bytes) { /* reuse what was sent */
        memmove(out->data, out->data + stream->out_at, out->used - stream->out_at);
        out->used -= stream->out_at;
        stream->out_at = 0;
    }
    bytes_put(out, data, bytes);
    CHECK(!out->failed);
    out_count(stream);
}

static void
out_clear(struct grpc_stream *stream)
{
    bytes_fini(&stream->out);
    stream->out_at = 0;
    out_count(stream);
}

/* Grants the client what it has sent, unless our answers pile up. */
static void
consume(struct grpc_stream *stream)
{
    if (stream->unconsumed == 0 || grpc_waiting(stream) > OUT_HIGH_BYTES)
        return;
    CHECK(nghttp2_session_consume_stream(stream->connection->session, stream->id,
                                         stream->unconsumed) == 0);
    stream->unconsumed = 0;
}

static void
submit_trailers(struct grpc_stream *stream)
{
    static char status[] = "grpc-status";
    static char message[] = "grpc-message";
    char code[4];
    snprintf(code, sizeof(code), "%d", (int)stream->status);
    const nghttp2_nv fields[] = {field(status, code), field(message, stream->status_text)};
    size_t count = stream->status_text[0] != '\0' ? 2 : 1;
    CHECK(nghttp2_submit_trailer(stream->connection->session, stream->id, fields, count) == 0);
}

static ssize_t
on_data_wanted(nghttp2_session *session, int32_t id,
               uint8_t *to, // NOLINT(readability-non-const-parameter): nghttp2's type
               size_t room, uint32_t *flags, nghttp2_data_source *source, void *context)
{
    (void)session, (void)id, (void)to, (void)context;
    struct grpc_stream *stream = source->ptr;
    if (grpc_waiting(stream) < OUT_LOW_BYTES && stream->method != NULL &&
        stream->method->on_writable != NULL)
        stream->method->on_writable(stream);
    size_t waiting = grpc_waiting(stream);
    if (waiting == 0 && stream->is_ending) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(stream);
        return 0;
    }
    if (waiting == 0) {
        stream->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)(waiting < room ? waiting : room);
}

static int
on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t bytes,
             nghttp2_data_source *source, void *context)
{
    (void)session, (void)frame;
    struct grpc_connection *connection = context;
    struct grpc_stream *stream = source->ptr;
    if (connection->out.used > HTTP2_WRITE_BYTES)
        return NGHTTP2_ERR_WOULDBLOCK;
    bytes_put(&connection->out, head, HTTP2_DATA_HEAD_BYTES);
    bytes_put(&connection->out, stream->out.data + stream->out_at, bytes);
    CHECK(!connection->out.failed);
    stream->out_at += bytes;
    if (grpc_waiting(stream) == 0)
        out_clear(stream);
    consume(stream);
    return 0;
}

static ssize_t
on_send_frame(nghttp2_session *session, const uint8_t *data, size_t bytes, int flags, void *context)
{
    (void)session, (void)flags;
    struct grpc_connection *connection = context;
    if (connection->out.used > HTTP2_WRITE_BYTES)
        return NGHTTP2_ERR_WOULDBLOCK;
    bytes_put(&connection->out, data, bytes);
    CHECK(!connection->out.failed);
    return (ssize_t)bytes;
}

/* Writes what there is until the socket is full. Closes a connection that is over or broken. */
static void
flush(struct grpc_connection *connection)
{
    for (;;) {
        struct bytes *out = &connection->out;
        if (connection->out_at == out->used) {
            out->used = connection->out_at = 0;
            connection->is_running = true;
            int failure = nghttp2_session_send(connection->session);
            connection->is_running = false;
            if (failure != 0 || (out->used == 0 && !nghttp2_session_want_read(connection->session)))
                break;
            if (out->used == 0)
                return;
        }
        ssize_t sent = send(connection->fd, out->data + connection->out_at,
                            out->used - connection->out_at, MSG_NOSIGNAL);
        if (sent > 0) {
            connection->out_at += (size_t)sent;
        } else if (errno == EAGAIN) {
            CHECK(event_add(connection->writable, NULL) == 0);
            return;
        } else if (errno != EINTR) {
            break;
        }
    }
    grpc_connection_close(connection);
}

static void
on_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    flush(context);
}

/* Output follows: at the end of the input that is being handled, or in the loop's next turn. */
static void
will_flush(struct grpc_connection *connection)
{
    if (!connection->is_running)
        event_active(connection->writable, EV_WRITE, 0);
}

static void
begin(struct grpc_stream *stream)
{
    static char status[] = ":status";
    static char ok[] = "200";
    static char type[] = "content-type";
    static char grpc[] = "application/grpc";
    const nghttp2_nv fields[] = {field(status, ok), field(type, grpc)};
    nghttp2_data_provider provider = {.source = {.ptr = stream}, .read_callback = on_data_wanted};
    stream->has_begun = true;
    CHECK(nghttp2_submit_response(stream->connection->session, stream->id, fields,
                                  sizeof(fields) / sizeof(fields[0]), &provider) == 0);
}

static void
has_more(struct grpc_stream *stream)
{
    if (!stream->has_begun) {
        begin(stream);
    } else if (stream->is_deferred) {
        stream->is_deferred = false;
        CHECK(nghttp2_session_resume_data(stream->connection->session, stream->id) == 0);
    }
    will_flush(stream->connection);
}

void
grpc_send(struct grpc_stream *stream, const void *head, size_t head_bytes, const void *tail,
          size_t tail_bytes)
{
    CHECK(stream->method != NULL && head_bytes + tail_bytes <= UINT32_MAX);
    uint32_t bytes = (uint32_t)(head_bytes + tail_bytes);
    const unsigned char prefix[GRPC_PREFIX_BYTES] = {
        0, (unsigned char)(bytes >> 24), (unsigned char)(bytes >> 16), (unsigned char)(bytes >> 8),
        (unsigned char)bytes};
    out_put(stream, prefix, sizeof(prefix));
    out_put(stream, head, head_bytes);
    if (tail_bytes > 0)
        out_put(stream, tail, tail_bytes);
    grpc_stream_touch(stream);
    has_more(stream);
}

void
grpc_finish(struct grpc_stream *stream, enum status status, const char *text)
{
    CHECK(stream->method != NULL);
    stream->method = NULL;
    stream->is_ending = true;
    stream->status = status;
    snprintf(stream->status_text, sizeof(stream->status_text), "%s", text != NULL ? text : "");
    has_more(stream);
}

/* ---- streams ---- */

void
grpc_stream_set_user(struct grpc_stream *stream, void *user)
{
    stream->user = user;
}

void *
grpc_stream_user(const struct grpc_stream *stream)
{
    return stream->user;
}

static void
in_clear(struct grpc_stream *stream)
{
    grpc_hold_end(stream->connection->server, stream->in_held);
    stream->in_held = 0;
    bytes_fini(&stream->in);
}

static void
gone(struct grpc_stream *stream)
{
    const struct grpc_method *method = stream->method;
    stream->method = NULL;
    stream->is_ending = true;
    if (method != NULL && method->on_gone != NULL)
        method->on_gone(stream);
}

static void
stream_free(struct grpc_stream *stream)
{
    struct grpc_connection *connection = stream->connection;
    gone(stream);
    in_clear(stream);
    out_clear(stream);
    LIST_REMOVE(stream, link);
    TAILQ_REMOVE(&connection->server->streams, stream, by_time);
    connection->stream_count--;
    connection->server->figures.streams--;
    free(stream);
}

void
grpc_stream_expire(struct grpc_stream *stream)
{
    if (stream->is_ending || stream->method == NULL) { /* it does not read, or never opened */
        (void)nghttp2_submit_rst_stream(stream->connection->session, NGHTTP2_FLAG_NONE, stream->id,
                                        NGHTTP2_CANCEL);
        will_flush(stream->connection);
        return;
    }
    gone(stream);
    stream->status = STATUS_DEADLINE_EXCEEDED;
    snprintf(stream->status_text, sizeof(stream->status_text), "no message came for too long");
    has_more(stream);
}

static void
stream_open(struct grpc_stream *stream)
{
    const struct grpc_options *options = &stream->connection->server->options;
    for (size_t i = 0; i < options->method_count; i++)
        if (strcmp(stream->path, options->methods[i].path) == 0)
            stream->method = &options->methods[i];
    if (stream->method == NULL) {
        static const struct grpc_method none = {.path = ""};
        stream->method = &none;
        grpc_finish(stream, STATUS_UNIMPLEMENTED, "no such method is here");
        return;
    }
    stream->method->on_open(options->context, stream);
}

/* ---- messages ---- */

static void
deliver(struct grpc_stream *stream, const void *data, size_t bytes)
{
    stream->prefix_used = 0;
    grpc_stream_touch(stream);
    stream->method->on_message(stream, data, bytes);
}

static void
overflow(struct grpc_stream *stream, enum grpc_overflow why)
{
    stream->prefix_used = 0;
    in_clear(stream);
    if (stream->method->on_overflow != NULL)
        stream->method->on_overflow(stream, why);
    if (stream->method != NULL)
        grpc_finish(stream, STATUS_RESOURCE_EXHAUSTED, "the message is too large");
}

/* The prefix is complete. */
static void
message_begin(struct grpc_stream *stream)
{
    struct grpc_server *server = stream->connection->server;
    const unsigned char *prefix = stream->prefix;
    stream->message_bytes =
        (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 | prefix[4];
    if (prefix[0] != 0) {
        server->figures.malformed++;
        grpc_finish(stream, STATUS_UNIMPLEMENTED, "messages must not be compressed");
    } else if (stream->message_bytes > server->options.message_bytes_max) {
        server->figures.overflows++;
        overflow(stream, GRPC_MESSAGE_TOO_LARGE);
    } else if (stream->message_bytes == 0) {
        deliver(stream, "", 0);
    }
}

/* Holds what comes, not what the prefix declares. False: there is no room. */
static bool
message_reserve(struct grpc_stream *stream, size_t bytes)
{
    size_t needed = stream->in.used + bytes;
    size_t room = stream->in_held > 0 ? stream->in_held : IN_FIRST_BYTES;
    while (room < needed)
        room *= 2;
    if (room > stream->message_bytes)
        room = stream->message_bytes;
    if (room <= stream->in_held)
        return true;
    if (!grpc_hold(stream->connection->server, room - stream->in_held))
        return false;
    stream->in_held = room;
    CHECK(bytes_reserve(&stream->in, room - stream->in.used) != NULL);
    return true;
}

/* Takes bytes of a message; returns how many. */
static size_t
message_take(struct grpc_stream *stream, const uint8_t *data, size_t bytes)
{
    size_t missing = stream->message_bytes - stream->in.used;
    if (stream->in.data == NULL && bytes >= missing) {
        deliver(stream, data, missing);
        return missing;
    }
    size_t taken = bytes < missing ? bytes : missing;
    if (!message_reserve(stream, taken)) {
        overflow(stream, GRPC_HELD_FULL);
        return bytes;
    }
    bytes_put(&stream->in, data, taken);
    if (stream->in.used == stream->message_bytes) {
        deliver(stream, stream->in.data, stream->in.used);
        in_clear(stream);
    }
    return taken;
}

static void
feed(struct grpc_stream *stream, const uint8_t *data, size_t bytes)
{
    while (bytes > 0 && stream->method != NULL) {
        size_t taken;
        if (stream->prefix_used < GRPC_PREFIX_BYTES) {
            taken = GRPC_PREFIX_BYTES - stream->prefix_used;
            taken = bytes < taken ? bytes : taken;
            memcpy(stream->prefix + stream->prefix_used, data, taken);
            stream->prefix_used += taken;
            if (stream->prefix_used == GRPC_PREFIX_BYTES)
                message_begin(stream);
        } else {
            taken = message_take(stream, data, bytes);
        }
        data += taken;
        bytes -= taken;
    }
}

/* ---- what nghttp2 reports ---- */

static int
on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct grpc_connection *connection = context;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (connection->server->figures.streams >= connection->server->options.streams_max) {
        connection->server->figures.streams_reset++;
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    struct grpc_stream *stream = calloc(1, sizeof(*stream));
    CHECK(stream != NULL);
    stream->connection = connection;
    stream->id = frame->hd.stream_id;
    LIST_INSERT_HEAD(&connection->streams, stream, link);
    connection->stream_count++;
    connection->server->figures.streams++;
    grpc_stream_touch(stream);
    CHECK(nghttp2_session_set_stream_user_data(session, stream->id, stream) == 0);
    return 0;
}

static int
on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
          size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags, void *context)
{
    (void)flags;
    struct grpc_connection *connection = context;
    struct grpc_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream == NULL)
        return 0;
    stream->header_bytes += name_bytes + value_bytes + HTTP2_HEADER_COST_BYTES;
    if (stream->header_bytes > HEADER_LIST_BYTES) {
        connection->server->figures.malformed++;
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (name_bytes == 5 && memcmp(name, ":path", 5) == 0 && value_bytes < sizeof(stream->path))
        memcpy(stream->path, value, value_bytes);
    return 0;
}

static int
on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    (void)context;
    bool is_headers = frame->hd.type == NGHTTP2_HEADERS;
    if (!is_headers && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct grpc_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream == NULL)
        return 0;
    if (is_headers && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        stream_open(stream);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    stream->half_closed = true;
    if (stream->method != NULL)
        stream->method->on_half_close(stream);
    return 0;
}

static int
on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t bytes,
        void *context)
{
    (void)flags, (void)context;
    struct grpc_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    CHECK(nghttp2_session_consume_connection(session, bytes) == 0);
    if (stream == NULL)
        return 0;
    feed(stream, data, bytes);
    stream->unconsumed += bytes;
    consume(stream);
    return 0;
}

/* A client that still sends after our end is asked to stop. */
static int
on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct grpc_connection *connection = context;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        connection->server->figures.malformed++; /* nghttp2's judgement */
    if (frame->hd.type != NGHTTP2_HEADERS || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    const struct grpc_stream *stream =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream == NULL || stream->half_closed)
        return 0;
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                     NGHTTP2_NO_ERROR);
}

static int
on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *context)
{
    (void)code, (void)context;
    struct grpc_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    if (stream != NULL)
        stream_free(stream);
    return 0;
}

void
grpc_frames_init(struct grpc_server *server)
{
    nghttp2_session_callbacks *callbacks;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send_frame);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    server->option = http2_option_create();
    server->callbacks = callbacks;
}

void
grpc_frames_fini(struct grpc_server *server)
{
    nghttp2_session_callbacks_del(server->callbacks);
    nghttp2_option_del(server->option);
}

/* ---- connections ---- */

static void
on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct grpc_connection *connection = context;
    struct grpc_server *server = connection->server;
    ssize_t got = GRPC_INPUT_BYTES;
    TAILQ_REMOVE(&server->connections, connection, link);
    TAILQ_INSERT_TAIL(&server->connections, connection, link);
    for (int i = 0; i < READS_PER_TURN && got == GRPC_INPUT_BYTES; i++) {
        got = read(fd, server->input, GRPC_INPUT_BYTES);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (got <= 0) {
            grpc_connection_close(connection);
            return;
        }
        connection->is_running = true;
        ssize_t used = nghttp2_session_mem_recv(connection->session, server->input, (size_t)got);
        connection->is_running = false;
        if (used < 0 || http2_is_flooded(connection->session)) {
            server->figures.malformed++;
            grpc_connection_close(connection);
            return;
        }
    }
    flush(connection);
}

void
grpc_connection_open(struct grpc_server *server, int fd)
{
    struct grpc_connection *connection = calloc(1, sizeof(*connection));
    CHECK(connection != NULL);
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, server->options.streams_max},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_LIST_BYTES},
    };
    connection->server = server;
    connection->fd = fd;
    LIST_INIT(&connection->streams);
    TAILQ_INSERT_TAIL(&server->connections, connection, link);
    server->figures.connections++;
    CHECK(nghttp2_session_server_new2(&connection->session, server->callbacks, connection,
                                      server->option) == 0);
    CHECK(nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings,
                                  sizeof(settings) / sizeof(settings[0])) == 0);
    CHECK(nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0,
                                                CONNECTION_WINDOW_BYTES) == 0);
    connection->readable =
        event_new(server->base, fd, EV_READ | EV_PERSIST, on_readable, connection);
    connection->writable = event_new(server->base, fd, EV_WRITE, on_writable, connection);
    CHECK(connection->readable != NULL && connection->writable != NULL);
    CHECK(event_add(connection->readable, NULL) == 0);
    flush(connection);
}

/* The session goes last: the end of one stream may let the user send on another. */
void
grpc_connection_close(struct grpc_connection *connection)
{
    struct grpc_server *server = connection->server;
    connection->is_running = true;
    while (!LIST_EMPTY(&connection->streams))
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it leaves the list
        stream_free(LIST_FIRST(&connection->streams));
    nghttp2_session_del(connection->session);
    event_free(connection->readable);
    event_free(connection->writable);
    close(connection->fd);
    bytes_fini(&connection->out);
    TAILQ_REMOVE(&server->connections, connection, link);
    server->figures.connections--;
    free(connection);
}

void
grpc_connection_part(struct grpc_connection *connection)
{
    CHECK(nghttp2_submit_shutdown_notice(connection->session) == 0);
    will_flush(connection);
}
