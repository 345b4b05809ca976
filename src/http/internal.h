/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the HTTP server. request.c and answer.c know requests of both protocols;
 * connection.c alone changes a connection's state and reads HTTP/1, http1.c and output.c write it;
 * pool.c counts, listen.c accepts and enforces limits, tls.c uses OpenSSL.
 *
 * A connection's memory lives until it is closed and its requests, if any are open, are answered.
 */
#pragma once

#include <event2/buffer.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "base/hash_table.h"
#include "http/body.h"
#include "http/channel.h"
#include "http/parse.h"
#include "http/server.h"
#include "http/socket.h"
#include "http/tls_io.h"
#include "loop/timer.h"

enum {
    HTTP_AHEAD_BYTES = 64 << 10, /* read ahead of the current request's answer */
    HTTP_READ_BYTES = 256 << 10, /* of a large body, at a time */
    HTTP_PACE_BYTES = 64 << 10,  /* extends a time limit by one second */
    HTTP_LINGERERS_MAX = 64,     /* per pool */
    HTTP_OWN_BODY_BYTES = 512
};
#define HTTP_LINGER_NS (2 * NS_PER_S)
/* Time allowed for an answer while others are refused: this, and one second for each
 * HTTP_RELIEF_BYTES. */
#define HTTP_RELIEF_NS NS_PER_S
enum { HTTP_RELIEF_BYTES = 4 << 20 };

enum http_state {
    HTTP_IDLE,     /* no byte of a request has arrived */
    HTTP_HEAD_IN,  /* a part of a head has arrived */
    HTTP_BODY_IN,  /* the head is complete, the body is arriving */
    HTTP_OPEN,     /* the handler has the request; a streamed answer may have begun */
    HTTP_ANSWERED, /* its answer is being sent */
    HTTP_STREAMS,  /* HTTP/2, with requests: the states above are theirs, but for HTTP_IDLE */
    HTTP_LINGERS,  /* refused, our side is shut: input is discarded */
    HTTP_CLOSED
};

enum http_answering { HTTP_ANSWER_NONE, HTTP_ANSWER_CHUNKED, HTTP_ANSWER_UNTIL_CLOSE };

/* An answer, or the begin of a streamed one. */
enum http_framing { HTTP_FRAMED_BY_LENGTH, HTTP_FRAMED_BY_CHUNKS, HTTP_FRAMED_BY_NOTHING };

struct http_message {
    int code;
    const struct http_header *headers;
    size_t header_count;
    enum http_framing framing;
    uint64_t body_bytes; /* by length; an answer to HEAD has one too */
    const struct http_piece *pieces;
    size_t piece_count;
    bool is_whole;
};

/* The way in which a version of HTTP carries an answer. The request is not gone, but for
 * `answered`, `abort` and `waiting`. */
struct http_wire {
    void (*message)(struct http_request *request, const struct http_message *message);
    void (*write)(struct http_request *request, const struct http_piece *piece);
    void (*append)(struct http_request *request, const struct http_piece *piece);
    /* Sends the end behind the last piece of a streamed answer. */
    void (*end)(struct http_request *request);
    /* The handler has answered: the request may be freed. */
    void (*answered)(struct http_request *request);
    /* Like `answered`, but the client sees that the answer is incomplete. */
    void (*abort)(struct http_request *request);
    size_t (*waiting)(const struct http_request *request);
    /* The client must read before the handler goes on. */
    void (*wait)(struct http_request *request);
    /* Reads the request's body again. */
    void (*resume)(struct http_request *request);
    /* Sets the trailers that `end` sends behind the last piece. NULL: no client could take it. */
    void (*trailers)(struct http_request *request, const struct http_header *headers, size_t count);
};

struct http_request {
    const struct http_wire *wire;
    struct http_connection *connection;
    struct http_parser *head;
    bool is_open;    /* the handler has it and has not answered */
    bool is_gone;    /* its client left, or the server refused it: its answer is dropped */
    bool body_ended; /* the whole body was handed over */
    bool is_paused;
    bool is_free; /* its handler bounds the size of its body, and the time for it */
    enum http_answering answering; /* streamed */
    bool drops_body;               /* the answer's body: the method is HEAD */
    bool waits;                    /* HTTP_WAIT was returned */
    void (*on_writable)(struct http_request *request);
    const struct http_body_sink *sink; /* NULL: the body is collected */
    char *path_encoded;                /* in the head's text */
    const char *query;
    char *path; /* the same as path_encoded, or allocated */
    char *body;
    size_t body_bytes;
    size_t body_room;
    void *user;
};

