/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writing of answers. Bytes that fit into the socket's buffer are written at once from where
 * they are: most answers are sent before http_answer returns, without a copy and without a turn of
 * the loop.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "base/check.h"
#include "http/internal.h"

enum { HEAD_BYTES = 1024, LINE_BYTES = 128, LENGTH_BYTES = 48, PIECES_AT_ONCE = 32 };

/* ---- pieces ---- */

static void
piece_free(const void *data, size_t bytes, void *context)
{
    (void)data;
    (void)bytes;
    struct http_piece *piece = context;
    piece->release(piece->release_context);
    free(piece);
}

void
http_pieces_release(const struct http_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (pieces[i].release != NULL)
            pieces[i].release(pieces[i].release_context);
}

void
http_piece_add(struct evbuffer *output, const struct http_piece *piece, size_t sent)
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

/* Writes what the socket takes at once; returns how much. */
static size_t
write_now(struct http_connection *connection, const struct http_piece *pieces, size_t count)
{
    struct iovec spans[PIECES_AT_ONCE];
    size_t used = count < PIECES_AT_ONCE ? count : PIECES_AT_ONCE;
    for (size_t i = 0; i < used; i++)
        spans[i] = (struct iovec){.iov_base = (void *)(uintptr_t)pieces[i].data,
                                  .iov_len = pieces[i].bytes};
    return http_channel_write(&connection->channel, spans, (int)used);
}

void
http_output_pieces(struct http_connection *connection, const struct http_piece *pieces,
                   size_t count)
{
    struct evbuffer *output = connection->channel.output;
    size_t sent = write_now(connection, pieces, count);
    connection->queued += sent;
    for (size_t i = 0; i < count; i++) {
        size_t gone = sent < pieces[i].bytes ? sent : pieces[i].bytes;
        sent -= gone;
        if (gone == pieces[i].bytes) {
            http_pieces_release(&pieces[i], 1);
            continue;
        }
        http_piece_add(output, &pieces[i], gone);
        connection->queued += pieces[i].bytes - gone;
    }
    http_channel_flush(&connection->channel);
}

/* ---- heads ---- */

static const char *
phrase_of(int code)
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

bool
http_has_body(int code)
{
    return code >= 200 && code != 204 && code != 304;
}

const char *
http_date(struct http_server *server)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (now.tv_sec != server->date_s) {
        evutil_date_rfc1123(server->date, sizeof(server->date), NULL);
        server->date_s = now.tv_sec;
    }
    return server->date;
}

/* The header for the body's length, or "". */
static void
framing_write(const struct http_message *message, char text[LENGTH_BYTES])
{
    text[0] = '\0';
    if (message->framing == HTTP_FRAMED_BY_LENGTH)
        snprintf(text, LENGTH_BYTES, "Content-Length: %" PRIu64 "\r\n", message->body_bytes);
    else if (message->framing == HTTP_FRAMED_BY_CHUNKS)
        snprintf(text, LENGTH_BYTES, "Transfer-Encoding: chunked\r\n");
}

static void
head_write(struct head *head, struct http_connection *connection,
           const struct http_message *message)
{
    const struct http_parser *parser = &connection->parser;
    bool is_old = parser->has_first_line && parser->minor == 0;
    char line[LINE_BYTES];
    char framing[LENGTH_BYTES];
    size_t bytes = (size_t)3 * LINE_BYTES + sizeof(framing);
    for (size_t i = 0; i < message->header_count; i++)
        bytes += strlen(message->headers[i].name) + strlen(message->headers[i].value) + 4;
    head->text = bytes <= sizeof(head->room) ? head->room : malloc(bytes);
    head->used = 0;
    CHECK(head->text != NULL);
    snprintf(line, sizeof(line), "HTTP/1.%d %d %s\r\n", is_old ? 0 : 1, message->code,
             phrase_of(message->code));
    put(head, line);
    for (size_t i = 0; i < message->header_count; i++) {
        put(head, message->headers[i].name);
        put(head, ": ");
        put(head, message->headers[i].value);
        put(head, "\r\n");
    }
    framing_write(message, framing);
    put(head, framing);
    put(head, "Date: ");
    put(head, http_date(connection->listener->pool->server));
    put(head, connection->closes ? "\r\nConnection: close\r\n\r\n"
              : is_old           ? "\r\nConnection: keep-alive\r\n\r\n"
                                 : "\r\n\r\n");
    CHECK(head->used <= bytes);
}

/* Head and body are sent as one row of pieces. */
void
http_output_message(struct http_connection *connection, const struct http_message *message)
{
    struct http_piece few[PIECES_AT_ONCE];
    struct http_piece *all = few;
    struct head head;
    if (message->piece_count + 1 > PIECES_AT_ONCE)
        all = malloc((message->piece_count + 1) * sizeof(*all));
    CHECK(all != NULL);
    head_write(&head, connection, message);
    all[0] = (struct http_piece){.data = head.text, .bytes = head.used};
    if (message->piece_count > 0)
        memcpy(all + 1, message->pieces, message->piece_count * sizeof(*all));
    http_output_pieces(connection, all, message->piece_count + 1);
    if (all != few)
        free(all);
    if (head.text != head.room)
        free(head.text);
}
