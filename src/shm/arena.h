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

/* True if the slot holds the block, which is one that exists. A hostile worker can make that look
 * so for any block; a mistaken one, or one that only changed a descriptor, can't. */
bool arena_holds(const struct region *region, uint32_t slot, uint32_t block);

/* Blocks not free at this moment, of one class or (class -1) all. Reads every word: for people. */
uint32_t arena_used(const struct region *region, int class_index);