/* One client machine of a pool. */
struct http_peer {
    struct hash_entry entry;
    struct in6_addr address;
    uint32_t connection_count;
    uint32_t suspect_count;             /* used by http_pool_relieve */
    TAILQ_HEAD(, http_connection) idle; /* longest idle first */
};

/* The names in a client's certificate, read once at the handshake: for each its length in 4 bytes,
 * then its bytes. */
struct http_names {
    size_t bytes;
    size_t room;
    char text[];
};

struct http_connection {
    struct http_listener *listener;
    struct http_channel channel;
    bool has_channel;   /* false: closed */
    size_t ahead_bytes; /* may be read before earlier bytes are used */
    struct loop_timer *timer;
    int64_t armed_ns; /* when the timer fires; 0: not set */
    enum http_state state;
    int64_t since_ns;       /* when it entered the current state */
    int64_t progress_ns;    /* when bytes last moved */
    uint64_t moved_in;      /* bytes read in this state */
    uint64_t queued;        /* bytes to send, given to the channel in this state */
    uint64_t moved_before;  /* bytes moved when the timer last fired */
    bool is_running;        /* http_connection_run is on the stack */
    bool wants_turn;        /* more has arrived than one turn serves */
    uint32_t holds;         /* callers on the stack that still use it */
    bool is_handshaking;    /* in the TLS handshake */
    bool closes;            /* after the current answer */
    bool lingers;           /* after closing our side: the client may not have read the answer
                             * yet */
    bool peer_ended;        /* the client sends no more */
    bool is_scarce;         /* its answer holds scarce resources */
    bool is_counted;        /* in its pool and peer */
    bool is_orphan;         /* closed while a request is unanswered */
    bool knows_version;     /* its first bytes, or ALPN, told */
    struct http2 *http2;    /* NULL: HTTP/1 */
    struct http_peer *peer; /* NULL: a unix socket */
    char peer_text[INET6_ADDRSTRLEN];
    struct http_names *names; /* NULL: no certificate was shown */
    struct http_parser parser;
    struct http_body body;
    struct http_request request;
    LIST_ENTRY(http_connection) link;            /* in the pool, or in the server's orphans */
    TAILQ_ENTRY(http_connection) idle_link;      /* in the pool, if HTTP_IDLE */
    TAILQ_ENTRY(http_connection) peer_idle_link; /* likewise */
};

struct http_listener {
    struct http_pool *pool;
    struct http_service service;
    struct http_tls *tls;
    int fd;
    struct event *readable;
    enum http_place place;
    char *unix_path; /* removed at the end; NULL: none */
    LIST_ENTRY(http_listener) link;
};

struct http_pool {
    struct http_server *server;
    struct http_pool_options options;
    uint32_t connection_count;
    uint32_t lingerer_count;
    uint64_t paused_bytes; /* within paused_bytes_max */
    int64_t complained_ns; /* when a lack of descriptors or memory was last logged */
    LIST_HEAD(, http_listener) listeners;
    LIST_HEAD(, http_connection) connections;
    TAILQ_HEAD(, http_connection) idle; /* longest idle first */
    struct hash_table peers;
    LIST_ENTRY(http_pool) link;
};

struct http_server {
    struct event_base *base;
    struct loop_timer *pause; /* fires when accepting should be retried */
    struct loop_timer *grace;
    bool is_draining;
    bool is_parting; /* the next answer of each connection is its last */
    bool is_ending;  /* everything is being closed */
    void (*on_drained)(void *context);
    void *drained_context;
    int64_t date_s; /* the time of that text */
    char date[40];
    LIST_HEAD(, http_pool) pools;
    LIST_HEAD(, http_connection) orphans;
};

/* ---- pool.c ---- */

void http_count(const struct http_pool *pool, enum http_figure figure, int64_t by);
/* Finds or makes the peer; NULL: a unix socket's, which only the pool limits. */
struct http_peer *http_peer_of(struct http_pool *pool, const struct sockaddr *from);
/* Frees a peer that has no connection. NULL is ignored. */
void http_peer_look(struct http_pool *pool, struct http_peer *peer);
/* Remove it from the idle list; add it. */
void http_idle_remove(struct http_connection *connection);
void http_idle_add(struct http_connection *connection);
/* Releases its place in pool and peer. */
void http_connection_leave(struct http_connection *connection);
/* Finishes a drain when no answer is under way. */
void http_drain_look(struct http_server *server);
/* Finishes at once. */
void http_drained(struct http_server *server);

