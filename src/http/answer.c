/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests as handlers see them, and the writing of answers. Bytes that fit into the socket's
 * buffer are written at once from where they are: most answers are sent before http_answer returns,
 * without a copy and without a turn of the loop.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/check.h"
#include "http/internal.h"

enum { HEAD_BYTES = 1024, LINE_BYTES = 128, PIECES_AT_ONCE = 32 };

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

/* ---- output ---- */

static void
piece_free(const void *data, size_t bytes, void *context)
{
    (void)data;
    (void)bytes;
    struct http_piece *piece = context;
    piece->release(piece->release_context);
    free(piece);
}

static void
piece_release(const struct http_piece *piece)
{
    if (piece->release != NULL)
        piece->release(piece->release_context);
}

/* Adds all but the first `sent` bytes. Lent ones are sent from where they are. */
static void
piece_add(struct evbuffer *output, const struct http_piece *piece, size_t sent)
{
    const char *data = (const char *)piece->data + sent;
    if (piece->release == NULL) {
        CHECK(evbuffer_add(output, data, piece->bytes - sent) == 0);
        return;
    }
    struct http_piece *kept = malloc(sizeof(*kept));
    CHECK(kept != NULL);
    *kept = *piece;
    CHECK(evbuffer_add_reference(output, data, piece->bytes - sent, piece_free, kept) == 0);
}

/* Writes what the socket takes at once; returns how much. Not over TLS, nor while earlier output
 * waits. The loop will see an error. */
static size_t
write_now(struct http_connection *connection, const struct http_piece *pieces, size_t count)
{
    struct iovec spans[PIECES_AT_ONCE];
    if (connection->listener->tls != NULL ||
        evbuffer_get_length(bufferevent_get_output(connection->buffers)) > 0)
        return 0;
    size_t used = count < PIECES_AT_ONCE ? count : PIECES_AT_ONCE;
    for (size_t i = 0; i < used; i++)
        spans[i] = (struct iovec){.iov_base = (void *)(uintptr_t)pieces[i].data,
                                  .iov_len = pieces[i].bytes};
    struct msghdr message = {.msg_iov = spans, .msg_iovlen = used};
    ssize_t sent = sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? (size_t)sent : 0;
}

/* Sends or queues pieces; each is released once, now or later. */
static void
pieces_send(struct http_connection *connection, const struct http_piece *pieces, size_t count)
{
    struct evbuffer *output = bufferevent_get_output(connection->buffers);
    size_t sent = write_now(connection, pieces, count);
    connection->queued += sent;
    for (size_t i = 0; i < count; i++) {
        size_t gone = sent < pieces[i].bytes ? sent : pieces[i].bytes;
        sent -= gone;
        if (gone == pieces[i].bytes) {
            piece_release(&pieces[i]);
            continue;
        }
        piece_add(output, &pieces[i], gone);
        connection->queued += pieces[i].bytes - gone;
    }
}

/* ---- heads ---- */

const char *
http_phrase(int code)
{
    static const struct {
        int code;
        const char *phrase;
    } phrases[] = {
        {200, "OK"},
        {303, "See Other"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(phrases); i++)
        if (phrases[i].code == code)
            return phrases[i].phrase;
    return code < 300   ? "OK"
           : code < 400 ? "Redirection"
           : code < 500 ? "Client Error"
                        : "Server Error";
}

/* The head of an answer: on the stack, or allocated if it is long. */
struct head {
    char room[HEAD_BYTES];
    char *text;
    size_t used;
};

static void
put(struct head *head, const char *text)
{
    size_t bytes = strlen(text);
    memcpy(head->text + head->used, text, bytes);
    head->used += bytes;
}

static bool
has_body(int code)
{
    return code >= 200 && code != 204 && code != 304;
}

/* `length` is the header for the body's length, or "". */
static void
head_write(struct head *head, struct http_connection *connection, int code,
           const struct http_header *headers, size_t count, const char *length)
{
    const struct http_parser *parser = &connection->parser;
    bool is_old = parser->has_first_line && parser->minor == 0;
    char line[LINE_BYTES];
    size_t bytes = (size_t)3 * LINE_BYTES + strlen(length);
    for (size_t i = 0; i < count; i++)
        bytes += strlen(headers[i].name) + strlen(headers[i].value) + 4;
    head->text = bytes <= sizeof(head->room) ? head->room : malloc(bytes);
    head->used = 0;
    CHECK(head->text != NULL);
    snprintf(line, sizeof(line), "HTTP/1.%d %d %s\r\n", is_old ? 0 : 1, code, http_phrase(code));
    put(head, line);
    for (size_t i = 0; i < count; i++) {
        put(head, headers[i].name);
        put(head, ": ");
        put(head, headers[i].value);
        put(head, "\r\n");
    }
    put(head, length);
    put(head, "Date: ");
    put(head, http_date(connection->listener->pool->server));
    put(head, connection->closes ? "\r\nConnection: close\r\n\r\n"
              : is_old           ? "\r\nConnection: keep-alive\r\n\r\n"
                                 : "\r\n\r\n");
}

static void
head_free(struct head *head)
{
    if (head->text != head->room)
        free(head->text);
}

/* ---- answers ---- */

static void
pieces_release(const struct http_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++)
        piece_release(&pieces[i]);
}

