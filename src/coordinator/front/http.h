/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's HTTP/1.1 server: REST inference, metrics. One thread ("shoald:http") with an event
 * loop of its own, so that neither a slow client nor the reading of megabytes of JSON holds up the
 * loop thread, which repairs what dead workers leave. http*.c are the one place that knows
 * libevent's evhttp.
 *
 * Threads. Handlers run on the HTTP thread; so must everything here but http_post, http_create,
 * http_listen, http_start and http_destroy. Work of other threads (an answer that came out of a
 * ring) is handed over with http_post.
 *
 * A request is the handler's from on_request until it is answered, which it is exactly once, at
 * once or later, also if its client has gone in the meantime (the answer is then dropped). A
 * connection has one request at a time; what a client sends ahead waits, 64 KiB of it read at most.
 *
 * Memory: a connection holds no more than one request of the largest size allowed, and its answer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/counters.h"

struct http;
struct http_request;
struct loop;

enum http_method { HTTP_GET, HTTP_POST, HTTP_HEAD, HTTP_OTHER };

/* Bytes that go out in this order. With `release` they are lent until it is called, once, on the
 * HTTP thread or the thread that destroys the server; without, they are copied. */
struct http_piece {
    const void *data;
    size_t bytes;
    void (*release)(void *context);
    void *release_context;
};

struct http_header {
    const char *name;
    const char *value;
};

/* Who gets the requests of one address. Requests with a body above the limit, malformed ones and
 * those that take too long to arrive are answered by the server itself (400, 408, 413, 417, 501,
 * 505, 503 for one connection too many), and the connection is closed. */
struct http_service {
    void (*on_request)(void *context, struct http_request *request);
    /* The client of a request that is not answered yet has gone: nobody waits any more. May be
     * NULL. The request is still to be answered, here or later. A client that has ended its
     * sending side counts as gone. */
    void (*on_gone)(void *context, struct http_request *request);
    void *context;
    size_t body_bytes_max;
    size_t header_bytes_max; /* of the request line and all headers */
    /* What an answer of the server's own says as its body, or NULL: plain text. `text` is a
     * sentence. Writes at most `room` bytes with the NUL. */
    void (*error_body)(const char *text, char *body, size_t room);
    const char *error_type; /* its Content-Type; NULL: plain text's */
};

struct http_options {
    /* A connection that is silent for so long is closed. A request must have arrived, and an answer
     * been taken, within so long and a second more for every 64 KiB of it: who sends a byte now and
     * then to stay gets 408. */
    int64_t idle_timeout_ns;
    uint32_t connections_max;   /* of all addresses; more are answered 503 and closed */
    _Atomic uint64_t *counters; /* of the node, written by the HTTP thread; NULL: none */
};

enum status http_create(const struct http_options *options, struct http **http,
                        struct error *error) WARN_UNUSED;

/* Binds `port:N`, `host:N` or `[v6]:N` for a service, before http_start. Port 0: any free one; the
 * log says which (http_listening). What is in `service` is copied, but not what it points to.
 * UNAVAILABLE or INVALID_ARGUMENT naming the address and why. */
enum status http_listen(struct http *http, const char *address, const struct http_service *service,
                        struct error *error) WARN_UNUSED;

void http_start(struct http *http);
/* Ends the thread, if it was started, and closes everything: answers that are on their way have a
 * second; requests that are not answered are freed, without on_gone, and lent pieces released.
 * Nobody may post or answer any more. NULL is left alone. */
void http_destroy(struct http *http);

/* From any thread: has `work` run on the HTTP thread soon, in order. */
void http_post(struct http *http, void (*work)(void *context), void *context);

/* The HTTP thread's loop, for timers. */
struct loop *http_loop(struct http *http);

/* ---- a request, HTTP thread ---- */

enum http_method http_request_method(const struct http_request *request);
/* Decoded, without the query, always starting with '/'. */
const char *http_request_path(const struct http_request *request);
/* The same as it was sent: for who must tell a slash from one that is part of a word. Valid until
 * the request is answered. */
const char *http_request_path_encoded(const struct http_request *request);
/* The value, or NULL. `name` in any case. The first, if there are several. */
const char *http_request_header(const struct http_request *request, const char *name);
/* The body in one piece; valid until the request is answered. NULL with 0 bytes: none. */
const void *http_request_body(struct http_request *request, size_t *bytes);
/* The numeric address of the client's machine. */
const char *http_request_peer(const struct http_request *request);
/* What the handler keeps with the request. NULL at first. */
void http_request_set_user(struct http_request *request, void *user);
void *http_request_user(const struct http_request *request);

/* The answer. Content-Length, Date and Connection are the server's own. `code` 200 to 599. To HEAD
 * the pieces are counted and released, not sent. `request` is not to be touched afterwards. */
void http_answer(struct http_request *request, int code, const struct http_header *headers,
                 size_t header_count, const struct http_piece *pieces, size_t piece_count);
