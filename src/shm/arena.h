/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of memory for payloads, in size classes. A block is held by a slot, not by a process:
 * whoever holds the slot acquires and releases blocks for it. Lock-free, crash-safe: ring.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* Index of the smallest class whose blocks have at least `bytes`; -1 if none is so large. */
int arena_class_for(const struct region_layout *layout, uint64_t bytes);

/* The class a block belongs to. `block` < block_count. */
uint32_t arena_class_of(const struct region_layout *layout, uint32_t block);

uint64_t arena_block_bytes(const struct region_layout *layout, uint32_t block);

/* Where a block lies. `block` < block_count: callers validate what came from shared memory. */
char *arena_block(const struct region *region, uint32_t block);

/*
 * Acquires a block of at least `bytes` for a slot that the caller holds, from a larger class when
 * the fitting ones are empty. RESOURCE_EXHAUSTED: none is free, or none is so large; DATA_LOSS: the
 * region is corrupt. No text: the caller knows whom it is for.
 */
enum status arena_acquire(const struct region *region, uint32_t slot, uint64_t bytes,
                          uint32_t *block) WARN_UNUSED;

/* Gives a block back that the slot holds. `party` is the process that does it. FAILED_PRECONDITION:
 * the slot did not hold it (it has been released already); DATA_LOSS: the region is corrupt. */
enum status arena_release(const struct region *region, uint32_t slot, uint32_t block,
                          uint16_t party);

/*
 * Blocks that one process keeps when it releases them, to be the first it acquires: the last
 * released is the next in use, and so still in the CPU's cache. The rings hand out what has lain
 * longest, each time another piece of the whole arena. For the process that both acquires and
 * releases, the coordinator in a lane; its word says so, PARTY_KEEPER. An eighth of a class at
 * most, since nobody else can have them. Who finds it busy goes to the rings: nobody waits.
 */
enum { ARENA_KEPT_MAX = 64 };

struct arena_kept {
    atomic_flag busy;
    struct {
        uint32_t count;
        uint32_t limit;
        uint16_t blocks[ARENA_KEPT_MAX];
    } classes[CLASSES_MAX];
};

/* From now on this process keeps blocks of the region; for good, and before it has any. */
void arena_keep(struct region *region, struct arena_kept *kept);

/* True if the block is one of those that are kept, or that can't be said now. For an audit. */
bool arena_keeps(const struct region *region, uint32_t block);

/* True if the slot holds the block, which is one that exists. A hostile worker can make that look
 * so for any block; a mistaken one, or one that only changed a descriptor, can't. */
bool arena_holds(const struct region *region, uint32_t slot, uint32_t block);

/* Blocks not free at this moment (kept ones are), of one class or (class -1) all. Reads every word:
 * for people. */
uint32_t arena_used(const struct region *region, int class_index);
