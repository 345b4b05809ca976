/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as handlers see them, and their answers. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "http/internal.h"

/* ---- requests ---- */

enum http_method
http_request_method(const struct http_request *request)
{
    const char *name = http_request_method_name(request);
    return strcmp(name, "GET") == 0    ? HTTP_GET
           : strcmp(name, "POST") == 0 ? HTTP_POST
           : strcmp(name, "HEAD") == 0 ? HTTP_HEAD
                                       : HTTP_OTHER;
}

const char *
http_request_method_name(const struct http_request *request)
{
    const struct http_parser *parser = &request->connection->parser;
    return parser->text + parser->method;
}

const char *
http_request_path(const struct http_request *request)
{
    return request->path;
}

const char *
http_request_path_encoded(const struct http_request *request)
{
    return request->path_encoded;
}

const char *
http_request_query(const struct http_request *request)
{
    return request->query;
}

const char *
http_request_header(const struct http_request *request, const char *name)
{
    return http_parser_find(&request->connection->parser, name);
}

bool
http_request_header_walk(const struct http_request *request, size_t *position, const char **name,
                         const char **value)
{
    const struct http_parser *parser = &request->connection->parser;
    if (*position >= parser->field_count)
        return false;
    const struct http_field *field = &parser->fields[(*position)++];
    *name = parser->text + field->name;
    *value = parser->text + field->value;
    return true;
}

const void *
http_request_body(struct http_request *request, size_t *bytes)
{
    *bytes = request->body_bytes;
    return request->body_bytes > 0 ? request->body : NULL;
}

enum http_place
http_request_place(const struct http_request *request)
{
    return request->connection->listener->place;
}

const char *
http_request_peer(const struct http_request *request)
{
    return request->connection->peer_text;
}

bool
http_request_peer_names(const struct http_request *request,
                        void (*take)(void *context, const void *name, size_t bytes), void *context)
{
    const struct http_names *names = request->connection->names;
    for (size_t at = 0; names != NULL && at < names->bytes;) {
        uint32_t bytes;
        memcpy(&bytes, names->text + at, sizeof(bytes));
        take(context, names->text + at + sizeof(bytes), bytes);
        at += sizeof(bytes) + bytes;
    }
    return names != NULL;
}

bool
http_request_is_gone(const struct http_request *request)
{
    return request->connection->state == HTTP_CLOSED || request->is_refused;
}

void
http_request_set_user(struct http_request *request, void *user)
{
    request->user = user;
}

void *
http_request_user(const struct http_request *request)
{
    return request->user;
}

void
http_request_stream(struct http_request *request, const struct http_body_sink *sink)
{
    CHECK(request->connection->state == HTTP_HEAD_IN && request->is_open);
    request->sink = sink;
}

void
http_request_pause(struct http_request *request)
{
    request->is_paused = true;
}

void
http_request_resume(struct http_request *request)
{
    request->is_paused = false;
    http_connection_restart_time(request->connection);
    http_connection_run(request->connection);
}

void
http_request_set_scarce(struct http_request *request)
{
    request->connection->is_scarce = true;
}

/* ---- answers ---- */

/* An answer during the body ends the connection: the rest of the body is not read. */
static void
check_early(struct http_request *request)
{
    struct http_connection *connection = request->connection;
    const struct http_parser *parser = &connection->parser;
    bool has_request_body = parser->is_chunked || parser->length > 0;
    if (!request->body_ended && !has_request_body)
        request->body_ended = true;
    if (!request->body_ended)
        connection->closes = true;
}

void
http_answer(struct http_request *request, int code, const struct http_header *headers,
            size_t header_count, const struct http_piece *pieces, size_t piece_count)
{
    struct http_connection *connection = request->connection;
    CHECK(request->is_open && request->answering == HTTP_ANSWER_NONE && code >= 200 && code <= 599);
    if (http_request_is_gone(request)) {
        http_pieces_release(pieces, piece_count);
        http_connection_answered(connection);
        return;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < piece_count; i++)
        bytes += pieces[i].bytes;
    char length[48] = "";
    if (http_has_body(code)) /* also for HEAD */
        snprintf(length, sizeof(length), "Content-Length: %zu\r\n", bytes);
    bool sends = http_has_body(code) && http_request_method(request) != HTTP_HEAD;
    const struct http_message message = {
        .code = code,
        .headers = headers,
        .header_count = header_count,
        .length = length,
        .pieces = pieces,
        .piece_count = sends ? piece_count : 0,
    };
    check_early(request);
    http_output_message(connection, &message);
    if (!sends)
        http_pieces_release(pieces, piece_count);
    http_connection_answered(connection);
}

/* ---- streamed answers ---- */

