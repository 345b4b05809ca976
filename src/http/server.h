/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of HTTP/1.1, 1.0 and, if a service wants it, HTTP/2, on an event loop of libevent's,
 * which the owner runs. Handlers do not see which version carries a request.
 *
 * Threads. A server belongs to the thread of its event base: call every function on that thread, or
 * before it starts or after it has ended; every callback comes on it. Only the data of
 * `http_tls_source` may be shared with other threads.
 *
 * Ownership. A request belongs to its handler from on_request (or on_head) until the handler has
 * answered once, at once or later. If the client has left in the meantime, the answer is dropped.
 * Results of the accessors are valid until then. A connection of HTTP/1 has one request at a time;
 * pipelined requests wait, at most 64 KiB of them are read.
 *
 * Errors. The server itself answers malformed, large or slow requests and connections beyond a
 * limit (400, 408, 413, 414, 417, 431, 503, 505), and closes the connection after the client had
 * time to read the reason.
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

/* Connections wait in the kernel until resumed. On the server's thread, or before it runs. */
void http_listeners_pause(struct http_server *server);
void http_listeners_resume(struct http_server *server);

/* Accepts no more connections; those that are open are answered, and closed with their next answer:
 * for a successor that listens on the same sockets. On the server's thread. */
void http_server_part(struct http_server *server);

struct http_server *http_server_create(struct event_base *base);
/* Stops accepting and lets answers under way finish, for `grace_ns` at most; then calls `on_done`
 * once, perhaps at once. */
void http_server_drain(struct http_server *server, int64_t grace_ns, void (*on_done)(void *context),
                       void *context);
/* Closes everything. Unanswered requests are freed without on_gone; lent pieces are released. NULL
 * is ignored. */
void http_server_destroy(struct http_server *server);

/* Counts of a pool, each reported as a change. All but the first only grow. */
enum http_figure {
    HTTP_CONNECTIONS,   /* open now; may fall */
    HTTP_REQUESTS,      /* handed to a handler */
    HTTP_REFUSED,       /* requests and connections answered by the server itself */
    HTTP_EVICTED,       /* idle connections closed to admit others */
    HTTP_TIMED_OUT,     /* connections that sent a request or read an answer too slowly */
    HTTP_CUT,           /* connections that did not read an answer with scarce resources */
    HTTP_NOT_ACCEPTING, /* times without a descriptor or memory for a connection */
    HTTP_HELD_UP,       /* pieces of paused bodies beyond paused_bytes_max */
    HTTP_FIGURE_COUNT
};

/*
 * Connections that share limits: those of one service. To admit a connection to a full pool, or
 * from a peer at its limit, the connection that has been idle longest is closed; if none is idle,
 * the new one is answered 503.
 */
struct http_pool_options {
    const char *name; /* for the log */
    uint32_t connections_max;
    uint32_t peer_connections_max; /* from one address; 0: unlimited */
    int64_t idle_timeout_ns;       /* between requests */
    int64_t header_timeout_ns;     /* from the first byte of a request to the end of its head */
    /* A body must arrive, and an answer be read, within this and one more second for each 64 KiB,
     * and never stall for as long. */
    int64_t body_timeout_ns;
    int64_t write_timeout_ns;
    int64_t scarce_timeout_ns; /* the same for http_request_set_scarce, if it is less; 0: no such
                                * limit, and no connection is closed to relieve others */
    uint64_t paused_bytes_max; /* HTTP/2: of paused bodies; more fill their connection's window */
    void (*count)(void *context, enum http_figure figure, int64_t by); /* may be NULL */
    void *context;
};

/* Copies `options`, but not what it points to. The server owns the pool. */
struct http_pool *http_pool_create(struct http_server *server,
                                   const struct http_pool_options *options);

/* Others are being refused because answers hold scarce resources (http_request_set_scarce). Closes
 * connections that have not read theirs for one second, and one more for each 4 MiB: those of
 * machines with at least the average number of them, and at least two. All unix sockets count as
 * one machine. */
void http_pool_relieve(struct http_pool *pool);

