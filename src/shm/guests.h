/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guests: the regions of local clients, which a lane's workers serve beside their own. A guest has
 * the lane's stages, and its client the part of the coordinator; roles, idle bits and parties are
 * the lane's. DESIGN-clients.md has the protocol and its proof. What is done here to a guest's
 * memory is to load rings' cells and to set a bell's flag: nothing that its client, who may write
 * anything there, could turn against a worker.
 *
 * A process keeps its own table and hangs it into its view of the lane (`region.guests`); former.h
 * then looks at the guests' rings and bells too. Not for several threads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/doorbell.h"
#include "shm/region.h"

enum { GUESTS_MAX = DOORBELLS_MAX - 1 };

struct guests {
    const struct region *regions[GUESTS_MAX]; /* by number; NULL: none */
    uint32_t limit;                           /* one more than the highest number in use */
    uint32_t epoch; /* guests_epoch when the announcements were last read */
    bool unseen;    /* this process knows that there are guests, and has mapped none: work may wait
                     * in them that it does not see */
};

/* Under a number that is free. The region stays the caller's. */
void guests_add(struct guests *guests, uint32_t number, const struct region *region);
void guests_remove(struct guests *guests, uint32_t number);

/* The bell of a stage, which its client rings. */
static inline struct shm_doorbell *
guest_bell(const struct region *guest, uint32_t stage)
{
    return &region_worker(guest, stage, 0)->bell;
}

/* A worker has left a guest whose client is about to get another region: it is to look at its
 * socket soon. A hint, in a word of the guest's that is not used otherwise; rings the client's
 * bell. */
void guest_ends(const struct region *guest);
/* For the client. */
bool guest_is_ending(const struct region *guest);

/* For a worker: whether a ring of the stage holds work in any guest, or a guest has come or gone
 * that it has not heard of. */
bool guests_have_work(const struct region *lane, uint32_t stage);

/* One's own bell and those of all guests. */
void guests_bells(const struct region *lane, uint32_t stage, struct shm_doorbell *own,
                  struct doorbells *doorbells);

/* Says, of a stage, that somebody sleeps and nobody looks; and that whoever calls looks. The latter
 * only with the role. */
void guests_arm(const struct region *lane, uint32_t stage);
void guests_hush(const struct region *lane, uint32_t stage);

/* Before sleeping without the role: rings the former's bell if a guest's ring holds work. */
void guests_remind(const struct region *lane, uint32_t stage);
