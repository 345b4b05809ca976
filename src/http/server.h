/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 and 1.0 server on an event loop of libevent's, which the owner runs.
 *
 * Threads. A server belongs to the thread that runs its event base: every function here is called
 * on that thread, or before it runs or after it has ended, and every callback comes on it. Only
 * what `http_tls_source` fetches may be shared with other threads.
 *
 * Ownership. A request is the handler's from on_request (or on_head) until it has answered, once,
 * at once or later, also if its client has gone in the meantime: the answer is then dropped. What
 * the accessors return is valid until then. A connection has one request at a time; requests that
 * are sent ahead wait, 64 KiB of them read at most.
 *
 * Errors. Malformed requests, those that are too large or too slow, and connections beyond a limit
 * are answered by the server itself (400, 408, 413, 414, 417, 431, 503, 505), and the connection is
 * closed, after the client has had time to read why.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct event_base;
struct http_pool;
struct http_request;
struct http_server;
struct http_tls;

/* ---- a server and its pools ---- */

struct http_server *http_server_create(struct event_base *base);
/* Accepts no more and lets answers that are on their way end, `grace_ns` at most; then calls
 * `on_done` once, perhaps at once. */
void http_server_drain(struct http_server *server, int64_t grace_ns, void (*on_done)(void *context),
                       void *context);
/* Closes everything. Requests that are not answered are freed without on_gone; lent pieces are
 * released. NULL is left alone. */
void http_server_destroy(struct http_server *server);

/* The figures of a pool, each reported with its change. All but the first only grow. */
enum http_figure {
    HTTP_CONNECTIONS, /* open; may fall */
    HTTP_REQUESTS,    /* given to a handler */
    HTTP_REFUSED,     /* requests and connections that the server answered itself */
    HTTP_EVICTED,     /* idle connections closed to admit others */
    HTTP_TIMED_OUT,   /* connections that were too slow in sending a request or taking an answer */
    HTTP_CUT,         /* connections whose answer held what others need, and was not taken */
    HTTP_NOT_ACCEPTING, /* times that no descriptor or memory was left for a connection */
    HTTP_FIGURE_COUNT
};

/*
 * Connections that share limits: those of one service. A pool that is full, or a peer that has all
 * it may have, gets room by the connection of the pool, or of the peer, that has been idle longest;
 * if none is idle the new connection is answered 503.
 */
struct http_pool_options {
    const char *name; /* for the log */
    uint32_t connections_max;
    uint32_t peer_connections_max; /* from one address; 0: no such limit */
    int64_t idle_timeout_ns;       /* between requests */
    int64_t header_timeout_ns;     /* from the first byte of a request to the end of its head */
    /* A body must arrive, an answer be taken, within so long and a second more for each 64 KiB of
     * it, and never be silent for so long. */
    int64_t body_timeout_ns;
    int64_t write_timeout_ns;
    int64_t scarce_timeout_ns; /* the same of http_request_set_scarce, if it is less; 0: it is not,
                                  and none is closed to relieve others */
    void (*count)(void *context, enum http_figure figure, int64_t by); /* NULL: nobody counts */
    void *context;
};

/* `options` is copied, but not what it points to. Belongs to the server. */
struct http_pool *http_pool_create(struct http_server *server,
                                   const struct http_pool_options *options);

/* Others are refused for want of what answers hold (http_request_set_scarce). Closes connections
 * that have not taken theirs for a second, and a second more for each 4 MiB of it: those of the
 * machines that have at least the average number of them, and two. All unix sockets count as one
 * machine. */
void http_pool_relieve(struct http_pool *pool);

/* ---- TLS ---- */

/* PEM texts. */
struct http_pems {
    const char *certificate; /* and what stands between it and its authority */
    const char *key;         /* without a password */
    const char *ca;          /* signs clients' certificates; NULL: nobody does */
};

enum http_tls_clients { HTTP_TLS_ANY, HTTP_TLS_OPTIONAL, HTTP_TLS_REQUIRED };

struct http_tls_source {
    /* Calls `take` if the certificates are others than those of version `have` (0: none), and
     * returns their version. */
    uint64_t (*fetch)(void *context, uint64_t have,
                      void (*take)(void *taker, const struct http_pems *pems), void *taker);
    void *context;
    enum http_tls_clients clients;
};

/* Fetches for the first time. INVALID_ARGUMENT with what OpenSSL says of the certificates. */
enum status http_tls_create(const struct http_tls_source *source, struct http_tls **tls,
                            struct error *error) WARN_UNUSED;
/* After the server. NULL is left alone. */
void http_tls_destroy(struct http_tls *tls);

/* ---- services ---- */