/* ---- TLS ---- */

/* PEM texts. */
struct http_pems {
    const char *certificate; /* and those between it and its authority; a client: may be NULL */
    const char *key;         /* decrypted */
    const char *ca; /* authorities of the other side's; NULL: none, of a client: the system's */
};

enum http_tls_clients { HTTP_TLS_ANY, HTTP_TLS_OPTIONAL, HTTP_TLS_REQUIRED };

struct http_tls_source {
    /* Calls `take` if the certificates' version is not `have` (0: none), and returns the
     * version. */
    uint64_t (*fetch)(void *context, uint64_t have,
                      void (*take)(void *taker, const struct http_pems *pems), void *taker);
    void *context;
    enum http_tls_clients clients;
};

/* Fetches for the first time. INVALID_ARGUMENT with OpenSSL's reason. */
enum status http_tls_create(const struct http_tls_source *source, struct http_tls **tls,
                            struct error *error) WARN_UNUSED;
/* Like http_tls_create(), for clients (client.h), which check their servers' certificates. */
enum status http_tls_create_client(const struct http_tls_source *source, struct http_tls **tls,
                                   struct error *error) WARN_UNUSED;
/* Call after the server or client is gone. NULL is ignored. */
void http_tls_destroy(struct http_tls *tls);

/* ---- services ---- */

struct http_service {
    /* The whole request has arrived. */
    void (*on_request)(void *context, struct http_request *request);
    /* The head has arrived, the body is not read yet; may be NULL. The handler may answer, and the
     * body is not read; or call http_request_stream; otherwise the body is collected. */
    void (*on_head)(void *context, struct http_request *request);
    /* The client of an unanswered request left. May be NULL. The request must still be answered,
     * here or later. A client that has ended its sending side counts as gone. */
    void (*on_gone)(void *context, struct http_request *request);
    void *context;
    uint64_t body_bytes_max;
    size_t header_bytes_max; /* of the request line and all headers */
    /* HTTP/2, by its preface or ALPN: requests at a time of a connection; 0: HTTP/1 alone. */
    uint32_t streams_max;
    /* Writes the body of the server's own answers; NULL: plain text. `text` is a sentence. Writes
     * at most `room` bytes including the NUL. */
    void (*error_body)(const char *text, char *body, size_t room);
    const char *error_type; /* its Content-Type; NULL: plain text */
};

/* Binds `port:N`, `host:N`, `[v6]:N` or `unix:PATH` for a service. Port 0: any free one; the log
 * names it (http_listening). Copies `service`, but not what it points to. `tls` may be NULL.
 * UNAVAILABLE or INVALID_ARGUMENT with the address and the reason. */
enum status http_listen(struct http_pool *pool, const char *address,
                        const struct http_service *service, struct http_tls *tls,
                        struct error *error) WARN_UNUSED;

/* ---- a request ---- */

enum http_method { HTTP_GET, HTTP_POST, HTTP_HEAD, HTTP_OTHER };

enum http_method http_request_method(const struct http_request *request);
/* Returns the name as sent. */
const char *http_request_method_name(const struct http_request *request);
/* Decoded, without the query, always starting with '/'. */
const char *http_request_path(const struct http_request *request);
/* The path as sent: for handlers that must distinguish an encoded slash. */
const char *http_request_path_encoded(const struct http_request *request);
/* The part after '?', as sent; "" if there is none. */
const char *http_request_query(const struct http_request *request);
/* The value of the first header with this name, in any case; or NULL. */
const char *http_request_header(const struct http_request *request, const char *name);
/* Iterates over all headers in their order, from position 0; false at the end. */
bool http_request_header_walk(const struct http_request *request, size_t *position,
                              const char **name, const char **value);
/* The collected body, contiguous; NULL with 0 bytes: none. Other threads may read it. */
const void *http_request_body(struct http_request *request, size_t *bytes);
/* The numeric address of the client's machine; "unix" for a unix socket. */
const char *http_request_peer(const struct http_request *request);
/* Passes all names of the client's certificate to `take`: its subject as in RFC 2253, its common
 * name, its alternative names (DNS, email, URI, IP address). False: no certificate was shown. */
