/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: one connection to a node, with the region that came over it and the requests in it. The
 * client's part in that region is the coordinator's in a lane: take slots, push, pop, repair,
 * release (shm/DESIGN-clients.md). A link is lost when its socket closes or its region cannot be;
 * what is in flight then fails. It lives until its last request has been released, so that answers
 * stay readable, and inputs writable, whatever became of the node.
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
    REQUEST_FLYING,   /* the caller's; in the stages */
    REQUEST_ANSWERED, /* the caller's; we hold its slot again */
    REQUEST_GIVEN_UP, /* the caller's, answered by us; its slot is still in the stages */
    REQUEST_LOOSE,    /* nobody's; its slot is still in the stages */
};

struct shoal_request {
    struct link *link;
    enum request_state state;
    struct shm_ticket ticket;
    uint8_t place; /* from which its slot was claimed */
    bool shown;    /* shoal_client_wait_any has given it */
    uint32_t deaths;
    int64_t deadline_ns;
    int32_t status;
    char text[ERROR_TEXT_MAX];
    void *tag;
    struct shoal_request *next_answered;
    struct payload_builder builder;
    struct payload_view view;
    struct payload_table table;
};

struct link {
    int fd; /* -1: lost */
    struct region region;
    struct local_word terms;        /* the welcome */
    struct shoal_request *requests; /* one per slot */
    uint32_t owned;                 /* by the caller: not released */
    uint32_t flying;
    struct spin spin;
    int64_t heard_ns;                                     /* when the socket was looked at last */
    struct shoal_request *answered_first, *answered_last; /* in this order, not shown yet */
};

/* Connects, says hello, waits for the welcome. */
enum status link_open(const char *path, const struct local_hello *hello, int64_t timeout_ns,
                      int64_t spin_ns, struct link **link, struct error *error) WARN_UNUSED;
/* With all its requests. */
void link_close(struct link *link);

/* Everything in flight fails with this; nothing is sent or taken any more. */
void link_lose(struct link *link, enum status status, const char *text);

static inline bool
link_is_lost(const struct link *link)
{
    return link->fd < 0;
}

/* Takes what has come back, and at times looks at the socket; true: something was answered. */
bool link_step(struct link *link, int64_t now_ns);

/* Nothing had come back: looks a while longer, then sleeps, until a time at most. */
void link_rest(struct link *link, int64_t until_ns);

/* A slot and its request, which is then BUILDING. RESOURCE_EXHAUSTED: all are in use. */
enum status link_take(struct link *link, struct shoal_request **request,
                      struct error *error) WARN_UNUSED;

/* Its payload is complete. */
enum status link_push(struct link *link, struct shoal_request *request,
                      struct error *error) WARN_UNUSED;

/* Answers a request of ours in the node's stead: it flies on, and nobody waits for it. */
void link_give_up(struct shoal_request *request, enum status status, const char *text);

/* The caller's hold is gone. */
void link_release(struct shoal_request *request);