struct http_service {
    /* The whole request is there. */
    void (*on_request)(void *context, struct http_request *request);
    /* The head is there and the body is not read yet; may be NULL. The handler may answer, and the
     * body is then not read; or call http_request_stream; else the body is collected. */
    void (*on_head)(void *context, struct http_request *request);
    /* The client of a request that is not answered yet has gone: nobody waits any more. May be
     * NULL. The request is still to be answered, here or later. A client that has ended its
     * sending side counts as gone. */
    void (*on_gone)(void *context, struct http_request *request);
    void *context;
    uint64_t body_bytes_max;
    size_t header_bytes_max; /* of the request line and all headers */
    /* Writes the body of an answer of the server's own; NULL: plain text. `text` is a
     * sentence. Writes at most `room` bytes with the NUL. */
    void (*error_body)(const char *text, char *body, size_t room);
    const char *error_type; /* its Content-Type; NULL: plain text's */
};

/* Binds `port:N`, `host:N`, `[v6]:N` or `unix:PATH` for a service. Port 0: any free one; the log
 * says which (http_listening). What is in `service` is copied, but not what it points to. `tls`
 * NULL: none. UNAVAILABLE or INVALID_ARGUMENT naming the address and why. */
enum status http_listen(struct http_pool *pool, const char *address,
                        const struct http_service *service, struct http_tls *tls,
                        struct error *error) WARN_UNUSED;

/* ---- a request ---- */

enum http_method { HTTP_GET, HTTP_POST, HTTP_HEAD, HTTP_OTHER };

enum http_method http_request_method(const struct http_request *request);
/* As it was sent. */
const char *http_request_method_name(const struct http_request *request);
/* Decoded, without the query, always starting with '/'. */
const char *http_request_path(const struct http_request *request);
/* The same as it was sent: for a handler that must tell a slash from one that is part of a word. */
const char *http_request_path_encoded(const struct http_request *request);
/* Behind the '?', as it was sent; "" if there is none. */
const char *http_request_query(const struct http_request *request);
/* The value, or NULL. `name` in any case. The first, if there are several. */
const char *http_request_header(const struct http_request *request, const char *name);
/* The body that was collected, in one piece; NULL with 0 bytes: none. Other threads may read it. */
const void *http_request_body(struct http_request *request, size_t *bytes);
/* The numeric address of the client's machine, "unix" for a unix socket. */
const char *http_request_peer(const struct http_request *request);
/* All names in the certificate that the client has shown, one after the other: its subject as RFC
 * 2253 writes it, its common name, its alternative names (DNS, email, URI, IP address). False: it
 * has shown none. */
bool http_request_peer_names(const struct http_request *request,
                             void (*take)(void *context, const void *name, size_t bytes),
                             void *context);
/* The client has gone. */
bool http_request_is_gone(const struct http_request *request);
/* A pointer that the handler keeps with the request. NULL at first. */
void http_request_set_user(struct http_request *request, void *user);
void *http_request_user(const struct http_request *request);

/* ---- a body that is read in pieces ---- */

struct http_body_sink {
    /* The bytes are valid during the call. */
    void (*on_piece)(struct http_request *request, const void *data, size_t bytes);
    void (*on_end)(struct http_request *request);
};

/* In on_head: the body comes in pieces, as it arrives, instead of through on_request. The sink
 * outlives the request. Neither function is called after the answer, or after on_gone. */
void http_request_stream(struct http_request *request, const struct http_body_sink *sink);
/* No more pieces come, and the client is not read from, until it is resumed. In between the
 * client's going may not be seen. */
void http_request_pause(struct http_request *request);
void http_request_resume(struct http_request *request);

/* ---- answers ---- */

/* Bytes that go out in this order. With `release` they are lent until it is called, once, on the
 * server's thread or the thread that destroys it; without, they are copied. */
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

/* The answer. Content-Length, Date and Connection are the server's own. `code` 200 to 599. To HEAD
 * the pieces are counted and released, not sent. The request is not to be touched afterwards. */
void http_answer(struct http_request *request, int code, const struct http_header *headers,
                 size_t header_count, const struct http_piece *pieces, size_t piece_count);

/* Before http_answer: its lent pieces are scarce, so it must be taken within `scarce_timeout_ns`.
 */
void http_request_set_scarce(struct http_request *request);

enum { HTTP_HIGH_WATER_BYTES = 256 << 10, HTTP_LOW_WATER_BYTES = 64 << 10 };
enum http_flow { HTTP_GO_ON, HTTP_WAIT };

/* An answer whose length is not known: chunked, or until the connection ends for HTTP/1.0. With the
 * body's pieces still coming, if it is streamed. `on_writable` is called after HTTP_WAIT, when less
 * than HTTP_LOW_WATER_BYTES wait to be sent. */
void http_answer_begin(struct http_request *request, int code, const struct http_header *headers,
                       size_t header_count, void (*on_writable)(struct http_request *request));
/* HTTP_WAIT: more than HTTP_HIGH_WATER_BYTES wait; what is written all the same is kept. */
enum http_flow http_answer_write(struct http_request *request, const struct http_piece *piece);
/* After http_answer_begin. The request is not to be touched afterwards. */
void http_answer_end(struct http_request *request);
/* The same, but the client sees that the answer is not whole. */
void http_answer_abort(struct http_request *request);
