/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client regions: the regions of local clients, which a lane's workers serve beside their own. A
 * client region has the lane's stages; its client plays the coordinator's part, and roles, idle
 * bits and owners are the lane's. DESIGN-clients.md has the protocol and its proof. These functions
 * only load rings' cells and set a bell's flag in a client region's memory, so a client that writes
 * anything there cannot turn that against a worker.
 *
 * A process keeps its own table and links it into its view of the lane (`region.client_regions`);
 * former.h then looks at the client regions' rings and bells too. One thread may use it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/doorbell.h"
#include "shm/region.h"

enum { CLIENT_REGIONS_MAX = DOORBELLS_MAX - 1 };

struct client_regions {
    const struct region *regions[CLIENT_REGIONS_MAX]; /* by number; NULL: none */
    uint32_t limit;                                   /* one more than the highest number in use */
    uint32_t epoch; /* client_regions_epoch when the announcements were last read */
    bool unseen; /* client regions exist that this process has not mapped: they may have work that
                  * it does not see */
};

/* Adds a client region under a free number. The caller keeps the region. */
void client_regions_add(struct client_regions *client_regions, uint32_t number,
                        const struct region *region);
void client_regions_remove(struct client_regions *client_regions, uint32_t number);

/* Returns the bell of a stage, which the client rings. */
static inline struct shm_doorbell *
client_region_bell(const struct region *client_region, uint32_t stage)
{
    return &region_worker(client_region, stage, 0)->bell;
}

/* Notifies a client region's client that a worker has left and that another region is coming, so
 * that it reads its socket soon. A hint, in a word that client regions do not use otherwise; rings
 * the client's bell. */
void client_region_ends(const struct region *client_region);
/* Returns, to the client, whether client_region_ends was called. */
bool client_region_is_ending(const struct region *client_region);

/* Returns true, to a worker, if a ring of the stage holds work in any client region. */
bool client_regions_have_cell(const struct region *lane, uint32_t stage);
/* Like client_regions_have_cell(), but also returns true if a client region has come or gone that
 * the worker does not know of. */
bool client_regions_have_work(const struct region *lane, uint32_t stage);

/* Collects the caller's own bell and the stage's bell of every client region. */
void client_regions_bells(const struct region *lane, uint32_t stage, struct shm_doorbell *own,
                          struct doorbells *doorbells);

/* client_regions_arm sets the flags of a stage's client region bells (a worker sleeps, none is sure
 * to look); client_regions_hush clears them (the caller looks). client_regions_hush only with the
 * role. */
void client_regions_arm(const struct region *lane, uint32_t stage);
void client_regions_hush(const struct region *lane, uint32_t stage);
