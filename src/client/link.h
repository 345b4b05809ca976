/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: a region from a node, the requests in it, and, while the region is served, the connection
 * over which it came. The client plays the coordinator's part in that region: it takes slots,
 * pushes, pops, repairs and releases (shm/DESIGN-clients.md).
 *
 * A link is lost when the node gives its client another region (`successor`) or stops serving it.
 * No other process uses the region then; requests in flight are carried over or fail. The link
 * lives until its last request is released, so that answers stay readable and inputs writable
 * after the node has died, too.
 *
 * One thread at a time may use it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <shoal/client.h>

#include "base/error.h"
#include "ipc/local.h"
#include "shm/doorbell.h"
#include "shm/payload.h"
#include "shm/region.h"

enum client_request_state {
    REQUEST_FREE,     /* unused; its slot is in the free ring */
    REQUEST_BUILDING, /* the caller's; we hold its slot, or the link is lost */
    REQUEST_FLYING,   /* the caller's; in the stages, or to be carried over */
    REQUEST_ANSWERED, /* the caller's; we hold its slot again */
    REQUEST_GIVEN_UP, /* the caller's, answered by us; its slot is still in the stages */
    REQUEST_LOOSE,    /* released; its slot is still in the stages */
};

struct shoal_request {
    struct shoal_client *client;
    struct client_link *link;
    enum client_request_state state;
    struct shm_ticket ticket;
    uint8_t place; /* from which its slot was claimed */
    uint32_t deaths;
    int64_t deadline_ns;
    int32_t status;
    char text[ERROR_TEXT_MAX];
    void *tag;
    bool listed; /* in its link's list of answered requests */
    struct shoal_request *before, *after;
    struct shoal_request *next_free, *next_all; /* in the pool */
    struct payload_builder builder;
    struct payload_view view;
    struct payload_table table;
};

/* A client's requests: allocated when none is free, never freed before the client. They outlive
 * links: the caller's pointer stays valid when a request is carried over. */
struct request_pool {
    struct shoal_client *client;
    struct shoal_request *free;
    struct shoal_request *all;
};

struct client_link {
    int fd; /* -1: lost */
    struct region region;
    struct local_word terms;         /* the node's welcome */
    struct shoal_request **requests; /* by slot; NULL: free */
    struct request_pool *pool;
    uint32_t owned; /* by the caller: not released */
    uint32_t flying;
    int64_t next_deadline_ns;      /* lower bound of the deadlines in flight */
    bool draining;                 /* the node is about to stop and takes no more requests */
    bool spoiled;                  /* lost, and nothing can be carried over */
    struct error why;              /* why it was lost; default: the connection has closed */
    struct client_link *successor; /* of a lost link: where it goes on; NULL: none yet */
    struct spin spin;
    int64_t received_ns;                                  /* time of the last look at the socket */
    struct shoal_request *answered_first, *answered_last; /* in order of their answers; not returned
                                                           * to the caller yet */
};

void pool_free(struct request_pool *pool);

struct link_options {
    const char *path;
    const struct local_hello *hello;
    int64_t timeout_ns;
    int64_t spin_ns;
    struct request_pool *pool;
};

/* Connects, sends the hello, waits for the welcome. */
enum status link_open(const struct link_options *options, struct client_link **link,
                      struct error *error) WARN_UNUSED;
/* Closes the link with all its requests and its successor. */
void link_close(struct client_link *link);

static inline bool
link_is_lost(const struct client_link *link)
{
    return link->fd < 0;
}

/* Takes answers, and reads the socket now and then. True: a request was answered. The link may be
 * lost afterwards with requests in flight: call link_carry, then link_fail for the rest. */
bool link_step(struct client_link *link, int64_t now_ns);

/* Polls for answers a while longer, then sleeps, until `until_ns` at most. */
void link_rest(struct client_link *link, int64_t until_ns);

/* Acquires a slot and its request, in state BUILDING. RESOURCE_EXHAUSTED: all are in use. */
enum status link_take(struct client_link *link, struct shoal_request **request,
                      struct error *error) WARN_UNUSED;

/* Submits a request whose payload is complete. */
enum status link_push(struct client_link *link, struct shoal_request *request,
                      struct error *error) WARN_UNUSED;

/* Returns the first answered request that was not returned yet; NULL: none. */
struct shoal_request *link_next_answered(struct client_link *link);

/* Answers a request in the node's stead; its slot stays in the stages. */
void link_give_up(struct shoal_request *request, enum status status, const char *text);

/* Releases a request of the caller's. */
void link_release(struct shoal_request *request);

/* ---- lost links: carry.c ---- */

/* Carries over or answers all requests in flight in a lost link: those that had come back are not
 * run again, and those that cannot be carried over fail. */
void link_carry(struct client_link *from, struct client_link *to);

/* Carries over one request that is not submitted yet, with its content. On failure it stays. */
enum status link_carry_one(struct shoal_request *request, struct client_link *to,
                           struct error *error) WARN_UNUSED;

/* Fails all requests in flight in a lost link. */
void link_fail(struct client_link *link, enum status status, const char *text);

/* ---- shared by the two ---- */

void link_lose(struct client_link *link, const struct error *why);
/* Takes all answers of a lost link. */
void link_empty(struct client_link *link);
void request_answer(struct shoal_request *request, enum status status, const char *text);
void request_free(struct shoal_request *request);
/* Acquires a slot of `link` for the request. */
enum status request_place(struct shoal_request *request, struct client_link *link,
                          struct error *error) WARN_UNUSED;
