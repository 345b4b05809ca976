/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as handlers see them, and their answers. */
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
    return request->head->text + request->head->method;
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
    return http_parser_find(request->head, name);
}

bool
http_request_header_walk(const struct http_request *request, size_t *position, const char **name,
                         const char **value)
{
    const struct http_parser *parser = request->head;
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
http_request_is_http2(const struct http_request *request)
{
    return request->wire->trailers != NULL;
}

bool
http_request_is_gone(const struct http_request *request)
{
    return request->is_gone;
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
    CHECK(request->is_open && !request->body_ended && request->body_bytes == 0);
    request->sink = sink;
}

void
http_request_stream_freely(struct http_request *request, const struct http_body_sink *sink)
{
    CHECK(http_request_is_http2(request));
    http_request_stream(request, sink);
    request->is_free = true;
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
    request->wire->resume(request);
}

void
http_request_set_scarce(struct http_request *request)
{
    request->connection->is_scarce = true;
}

/* ---- answers ---- */

void
http_answer(struct http_request *request, int code, const struct http_header *headers,
            size_t header_count, const struct http_piece *pieces, size_t piece_count)
{
    CHECK(request->is_open && request->answering == HTTP_ANSWER_NONE && code >= 200 && code <= 599);
    if (request->is_gone) {
        http_pieces_release(pieces, piece_count);
        request->wire->answered(request);
        return;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < piece_count; i++)
        bytes += pieces[i].bytes;
    bool sends = http_has_body(code) && http_request_method(request) != HTTP_HEAD;
    const struct http_message message = {
        .code = code,
        .headers = headers,
        .header_count = header_count,
        .framing = http_has_body(code) ? HTTP_FRAMED_BY_LENGTH : HTTP_FRAMED_BY_NOTHING,
        .body_bytes = bytes,
        .pieces = pieces,
        .piece_count = sends ? piece_count : 0,
        .is_whole = true,
    };
    request->wire->message(request, &message);
    if (!sends)
        http_pieces_release(pieces, piece_count);
    request->wire->answered(request);
}

/* ---- streamed answers ---- */

void
http_answer_begin(struct http_request *request, int code, const struct http_header *headers,
                  size_t header_count, void (*on_writable)(struct http_request *request))
{
    CHECK(request->is_open && request->answering == HTTP_ANSWER_NONE && code >= 200 && code <= 599);
    bool is_chunked = request->head->minor > 0;
    request->answering = is_chunked ? HTTP_ANSWER_CHUNKED : HTTP_ANSWER_UNTIL_CLOSE;
    request->on_writable = on_writable;
    if (request->is_gone)
        return;
    request->drops_body = !http_has_body(code) || http_request_method(request) == HTTP_HEAD;
    const struct http_message message = {
        .code = code,
        .headers = headers,
        .header_count = header_count,
        .framing =
            is_chunked && http_has_body(code) ? HTTP_FRAMED_BY_CHUNKS : HTTP_FRAMED_BY_NOTHING,
    };
    request->wire->message(request, &message);
}

/* False: it is dropped, and was released. */
static bool
takes_piece(struct http_request *request, const struct http_piece *piece)
{
    CHECK(request->is_open && request->answering != HTTP_ANSWER_NONE);
    bool takes = !request->is_gone && !request->drops_body && piece->bytes > 0;
    if (!takes)
        http_pieces_release(piece, 1);
    return takes;
}

static enum http_flow
flow(struct http_request *request)
{
    if (request->wire->waiting(request) <= HTTP_HIGH_WATER_BYTES)
        return HTTP_GO_ON;
    request->wire->wait(request);
    return HTTP_WAIT;
}

enum http_flow
http_answer_write(struct http_request *request, const struct http_piece *piece)
{
    if (!takes_piece(request, piece))
        return HTTP_GO_ON;
    request->wire->write(request, piece);
    return flow(request);
}

enum http_flow
http_answer_append(struct http_request *request, const struct http_piece *piece)
{
    if (!takes_piece(request, piece))
        return HTTP_GO_ON;
    request->wire->append(request, piece);
    http_pieces_release(piece, 1);
    return flow(request);
}

void
http_answer_set_buffer(struct http_request *request, int bytes)
{
    if (!request->is_gone)
        (void)setsockopt(request->connection->channel.fd, SOL_SOCKET, SO_SNDBUF, &bytes,
                         sizeof(bytes));
}

size_t
http_answer_waiting(const struct http_request *request)
{
    return request->wire->waiting(request);
}

void
http_answer_end(struct http_request *request)
{
    CHECK(request->is_open && request->answering != HTTP_ANSWER_NONE);
    if (!request->is_gone)
        request->wire->end(request);
    request->wire->answered(request);
}

void
http_answer_end_with(struct http_request *request, const struct http_header *trailers, size_t count)
{
    CHECK(http_request_is_http2(request));
    if (!request->is_gone)
        request->wire->trailers(request, trailers, count);
    http_answer_end(request);
}

void
http_answer_abort(struct http_request *request)
{
    CHECK(request->is_open && request->answering != HTTP_ANSWER_NONE);
    request->wire->abort(request);
}
