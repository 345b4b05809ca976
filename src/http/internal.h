/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the HTTP server. connection.c has the state of a connection and is the only one to
 * change it, answer.c writes, listen.c accepts and keeps the limits, tls.c knows OpenSSL.
 *
 * A connection's memory lives until it is closed and its request, if one is open, is answered.
 */
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "http/body.h"
#include "http/parse.h"
#include "http/server.h"

enum {
    HTTP_AHEAD_BYTES = 64 << 10, /* read of what a client sends before it has its answer */
    HTTP_READ_BYTES = 256 << 10, /* of a large body, at once */
    HTTP_PACE_BYTES = 64 << 10,  /* a second more for each so many bytes */
    HTTP_LINGERERS_MAX = 64,     /* of a pool */
    HTTP_OWN_BODY_BYTES = 512,
    HTTP_PEER_BUCKETS = 256
};
#define HTTP_LINGER_NS (2 * NS_PER_S)
/* The time that an answer may take while others are refused: this, and a second for each so many
 * bytes. */
#define HTTP_RELIEF_NS NS_PER_S
enum { HTTP_RELIEF_BYTES = 4 << 20 };

enum http_state {
    HTTP_IDLE,     /* no byte of a request is there */
    HTTP_HEAD_IN,  /* a part of a head is */
    HTTP_BODY_IN,  /* the head is, and a body comes */
    HTTP_OPEN,     /* the request is the handler's; a streamed answer may have begun */
    HTTP_ANSWERED, /* its answer is on the way */
    HTTP_LINGERS,  /* refused, our side is shut: what comes is thrown away */
    HTTP_CLOSED
};

enum http_answering { HTTP_ANSWER_NONE, HTTP_ANSWER_CHUNKED, HTTP_ANSWER_UNTIL_CLOSE };

struct http_request {
    struct http_connection *connection;
    bool is_open;    /* the handler has it, and has not answered */
    bool is_refused; /* by the server, before the handler has answered: it answers nobody */
    bool body_ended; /* nothing more comes of it */
    bool is_paused;
    enum http_answering answering; /* in pieces */
    bool drops_body;               /* the answer's: to HEAD */
    bool waits;                    /* HTTP_WAIT was said */
    void (*on_writable)(struct http_request *request);
    const struct http_body_sink *sink; /* NULL: the body is collected */
    char *path_encoded;                /* in the parser's text */
    const char *query;
    char *path; /* the same as path_encoded, or allocated */
    char *body;
    size_t body_bytes;
    size_t body_room;
    void *user;
};

/* One machine that connects to a pool. */
struct http_peer {
    struct in6_addr address;
    uint32_t connection_count;
    uint32_t suspect_count;             /* http_pool_relieve's */
    TAILQ_HEAD(, http_connection) idle; /* longest first */
    LIST_ENTRY(http_peer) link;
};

/* In a client's certificate, read once when it connects: each its length, 4 bytes, and itself. */
struct http_names {
    size_t bytes;
    size_t room;
    char text[];
};

struct http_connection {
    struct http_listener *listener;
    struct bufferevent *buffers; /* NULL: closed */
    int fd;
    size_t ahead_bytes; /* that may be read before they are used */
    struct event *timer;
    int64_t armed_ns; /* when the timer goes off; 0: it is not set */
    enum http_state state;
    int64_t since_ns;       /* when it entered that state */
    int64_t progress_ns;    /* when bytes were last seen to have moved */
    uint64_t moved_in;      /* bytes read in this state */
    uint64_t queued;        /* bytes to be sent, given to `buffers` in this state */
    uint64_t moved_before;  /* at the timer's last look */
    bool is_running;        /* http_connection_run is on the stack */
    bool wants_turn;        /* more has come than one turn serves */
    uint32_t holds;         /* callers on the stack that go on using it */
    bool is_handshaking;    /* TLS */
    bool closes;            /* after the answer */
    bool lingers;           /* then: the client may not have read it yet */
    bool peer_ended;        /* sends no more */
    bool is_scarce;         /* its answer holds what others need */
    bool is_counted;        /* by its pool and peer */
    bool is_orphan;         /* closed, and its request is not answered */
    struct http_peer *peer; /* NULL: a unix socket's */
    char peer_text[INET6_ADDRSTRLEN];
    struct http_names *names; /* NULL: no certificate was shown */
    struct http_parser parser;
    struct http_body body;
    struct http_request request;
    LIST_ENTRY(http_connection) link;            /* of the pool, or of the server's orphans */
    TAILQ_ENTRY(http_connection) idle_link;      /* of the pool, if HTTP_IDLE */
    TAILQ_ENTRY(http_connection) peer_idle_link; /* likewise */
};

