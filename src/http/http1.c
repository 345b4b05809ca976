/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1 carries answers one at a time: the answer belongs to its connection. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "http/internal.h"

/* An answer during the body ends the connection: the rest of the body is not read. */
static void
check_early(struct http_request *request)
{
    if (!request->body_ended && !http_request_has_body(request))
        request->body_ended = true;
    if (!request->body_ended)
        request->connection->closes = true;
}

static void
message(struct http_request *request, const struct http_message *message)
{
    struct http_connection *connection = request->connection;
    if (message->is_whole)
        check_early(request);
    else if (request->answering == HTTP_ANSWER_UNTIL_CLOSE)
        connection->closes = true;
    http_output_message(connection, message);
    if (!message->is_whole)
        connection->channel.low_bytes = HTTP_LOW_WATER_BYTES;
}

static void
write_piece(struct http_request *request, const struct http_piece *piece)
{
    char size[24];
    snprintf(size, sizeof(size), "%zx\r\n", piece->bytes);
    struct http_piece pieces[] = {
        {.data = size, .bytes = strlen(size)}, *piece, {.data = "\r\n", .bytes = 2}};
    bool is_chunked = request->answering == HTTP_ANSWER_CHUNKED;
    http_output_pieces(request->connection, is_chunked ? pieces : piece,
                       is_chunked ? ARRAY_COUNT(pieces) : 1);
}

static void
append_piece(struct http_request *request, const struct http_piece *piece)
{
    struct http_connection *connection = request->connection;
    struct evbuffer *output = connection->channel.output;
    size_t before = evbuffer_get_length(output);
    bool is_chunked = request->answering == HTTP_ANSWER_CHUNKED;
    if (is_chunked)
        CHECK(evbuffer_add_printf(output, "%zx\r\n", piece->bytes) > 0);
    CHECK(evbuffer_add(output, piece->data, piece->bytes) == 0);
    if (is_chunked)
        CHECK(evbuffer_add(output, "\r\n", 2) == 0);
    connection->queued += evbuffer_get_length(output) - before;
    http_channel_flush_later(&connection->channel);
}

static void
end(struct http_request *request)
{
    static const struct http_piece last = {.data = "0\r\n\r\n", .bytes = 5};
    check_early(request);
    if (request->answering == HTTP_ANSWER_CHUNKED && !request->drops_body)
        http_output_pieces(request->connection, &last, 1);
}

static void
answered(struct http_request *request)
{
    http_connection_answered(request->connection);
}

static void
abort_answer(struct http_request *request)
{
    struct http_connection *connection = request->connection;
    http_connection_hold(connection);
    request->is_open = false;
    if (!request->is_gone) {
        struct linger reset = {.l_onoff =
                                   1}; /* an orderly close would look like the answer's end */
        (void)setsockopt(connection->channel.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        http_tls_abandon(connection->channel.ssl);
        http_connection_close(connection);
    }
    http_connection_release(connection);
}

static size_t
waiting(const struct http_request *request)
{
    const struct http_connection *connection = request->connection;
    return connection->has_channel ? http_channel_output_bytes(&connection->channel) : 0;
}

static void
wait_for_client(struct http_request *request)
{
    if (!request->waits)
        http_connection_restart_time(request->connection);
    request->waits = true;
    http_connection_arm(request->connection);
}

static void
resume(struct http_request *request)
{
    http_connection_restart_time(request->connection);
    http_connection_run(request->connection);
}

const struct http_wire http1_wire = {
    .message = message,
    .write = write_piece,
    .append = append_piece,
    .end = end,
    .answered = answered,
    .abort = abort_answer,
    .waiting = waiting,
    .wait = wait_for_client,
    .resume = resume,
};
