/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a client of HTTP/2 sends behind the preface, in pieces of up to as many bytes
 * as the first byte says, to a real server over a socket. Requests are answered at once, as a
 * stream, early, late, or never; each is notified exactly once that its client has gone; streams,
 * bodies and what is held of them stay within their limits; nothing is left at the end.
 */
#include <event2/event.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/http2.h"

enum { FUZZ_STREAMS_MAX = 8, FUZZ_BODY_MAX = 1000, FUZZ_HEAD_MAX = 512, HELD_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct event_base *base;
static struct http_server *server;
static struct http_pool *pool;
static struct http_request *held[HELD_MAX]; /* paused, or to be answered later */
static size_t held_count;

/* ---- the handler ---- */

static void
hold(struct http_request *request)
{
    CHECK(held_count < HELD_MAX);
    held[held_count++] = request;
}

static void
answer(struct http_request *request)
{
    static const char text[100];
    const struct http_piece piece = {.data = text, .bytes = sizeof(text)};
    http_answer(request, 200, NULL, 0, &piece, 1);
}

static void
on_piece(struct http_request *request, const void *data, size_t bytes)
{
    const struct http_piece piece = {.data = data, .bytes = bytes};
    size_t *got = http_request_user(request);
    *got += bytes;
    CHECK(*got <= FUZZ_BODY_MAX);
    (void)(bytes % 2 == 0 ? http_answer_write : http_answer_append)(request, &piece);
    if (http_request_path(request)[1] == 'p' && bytes % 3 == 0)
        http_request_pause(request);
}

static void
let_go(struct http_request *request)
{
    for (size_t i = 0; i < held_count; i++)
        if (held[i] == request)
            held[i--] = held[--held_count];
    free(http_request_user(request));
    http_request_set_user(request, NULL);
}

static void
on_end(struct http_request *request)
{
    let_go(request);
    http_answer_end(request);
}

static void
on_head(void *context, struct http_request *request)
{
    (void)context;
    static const struct http_body_sink sink = {on_piece, on_end};
    switch (http_request_path(request)[1]) {
    case 'p':
    case 's':
        http_request_set_user(request, calloc(1, sizeof(size_t)));
        http_request_stream(request, &sink);
        http_answer_begin(request, 200, NULL, 0, NULL);
        hold(request);
        break;
    case 'k': hold(request); break;
    case 'e': answer(request); break;
    default: break;
    }
}

static void
on_request(void *context, struct http_request *request)
{
    (void)context;
    size_t bytes;
    (void)http_request_body(request, &bytes);
    CHECK(bytes <= FUZZ_BODY_MAX);
    if (http_request_path(request)[1] != 'k')
        answer(request);
}

static void
finish(struct http_request *request)
{
    bool is_streamed = http_request_user(request) != NULL;
    let_go(request);
    if (is_streamed)
        http_answer_abort(request);
    else
        answer(request);
}

static void
on_gone(void *context, struct http_request *request)
{
    (void)context;
    CHECK(http_request_is_gone(request));
    finish(request);
}

/* ---- the server ---- */

static void
create(void)
{
    const struct http_pool_options options = {.name = "fuzz",
                                              .connections_max = 1,
                                              .idle_timeout_ns = 60 * NS_PER_S,
                                              .header_timeout_ns = 60 * NS_PER_S,
                                              .body_timeout_ns = 60 * NS_PER_S,
                                              .write_timeout_ns = 60 * NS_PER_S,
                                              .paused_bytes_max = FUZZ_BODY_MAX};
    const struct http_service service = {.on_head = on_head,
                                         .on_request = on_request,
                                         .on_gone = on_gone,
                                         .body_bytes_max = FUZZ_BODY_MAX,
                                         .header_bytes_max = FUZZ_HEAD_MAX,
                                         .streams_max = FUZZ_STREAMS_MAX};
    struct error error = ERROR_NONE;
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    base = event_base_new();
    CHECK(base != NULL);
    server = http_server_create(base);
    pool = http_pool_create(server, &options);
    CHECK(http_listen(pool, "127.0.0.1:0", &service, NULL, &error) == STATUS_OK);
}

static void
check_limits(const struct http_connection *connection)
{
    const struct http2_stream *stream;
    uint32_t count = 0;
    if (connection == NULL || connection->http2 == NULL)
        return;
    LIST_FOREACH (stream, &connection->http2->streams, link) {
        count++;
        CHECK(evbuffer_get_length(stream->in) <= FUZZ_BODY_MAX);
        CHECK(evbuffer_get_length(stream->out) <= (size_t)2 * FUZZ_BODY_MAX);
    }
    CHECK(count == connection->http2->stream_count && count <= FUZZ_STREAMS_MAX);
}

static void
turn(int fd)
{
    char received[4096];
    CHECK(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
    while (recv(fd, received, sizeof(received), MSG_DONTWAIT) > 0)
        continue;
    check_limits(LIST_FIRST(&pool->connections));
}

static void
say(int fd, const uint8_t *data, size_t bytes, size_t step)
{
    while (bytes > 0) {
        size_t piece = step < bytes ? step : bytes;
        if (send(fd, data, piece, MSG_NOSIGNAL | MSG_DONTWAIT) <= 0)
            return; /* closed */
        data += piece;
        bytes -= piece;
        turn(fd);
        if (held_count > 0 && piece % 2 == 1)
            http_request_resume(held[piece % held_count]);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sockaddr from = {.sa_family = AF_UNIX};
    int fds[2];
    if (size == 0)
        return 0;
    if (base == NULL)
        create();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    CHECK(http_connection_open(LIST_FIRST(&pool->listeners), fds[0], &from, HTTP_ADMITTED, NULL) !=
          NULL);
    size_t step = data[0] % 64 == 0 ? size : data[0] % 64;
    if (data[0] < 224)
        say(fds[1], (const uint8_t *)HTTP2_PREFACE, sizeof(HTTP2_PREFACE) - 1, step);
    say(fds[1], data + 1, size - 1, step);
    if (data[0] % 2 == 0)
        while (held_count > 0)
            finish(held[0]);
    turn(fds[1]);
    close(fds[1]);
    CHECK(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
    while (!LIST_EMPTY(&pool->connections))
        http_connection_close(LIST_FIRST(&pool->connections));
    CHECK(held_count == 0 && LIST_EMPTY(&server->orphans) && pool->lingerer_count == 0);
    CHECK(pool->paused_bytes == 0);
    return 0;
}