struct http_listener {
    struct http_pool *pool;
    struct http_service service;
    struct http_tls *tls;
    int fd;
    struct event *readable;
    char *unix_path; /* removed at the end; NULL: none */
    LIST_ENTRY(http_listener) link;
};

struct http_pool {
    struct http_server *server;
    struct http_pool_options options;
    uint32_t connection_count;
    uint32_t lingerer_count;
    int64_t complained_ns; /* when it was last logged that nothing can be accepted */
    LIST_HEAD(, http_listener) listeners;
    LIST_HEAD(, http_connection) connections;
    TAILQ_HEAD(, http_connection) idle; /* longest first */
    LIST_HEAD(, http_peer) peers[HTTP_PEER_BUCKETS];
    LIST_ENTRY(http_pool) link;
};

struct http_server {
    struct event_base *base;
    struct event *pause; /* runs out when it is worth trying to accept again */
    struct event *grace;
    bool is_draining;
    bool is_ending; /* all is being closed */
    void (*on_drained)(void *context);
    void *drained_context;
    int64_t date_s; /* of the text */
    char date[40];
    LIST_HEAD(, http_pool) pools;
    LIST_HEAD(, http_connection) orphans;
};

void http_count(const struct http_pool *pool, enum http_figure figure, int64_t by);
/* While it drains: done if no answer is on its way any more. */
void http_drain_look(struct http_server *server);
/* Now, as the header Date has it. */
const char *http_date(struct http_server *server);
/* The phrase that goes with a status code; never NULL. */
const char *http_phrase(int code);

/* ---- connection.c ---- */

/* Takes over the descriptor. `over_limit`: it is refused at once. */
enum http_admission { HTTP_ADMITTED, HTTP_OVER_LIMIT };
struct http_connection *http_connection_open(struct http_listener *listener, int fd,
                                             const struct sockaddr *from,
                                             enum http_admission admission, struct http_peer *peer);
/* The answer is whole, and perhaps sent. */
void http_connection_answered(struct http_connection *connection);
/* Reads on from what has come. */
void http_connection_run(struct http_connection *connection);
/* The time before was the handler's, not the client's. */
void http_connection_restart_time(struct http_connection *connection);
/* Sets the timer for the state that it is in. */
void http_connection_arm(struct http_connection *connection);
/* Callers that do not hold it must not touch it afterwards. */
void http_connection_close(struct http_connection *connection);
/* The server itself has answered: closes, and lingers, as soon as that is sent. */
void http_connection_refused(struct http_connection *connection);
/* How long it has had for a scarce answer beyond what it may while others are refused; below 0: it
 * has time, or no such answer. */
int64_t http_connection_over_ns(const struct http_connection *connection, int64_t now_ns);
/* Counts it as cut, and closes it. */
void http_connection_cut(struct http_connection *connection);
/* Nothing frees it until it is released. */
void http_connection_hold(struct http_connection *connection);
void http_connection_release(struct http_connection *connection);

/* ---- answer.c ---- */

/* The server's own answer; closes, and lingers. */
void http_refuse(struct http_connection *connection, int code, const char *text);

/* ---- listen.c ---- */

void http_listener_destroy(struct http_listener *listener);
void http_listeners_pause(struct http_server *server);
void http_listeners_resume(struct http_server *server);
/* It is not idle any more, or is. */
void http_idle_remove(struct http_connection *connection);
void http_idle_add(struct http_connection *connection);
/* Gives its room back to pool and peer. */
void http_connection_leave(struct http_connection *connection);

/* ---- socket.c ---- */

/* Bound and listening, non-blocking. `*unix_path` is to be freed; NULL: it is none. */
enum status http_socket_open(const char *address, int *fd, char **unix_path,
                             struct error *error) WARN_UNUSED;
/* Of a bound socket; 0 for one without. */
unsigned http_socket_port(int fd);

/* ---- tls.c ---- */

/* Around a connected socket; NULL: no memory, or no certificate. */
struct bufferevent *http_tls_accept(struct http_tls *tls, struct event_base *base, int fd);
/* After the handshake: the names in the client's certificate, to be freed; NULL: it has shown none.
 */
struct http_names *http_tls_names(struct bufferevent *buffers);
/* Says goodbye. */
void http_tls_shutdown(struct bufferevent *buffers);