/* Sends head and body as one row of pieces. */
static void
answer_send(struct http_connection *connection, const struct head *head,
            const struct http_piece *pieces, size_t count)
{
    struct http_piece few[PIECES_AT_ONCE];
    struct http_piece *all = few;
    if (count + 1 > PIECES_AT_ONCE)
        all = malloc((count + 1) * sizeof(*all));
    CHECK(all != NULL);
    all[0] = (struct http_piece){.data = head->text, .bytes = head->used};
    if (count > 0)
        memcpy(all + 1, pieces, count * sizeof(*all));
    pieces_send(connection, all, count + 1);
    if (all != few)
        free(all);
}

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
        pieces_release(pieces, piece_count);
        http_connection_answered(connection);
        return;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < piece_count; i++)
        bytes += pieces[i].bytes;
    char length[48] = "";
    if (has_body(code)) /* also for HEAD */
        snprintf(length, sizeof(length), "Content-Length: %zu\r\n", bytes);
    struct head head;
    bool sends = has_body(code) && http_request_method(request) != HTTP_HEAD;
    check_early(request);
    head_write(&head, connection, code, headers, header_count, length);
    answer_send(connection, &head, pieces, sends ? piece_count : 0);
    if (!sends)
        pieces_release(pieces, piece_count);
    head_free(&head);
    http_connection_answered(connection);
}

void
http_refuse(struct http_connection *connection, int code, const char *text)
{
    const struct http_service *service = &connection->listener->service;
    char body[HTTP_OWN_BODY_BYTES];
    char length[48];
    if (service->error_body != NULL)
        service->error_body(text, body, sizeof(body));
    else
        snprintf(body, sizeof(body), "%s\n", text);
    const char *type =
        service->error_type != NULL ? service->error_type : "text/plain; charset=utf-8";
    struct http_header header = {"Content-Type", type};
    struct http_piece piece = {.data = body, .bytes = strlen(body)};
    struct head head;
    snprintf(length, sizeof(length), "Content-Length: %zu\r\n", piece.bytes);
    connection->closes = true;
    http_count(connection->listener->pool, HTTP_REFUSED, 1);
    head_write(&head, connection, code, &header, 1, length);
    answer_send(connection, &head, &piece, 1);
    head_free(&head);
    http_connection_refused(connection);
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
    request->drops_body = !has_body(code) || http_request_method(request) == HTTP_HEAD;
    if (!is_chunked)
        connection->closes = true;
    struct head head;
    bool says_chunked = is_chunked && has_body(code);
    head_write(&head, connection, code, headers, header_count,
               says_chunked ? "Transfer-Encoding: chunked\r\n" : "");
    answer_send(connection, &head, NULL, 0);
    head_free(&head);
    bufferevent_setwatermark(connection->buffers, EV_WRITE, HTTP_LOW_WATER_BYTES, 0);
}

enum http_flow
http_answer_write(struct http_request *request, const struct http_piece *piece)
{
    struct http_connection *connection = request->connection;
    CHECK(request->is_open && request->answering != HTTP_ANSWER_NONE);
    if (http_request_is_gone(request) || request->drops_body || piece->bytes == 0) {
        piece_release(piece);
        return HTTP_GO_ON;
    }
    char size[24];
    snprintf(size, sizeof(size), "%zx\r\n", piece->bytes);
    struct http_piece pieces[] = {
        {.data = size, .bytes = strlen(size)}, *piece, {.data = "\r\n", .bytes = 2}};
    bool is_chunked = request->answering == HTTP_ANSWER_CHUNKED;
    pieces_send(connection, is_chunked ? pieces : piece, is_chunked ? ARRAY_COUNT(pieces) : 1);
    if (evbuffer_get_length(bufferevent_get_output(connection->buffers)) <= HTTP_HIGH_WATER_BYTES)
        return HTTP_GO_ON;
    if (!request->waits)
        http_connection_restart_time(connection);
    request->waits = true;
    http_connection_arm(connection);
    return HTTP_WAIT;
}

void
http_answer_set_buffer(struct http_request *request, int bytes)
{
    if (!http_request_is_gone(request))
        (void)setsockopt(request->connection->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

size_t
http_answer_waiting(const struct http_request *request)
{
    const struct http_connection *connection = request->connection;
    if (connection->buffers == NULL)
        return 0;
    return evbuffer_get_length(bufferevent_get_output(connection->buffers));
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
            pieces_send(connection, &last, 1);
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
        (void)setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        http_connection_close(connection);
    }
    http_connection_release(connection);
}
