/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stamps record where a traced request's time went. The owner of a slot writes the stamp of its
 * stage, and the push with which it gives the slot away publishes it. After a worker's death the
 * coordinator keeps the dead worker's stamp as a lost run.
 *
 * A stamp belongs to the use of the slot that its generation names; any other is outdated. Its
 * content is a worker's word: it is displayed, within bounds that the reader knows from elsewhere,
 * and used for nothing else. Times are on the monotonic clock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* A private copy of a stamp. */
struct stamp {
    int64_t enqueued_ns;
    int64_t began_ns; /* 0: not run */
    int64_t ended_ns; /* 0: not passed on */
    uint32_t batch_items;
    uint32_t stage;
    uint32_t worker;
    int32_t pid;
};

/* Returns the stamp of a stage (index below the number of stages) or of a lost run (those after
 * them); NULL: the region has none such. */
static inline struct shm_stamp *
region_stamp(const struct region *region, uint32_t slot, uint32_t index)
{
    uint32_t count = region->layout.plan.stamp_count;
    if (index >= count)
        return NULL;
    return (struct shm_stamp *)(void *)(region->base + region->layout.stamps_offset) +
           (uint64_t)slot * count + index;
}

/* Stamps an item that the owner has taken from the ring. */
void stamp_taken(struct shm_stamp *shared, uint32_t generation, const struct stamp *stamp);
/* Stamps the start of a run in a batch of `batch_items`. An item that runs again in a half keeps
 * the first start. */
void stamp_began(struct shm_stamp *shared, int64_t now_ns, uint32_t batch_items);
/* Stamps an item that is about to be passed on. */
void stamp_ended(struct shm_stamp *shared, int64_t now_ns);

/* Copies a stamp. False: it belongs to another use of the slot. */
bool stamp_read(const struct shm_stamp *shared, uint32_t generation, struct stamp *stamp);

/*
 * Called by the coordinator, which owns the slot after a worker's death. `lost` (stage, worker and
 * end of the dead worker) and its stamp of that stage become the lost run `number`, counted from 0.
 * The stage's stamp is free for the successor. Lost runs beyond STAMPS_LOST_MAX are dropped.
 */
void stamp_lose(const struct region *region, struct shm_ticket ticket, uint32_t number,
                const struct stamp *lost);
