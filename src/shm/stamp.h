/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stamps: where a traced request's time went. Who holds the slot writes the stamp of its stage, and
 * the push with which it gives the slot away publishes it, as with everything else in a slot. When
 * a worker has died the coordinator keeps what the dead one had stamped as a lost run.
 *
 * A stamp is of the use of the slot that its generation names; any other is from before. What is in
 * it is a worker's word: for people to look at, between bounds that the reader knows by himself,
 * and for nothing else. Times are on the monotonic clock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* A private copy. */
struct stamp {
    int64_t enqueued_ns;
    int64_t began_ns; /* 0: it was not run */
    int64_t ended_ns; /* 0: it was not passed on */
    uint32_t batch_items;
    uint32_t stage;
    uint32_t worker;
    int32_t pid;
};

/* The stamp of a stage (index below the region's stages) or of a lost run (those after them); NULL:
 * this region has none such. */
static inline struct shm_stamp *
region_stamp(const struct region *region, uint32_t slot, uint32_t index)
{
    uint32_t count = region->layout.plan.stamp_count;
    if (index >= count)
        return NULL;
    return (struct shm_stamp *)(void *)(region->base + region->layout.stamps_offset) +
           (uint64_t)slot * count + index;
}

/* The holder has taken the item from the ring. */
void stamp_taken(struct shm_stamp *shared, uint32_t generation, const struct stamp *stamp);
/* It is about to be run, in a batch of so many. Run again in a half, it has begun with the whole.
 */
void stamp_began(struct shm_stamp *shared, int64_t now_ns, uint32_t batch_items);
/* It is about to be passed on. */
void stamp_ended(struct shm_stamp *shared, int64_t now_ns);

/* Copies a stamp; false: it is not of this use of the slot. */
bool stamp_read(const struct shm_stamp *shared, uint32_t generation, struct stamp *stamp);

/*
 * For the coordinator, which holds the slot after a worker's death: `lost` (stage, worker and end
 * of the dead one) and what it had stamped at that stage become the lost run `number`, counted from
 * 0; the stage's stamp is its successor's. Lost runs beyond those that there is room for are
 * dropped.
 */
void stamp_lose(const struct region *region, struct shm_ticket ticket, uint32_t number,
                const struct stamp *lost);