void
http_answer_begin(struct http_request *request, int code, const struct http_header *headers,
                  size_t header_count, void (*on_writable)(struct http_request *request))
{
    struct http_connection *connection = request->connection;
    CHECK(request->is_open && request->answering == HTTP_ANSWER_NONE && code >= 200 && code <= 599);
    bool is_chunked = connection->parser.minor > 0;
    request->answering = is_chunked ? HTTP_ANSWER_CHUNKED : HTTP_ANSWER_UNTIL_CLOSE;
    request->on_writable = on_writable;
    if (http_request_is_gone(request))
        return;
    request->drops_body = !http_has_body(code) || http_request_method(request) == HTTP_HEAD;
    if (!is_chunked)
        connection->closes = true;
    const struct http_message message = {
        .code = code,
        .headers = headers,
        .header_count = header_count,
        .length = is_chunked && http_has_body(code) ? "Transfer-Encoding: chunked\r\n" : "",
    };
    http_output_message(connection, &message);
    connection->channel.low_bytes = HTTP_LOW_WATER_BYTES;
}

/* False: it is dropped, and was released. */
static bool
takes_piece(struct http_request *request, const struct http_piece *piece)
{
    CHECK(request->is_open && request->answering != HTTP_ANSWER_NONE);
    bool takes = !http_request_is_gone(request) && !request->drops_body && piece->bytes > 0;
    if (!takes)
        http_pieces_release(piece, 1);
    return takes;
}

static enum http_flow
flow(struct http_request *request)
{
    struct http_connection *connection = request->connection;
    if (http_channel_output_bytes(&connection->channel) <= HTTP_HIGH_WATER_BYTES)
        return HTTP_GO_ON;
    if (!request->waits)
        http_connection_restart_time(connection);
    request->waits = true;
    http_connection_arm(connection);
    return HTTP_WAIT;
}

enum http_flow
http_answer_write(struct http_request *request, const struct http_piece *piece)
{
    if (!takes_piece(request, piece))
        return HTTP_GO_ON;
    char size[24];
    snprintf(size, sizeof(size), "%zx\r\n", piece->bytes);
    struct http_piece pieces[] = {
        {.data = size, .bytes = strlen(size)}, *piece, {.data = "\r\n", .bytes = 2}};
    bool is_chunked = request->answering == HTTP_ANSWER_CHUNKED;
    http_output_pieces(request->connection, is_chunked ? pieces : piece,
                       is_chunked ? ARRAY_COUNT(pieces) : 1);
    return flow(request);
}

enum http_flow
http_answer_append(struct http_request *request, const struct http_piece *piece)
{
    struct http_connection *connection = request->connection;
    if (!takes_piece(request, piece))
        return HTTP_GO_ON;
    struct evbuffer *output = connection->channel.output;
    size_t before = evbuffer_get_length(output);
    bool is_chunked = request->answering == HTTP_ANSWER_CHUNKED;
    if (is_chunked)
        CHECK(evbuffer_add_printf(output, "%zx\r\n", piece->bytes) > 0);
    CHECK(evbuffer_add(output, piece->data, piece->bytes) == 0);
    if (is_chunked)
        CHECK(evbuffer_add(output, "\r\n", 2) == 0);
    connection->queued += evbuffer_get_length(output) - before;
    http_pieces_release(piece, 1);
    http_channel_flush_later(&connection->channel);
    return flow(request);
}

void
http_answer_set_buffer(struct http_request *request, int bytes)
{
    if (!http_request_is_gone(request))
        (void)setsockopt(request->connection->channel.fd, SOL_SOCKET, SO_SNDBUF, &bytes,
                         sizeof(bytes));
}

size_t
http_answer_waiting(const struct http_request *request)
{
    const struct http_connection *connection = request->connection;
    return connection->has_channel ? http_channel_output_bytes(&connection->channel) : 0;
}

void
http_answer_end(struct http_request *request)
{
    static const struct http_piece last = {.data = "0\r\n\r\n", .bytes = 5};
    struct http_connection *connection = request->connection;
    CHECK(request->is_open && request->answering != HTTP_ANSWER_NONE);
    bool is_chunked = request->answering == HTTP_ANSWER_CHUNKED && !request->drops_body;
    if (!http_request_is_gone(request)) {
        check_early(request);
        if (is_chunked)
            http_output_pieces(connection, &last, 1);
    }
    http_connection_answered(connection);
}

void
http_answer_abort(struct http_request *request)
{
    struct http_connection *connection = request->connection;
    CHECK(request->is_open && request->answering != HTTP_ANSWER_NONE);
    http_connection_hold(connection);
    request->is_open = false;
    if (connection->state != HTTP_CLOSED && !request->is_refused) {
        struct linger reset = {.l_onoff =
                                   1}; /* an orderly close would look like the answer's end */
        (void)setsockopt(connection->channel.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        http_tls_abandon(connection->channel.ssl);
        http_connection_close(connection);
    }
    http_connection_release(connection);
}