/* ---- request.c ---- */

enum http_room { HTTP_KEEP_ROOM, HTTP_FREE_ROOM };

/* Prepares for the next request, but for its head; keeps a small body's memory. */
void http_request_clear(struct http_request *request, enum http_room room);
/* The head was read: finds the path. False: it is invalid. */
bool http_request_find_path(struct http_request *request);
/* Gives the handler the head. */
void http_request_on_head(struct http_request *request);
/* Collects bytes of the body, or hands them over. */
void http_request_on_body(struct http_request *request, const char *data, size_t bytes);
/* Hands the whole request over. */
void http_request_on_end(struct http_request *request);
/* Notifies the handler of an open request that its answer will be dropped. */
void http_request_lose(struct http_request *request);
/* The head announces a body. */
bool http_request_has_body(const struct http_request *request);
/* The body of the server's own answers with this text; returns its type. */
const char *http_own_body(const struct http_service *service, const char *text,
                          char body[HTTP_OWN_BODY_BYTES]);

/* ---- http1.c ---- */

extern const struct http_wire http1_wire;

/* ---- output.c ---- */

void http_output_message(struct http_connection *connection, const struct http_message *message);
/* Sends or queues pieces; each is released once, now or later. */
void http_output_pieces(struct http_connection *connection, const struct http_piece *pieces,
                        size_t count);
void http_pieces_release(const struct http_piece *pieces, size_t count);
/* Adds all but the first `sent` bytes; lent ones are sent from where they are. */
void http_piece_add(struct evbuffer *output, const struct http_piece *piece, size_t sent);
/* The time, as in Date. */
const char *http_date(struct http_server *server);
/* Returns whether an answer with this code has a body. */
bool http_has_body(int code);

/* ---- connection.c ---- */

/* Takes over the descriptor. `over_limit`: refuses it at once. */
enum http_admission { HTTP_ADMITTED, HTTP_OVER_LIMIT };
struct http_connection *http_connection_open(struct http_listener *listener, int fd,
                                             const struct sockaddr *from,
                                             enum http_admission admission, struct http_peer *peer);
/* The answer is complete, perhaps already sent. */
void http_connection_answered(struct http_connection *connection);
/* Processes the input. */
void http_connection_run(struct http_connection *connection);
/* Restarts the time limit: the time before was the handler's. */
void http_connection_restart_time(struct http_connection *connection);
/* Sets the timer for the current state. */
void http_connection_arm(struct http_connection *connection);
/* Sets the timer, unless it fires earlier. INT64_MAX: never. */
void http_connection_arm_at(struct http_connection *connection, int64_t at_ns);
/* Runs in a turn of its own. */
void http_connection_run_later(struct http_connection *connection);
void http_connection_enter(struct http_connection *connection, enum http_state state);
/* Shuts our side when everything was sent, and closes when the client has had time to read it. */
void http_connection_linger(struct http_connection *connection);
/* Callers without a hold must not touch it afterwards. */
void http_connection_close(struct http_connection *connection);
/* Sends the server's own answer; closes and lingers. */
void http_refuse(struct http_connection *connection, int code, const char *text);
/* Returns by how much a scarce answer exceeds the time it may take while others are refused;
 * negative: it does not, or is not scarce. */
int64_t http_connection_over_ns(const struct http_connection *connection, int64_t now_ns);
/* Counts it as cut and closes it. */
void http_connection_cut(struct http_connection *connection);
/* A hold keeps it from being freed until its release. */
void http_connection_hold(struct http_connection *connection);
void http_connection_release(struct http_connection *connection);

/* ---- listen.c ---- */

void http_listener_destroy(struct http_listener *listener);

/* ---- tls.c ---- */

/* Returns the state of an accepted connection, which is offered these versions; NULL: no memory. */
struct ssl_st *http_tls_accept(struct http_tls *tls, enum http_versions offered);
/* Returns, after the handshake, the names in the client's certificate, freed by the caller; NULL:
 * none was shown. */
struct http_names *http_tls_names(struct ssl_st *ssl);
/* Sends close_notify. */
void http_tls_shutdown(struct ssl_st *ssl);
/* Makes http_tls_shutdown send nothing from now on: the end must look torn. NULL is ignored. */
void http_tls_abandon(struct ssl_st *ssl);
