/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client regions of a lane: the regions of local clients, which the lane's workers serve beside
 * their own (shm/DESIGN-clients.md). A client region's region is planned here and made by the
 * region maker. The coordinator never maps it afterwards: its client can remove pages, and a load
 * from a page that cannot be had again would kill this process.
 *
 * A client region's number is free again when every worker that received it has left it or is dead,
 * so the memory of client regions is bounded, however fast clients come and go. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/workers/region_maker.h"
#include "ipc/handshake.h"
#include "shm/client_regions.h"

struct worker_pools;
struct pool_member;

/* Says whether a dead worker held items of a client region. */
enum client_held { CLIENT_HELD_NOTHING, CLIENT_HELD_ITEMS };

/* Says whether the pages of a client region that leaves are freed. */
enum client_pages {
    CLIENT_PAGES_FREED,
    CLIENT_PAGES_KEPT, /* its client still reads its answers */
};

/* A client region's owner: the session of its client. */
struct client_region_events {
    /* The client region was found corrupt or could not be served. It is already dismissed. */
    void (*lost)(void *context, const char *why);
    /* The client region is about to end; its region is still served. */
    void (*ends)(void *context);
    /* The lane has ended or has a successor: no worker of it is in the client region any more, and
     * the memory belongs to the client alone. Already dismissed, too. */
    void (*ended)(void *context);
    /* A worker has died. */
    void (*worker_died)(void *context, uint16_t owner, enum client_held held);
    void *context;
};

enum client_region_state {
    CLIENT_REGION_FREE,
    CLIENT_REGION_SERVED,
    CLIENT_REGION_ENDING,  /* stage by stage, workers finish what they hold; its pages are kept */
    CLIENT_REGION_LEAVING, /* its client is gone or not to be trusted; its pages are freed */
};

struct lane_client_region {
    enum client_region_state state;
    enum client_pages pages; /* LEAVING */
    uint32_t stage; /* ENDING: the first stage in which a worker may still be busy with it */
    bool looked;    /* ENDING: a worker of that stage has left, and found nothing there; none that
                       had received it has died since */
    int fd;
    uint64_t bytes;
    uint64_t serial;
    struct client_region_events owner;
};

/* The sizes that a client asks for; 0: the maximum. */
struct client_region_wish {
    uint32_t slots;
    uint64_t message_bytes;
    bool moves; /* it comes from another lane of the pipeline and is counted already */
};

/* Plans a client's region. INVALID_ARGUMENT: its messages are larger than permitted. */
enum status worker_pools_region_plan(const struct worker_pools *pools,
                                     const struct client_region_wish *wish,
                                     struct region_plan *plan, struct error *error) WARN_UNUSED;

/* Gives all workers a region planned by worker_pools_region_plan. On success the worker pools owns
 * it, and
 * `*region` is none. RESOURCE_EXHAUSTED: too many client regions. */
enum status worker_pools_region_admit(struct worker_pools *pools,
                                      const struct client_region_wish *wish,
                                      const struct client_region_events *owner,
                                      struct made_region *region, uint32_t *number,
                                      struct error *error) WARN_UNUSED;
/* The client region's client is gone. With CLIENT_PAGES_KEPT it has left a stopping node and may
 * still read its last answers, so the memory lives as long as the later of both. */
void worker_pools_region_dismiss(struct worker_pools *pools, uint32_t number,
                                 enum client_pages pages);
/* No worker is left: ends the client regions that were still leaving. */
void worker_pools_region_fini(struct worker_pools *pools);

/* ---- called by the places ---- */

/* The place's process serves from now on: sends it all client regions. */
void pool_member_announce_regions(struct pool_member *member);
/* The worker has sent a message about a client region; false: an impossible one. */
bool member_is_reported_of_region(struct pool_member *member,
                                  const struct handshake_client_region *word);
/* The place's process is dead; returns the client regions of which it held items, a bit each. */
uint32_t pool_member_left_regions(struct pool_member *member);
/* A stage has no worker and none about to be ready: regions that end do not wait for one. */
void worker_pools_region_stage_closed(struct worker_pools *pools);
