/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: a region that a node has handed over, the requests in it, and, as long as the region is
 * served, the connection over which it came. The client's part in that region is the coordinator's
 * in a lane: take slots, push, pop, repair, release (shm/DESIGN-clients.md).
 *
 * A link is lost when the node gives its client another region (`successor`), or none any more.
 * Nobody else is in the region then; what is in flight in it is carried over, or fails. It lives
 * until its last request has been released, so that answers stay readable, and inputs writable,
 * whatever became of the node.
 *
 * One thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <shoal/client.h>

#include "base/error.h"
#include "shm/doorbell.h"
#include "shm/local.h"
#include "shm/payload.h"
#include "shm/region.h"

enum request_state {
    REQUEST_FREE,     /* nobody's; its slot is in the free ring */
    REQUEST_BUILDING, /* the caller's; we hold its slot, or it is one of a lost link */
    REQUEST_FLYING,   /* the caller's; in the stages, or to be carried over to another link */
    REQUEST_ANSWERED, /* the caller's; we hold its slot again */
    REQUEST_GIVEN_UP, /* the caller's, answered by us; its slot is still in the stages */
    REQUEST_LOOSE,    /* nobody's; its slot is still in the stages */
};

struct shoal_request {
    struct shoal_client *client;
    struct link *link;
    enum request_state state;
    struct shm_ticket ticket;
    uint8_t place; /* from which its slot was claimed */
    uint32_t deaths;
    int64_t deadline_ns;
    int32_t status;
    char text[ERROR_TEXT_MAX];
    void *tag;
    bool listed; /* among the answered of its link */
    struct shoal_request *before, *after;
    struct shoal_request *next_free, *next_all; /* of the pool */
    struct payload_builder builder;
    struct payload_view view;
    struct payload_table table;
};

/* A client's requests: as many as it ever had at a time, each made when there was none free. They
 * outlive links: the caller's pointer stays when a request is carried over. */
struct request_pool {
    struct shoal_client *client;
    struct shoal_request *free;
    struct shoal_request *all;
};

struct link {
    int fd; /* -1: lost */
    struct region region;
    struct local_word terms;         /* the welcome */
    struct shoal_request **requests; /* by slot; NULL: free */
    struct request_pool *pool;
    uint32_t owned; /* by the caller: not released */
    uint32_t flying;
    int64_t next_deadline_ns; /* of those in flight none is earlier */
    bool draining;            /* the node is about to stop, and takes no more */
    bool spoiled;             /* lost, and nothing can be carried over … */
    struct error why; /* … for this reason; without one of ours: the connection has closed */
    struct link *successor; /* lost: where it goes on; NULL: nowhere yet */
    struct spin spin;
    int64_t heard_ns;                                     /* when the socket was looked at last */
    struct shoal_request *answered_first, *answered_last; /* in this order, not shown yet */
};

void pool_free(struct request_pool *pool);

/* Connects, says hello, waits for the welcome. */
enum status link_open(const char *path, const struct local_hello *hello, int64_t timeout_ns,
                      int64_t spin_ns, struct request_pool *pool, struct link **link,
                      struct error *error) WARN_UNUSED;
/* With all its requests, and its successor. */
void link_close(struct link *link);

static inline bool
link_is_lost(const struct link *link)
{
    return link->fd < 0;
}

/* Takes what has come back, and at times looks at the socket; true: something was answered. It may
 * be lost after that, with requests in flight: link_carry, then link_fail the rest. */
bool link_step(struct link *link, int64_t now_ns);

/* Nothing had come back: looks a while longer, then sleeps, until a time at most. */
void link_rest(struct link *link, int64_t until_ns);

/* A slot and its request, which is then BUILDING. RESOURCE_EXHAUSTED: all are in use. */
enum status link_take(struct link *link, struct shoal_request **request,
                      struct error *error) WARN_UNUSED;

/* Its payload is complete. */
enum status link_push(struct link *link, struct shoal_request *request,
                      struct error *error) WARN_UNUSED;

/* The first that was answered and not shown yet, which it is with this; NULL: none. */
struct shoal_request *link_next_answered(struct link *link);

/* Answers a request of ours in the node's stead: it flies on, and nobody waits for it. */
void link_give_up(struct shoal_request *request, enum status status, const char *text);

/* The caller's hold is gone. */
void link_release(struct shoal_request *request);

/* ---- lost links: carry.c ---- */

/* All that is in flight in a lost link is taken over and pushed again, or answered: what had come
 * back is not run again, and what can't be fails. */
void link_carry(struct link *from, struct link *to);

/* One that is not submitted yet, with what it holds so far. In failure it stays where it is. */
enum status link_carry_one(struct shoal_request *request, struct link *to,
                           struct error *error) WARN_UNUSED;

/* All that is in flight in a lost link fails. */
void link_fail(struct link *link, enum status status, const char *text);

/* ---- shared by the two ---- */

void link_lose(struct link *link, const struct error *why);
/* Takes all that has come back of a lost link. */
void link_empty(struct link *link);
void request_answer(struct shoal_request *request, enum status status, const char *text);
void request_free(struct shoal_request *request);
/* A slot of `link` for it. */
enum status request_place(struct shoal_request *request, struct link *link,
                          struct error *error) WARN_UNUSED;
