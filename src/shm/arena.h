/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of memory for payloads, in size classes. A slot, not a process, holds a block: the owner
 * of the slot acquires and releases blocks for it. Lock-free and crash-safe: ring.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* Returns the smallest class whose blocks have at least `bytes`; -1: none is so large. */
int arena_class_for(const struct region_layout *layout, uint64_t bytes);

/* Returns a block's class. `block` < block_count. */
uint32_t arena_class_of(const struct region_layout *layout, uint32_t block);

uint64_t arena_block_bytes(const struct region_layout *layout, uint32_t block);

/* Returns a block's memory. `block` < block_count: callers validate indices from shared memory. */
char *arena_block(const struct region *region, uint32_t block);

/*
 * Acquires a block of at least `bytes` for a slot that the caller holds, from a larger class if the
 * fitting ones are empty. RESOURCE_EXHAUSTED: none is free, or none is so large; DATA_LOSS: the
 * region is corrupt. Writes no error text; the caller knows the context.
 */
enum status arena_acquire(const struct region *region, uint32_t slot, uint64_t bytes,
                          uint32_t *block) WARN_UNUSED;

/* Releases a block that the slot holds. `owner` is the calling process. FAILED_PRECONDITION: the
 * slot does not hold it; DATA_LOSS: the region is corrupt. */
enum status arena_release(const struct region *region, uint32_t slot, uint32_t block,
                          uint16_t owner);

/*
 * Blocks that one process keeps when it releases them and acquires first, the last one released
 * first, because it is still in the CPU's cache; the rings hand out the blocks that have waited
 * longest. Only a process that both acquires and releases has it: the coordinator in a lane. The
 * words of kept blocks contain OWNER_KEEPER. The list has at most an eighth of a class, because no
 * other process can use its blocks. A thread that finds the list busy uses the rings: no thread
 * waits.
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

/* Makes this process keep blocks of the region, for good. Call before it acquires any. */
void arena_keep(struct region *region, struct arena_kept *kept);

/* Returns true if the block is kept, or if the list is busy. The audit asks. */
bool arena_keeps(const struct region *region, uint32_t block);

/* Returns true if the slot holds the block, which must exist. A hostile worker can make that true
 * for any block; a mistaken one, or one that only changed a descriptor, cannot. */
bool arena_holds(const struct region *region, uint32_t slot, uint32_t block);

/* Returns how many blocks are in use (kept ones are not), of one class or, with -1, of all. Reads
 * every word; for display. */
uint32_t arena_used(const struct region *region, int class_index);