bool http_request_peer_names(const struct http_request *request,
                             void (*take)(void *context, const void *name, size_t bytes),
                             void *context);
/* The kind of address that the client has connected to. */
enum http_place { HTTP_AT_LOOPBACK, HTTP_AT_NETWORK, HTTP_AT_TLS, HTTP_AT_UNIX };
enum http_place http_request_place(const struct http_request *request);
/* HTTP/2 carries it. */
bool http_request_is_http2(const struct http_request *request);
/* The client has gone. */
bool http_request_is_gone(const struct http_request *request);
/* A pointer kept for the handler with the request. NULL at first. */
void http_request_set_user(struct http_request *request, void *user);
void *http_request_user(const struct http_request *request);

/* ---- a streamed body ---- */

struct http_body_sink {
    /* The bytes are valid during the call. */
    void (*on_piece)(struct http_request *request, const void *data, size_t bytes);
    void (*on_end)(struct http_request *request);
};

/* Passes the body in pieces as it arrives, instead of on_request. Call in on_head. The sink must
 * outlive the request. Neither function is called after the answer or on_gone. */
void http_request_stream(struct http_request *request, const struct http_body_sink *sink);
/* Like http_request_stream(), for HTTP/2, but the handler bounds the size of the body and the time
 * that it takes. */
void http_request_stream_freely(struct http_request *request, const struct http_body_sink *sink);
/* Stops reading from the client until resumed. Meanwhile the client's departure may go
 * unnoticed. */
void http_request_pause(struct http_request *request);
void http_request_resume(struct http_request *request);

/* ---- answers ---- */

/* Bytes to send, in order. With `release` they are lent until it is called, once, on the server's
 * thread or the thread that destroys it; without, they are copied. */
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

/* Sends an answer. The server adds Content-Length, Date and Connection. `code` is 200 to 599. For
 * HEAD the pieces are counted and released, not sent. Do not touch the request afterwards. */
void http_answer(struct http_request *request, int code, const struct http_header *headers,
                 size_t header_count, const struct http_piece *pieces, size_t piece_count);

/* Declares, before http_answer, that its lent pieces are scarce and must be read within
 * `scarce_timeout_ns`. Not for HTTP/2. */
void http_request_set_scarce(struct http_request *request);

enum { HTTP_HIGH_WATER_BYTES = 256 << 10, HTTP_LOW_WATER_BYTES = 64 << 10 };
enum http_flow { HTTP_GO_ON, HTTP_WAIT };

/* Begins an answer of unknown length: chunked, or until the connection ends for HTTP/1.0. A
 * streamed body may still be arriving. `on_writable` is called after HTTP_WAIT, when less than
 * HTTP_LOW_WATER_BYTES wait to be sent. */
void http_answer_begin(struct http_request *request, int code, const struct http_header *headers,
                       size_t header_count, void (*on_writable)(struct http_request *request));
/* HTTP_WAIT: more than HTTP_HIGH_WATER_BYTES wait; bytes written anyway are kept. */
enum http_flow http_answer_write(struct http_request *request, const struct http_piece *piece);
/* Like http_answer_write(), but the piece is copied, and sent after this turn of the loop together
 * with others: for small pieces, of which more follow at once. */
enum http_flow http_answer_append(struct http_request *request, const struct http_piece *piece);
/* Bounds what the kernel keeps of this answer for a client that does not read it. */
void http_answer_set_buffer(struct http_request *request, int bytes);
/* The bytes of this answer that the kernel has not taken yet. */
size_t http_answer_waiting(const struct http_request *request);
/* Ends an answer of http_answer_begin. Do not touch the request afterwards. */
void http_answer_end(struct http_request *request);
/* Like http_answer_end(), with trailers. Only for HTTP/2. */
void http_answer_end_with(struct http_request *request, const struct http_header *trailers,
                          size_t count);
/* Like http_answer_end(), but the client sees that the answer is incomplete. */
void http_answer_abort(struct http_request *request);
