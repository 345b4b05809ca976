/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the HTTP server: what evhttp does not do by itself. It keeps time (a request
 * must arrive and an answer be taken at a pace), sees that a client has gone while its request is
 * being worked on, puts our words in place of evhttp's own error pages, and lets a client that was
 * refused in the middle of its sending read why. HTTP thread.
 *
 * A connection lives until evhttp has closed it and its request, if one is open, is answered.
 */
#pragma once

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "coordinator/front/http.h"
#include "coordinator/loop/loop.h"

enum connection_state {
    CONNECTION_WAITS,    /* for a request */
    CONNECTION_ARRIVES,  /* a part of a request is there */
    CONNECTION_OPEN,     /* a request is the handler's */
    CONNECTION_ANSWERED, /* its answer is on the way */
};

struct http_request {
    struct connection *connection;
    struct evhttp_request *evhttp; /* NULL: none */
    char *path;                    /* evhttp's memory; NULL: none */
    void *user;
};

struct connection {
    struct http_address *address;
    struct bufferevent *buffers;
    struct evhttp_connection *evhttp; /* NULL: not adopted yet, or closed */
    struct evbuffer_cb_entry *on_input;
    struct evbuffer_cb_entry *on_output;
    struct event *timer;
    struct event *turn; /* what is to be done when evhttp has returned */
    enum connection_state state;
    int64_t since_ns;            /* when it entered that state */
    uint64_t moved;              /* bytes, since then */
    uint64_t moved_before;       /* at the timer's last look */
    bool closed;                 /* by evhttp */
    bool writes_ours;            /* what goes into the output now is no page of evhttp's */
    bool refused;                /* in the middle of sending, perhaps */
    struct http_request request; /* the one that is open */
    LIST_ENTRY(connection) link;
};

/* A refused client's socket: open until it has sent all it has, or some time is over. */
struct lingerer {
    struct http *http;
    struct event *event;
    int fd;
    int64_t until_ns;
    LIST_ENTRY(lingerer) link;
};

/* One address that is listened on, with the service behind it. */
struct http_address {
    struct http *http;
    struct http_service service;
    struct evhttp *evhttp;
    struct evconnlistener *listener;
    LIST_ENTRY(http_address) link;
};

struct http {
    struct http_options options;
    struct loop *loop;
    struct event_base *base; /* the loop's */
    pthread_t thread;
    bool started;
    struct event *pause; /* runs out when it is worth trying to accept again */
    struct loop_timer *grace;
    bool closing; /* no more is accepted, answers are sent to their ends */
    bool ending;  /* the thread is gone, all is being closed */
    uint32_t connection_count;
    uint32_t lingerer_count;
    struct connection *current; /* whose input evhttp has last read from; or NULL */
    int64_t complained_ns;      /* when it was last logged that nothing can be accepted */
    LIST_HEAD(, http_address) addresses;
    LIST_HEAD(, connection) connections;
    LIST_HEAD(, lingerer) lingerers;
};

/* For evhttp_set_bevcb, with the address. */
struct bufferevent *connection_create(struct event_base *base, void *address);
/* Of a request that evhttp has read, its connection. */
struct connection *connection_of(const struct http *http, struct evhttp_request *request);

void connection_enter(struct connection *connection, enum connection_state state);
/* The handler works on: from now on it is seen when the client goes. */
void connection_watch(struct connection *connection);
/* Its answer is sent: the next request may come, or has come already. */
void connection_next(struct connection *connection);
/* Closed and answered: nothing needs it any more. */
void connection_free(struct connection *connection);

/* One of the node's counters. */
void http_count(struct http *http, enum counter counter);
void http_count_connections(struct http *http);

/* While it is closing: ends the loop if no answer is on its way any more. */
void http_closing_look(struct http *http);

void lingerer_free(struct lingerer *lingerer);

/* The phrase that goes with a status code; never NULL. */
const char *http_phrase(int code);
/* What the server itself has to say, in the service's form. */
enum { HTTP_OWN_BODY_BYTES = 512 };
const char *http_own_type(const struct http_service *service);
void http_own_body(const struct http_service *service, const char *text,
                   char body[HTTP_OWN_BODY_BYTES]);
