/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region: one memfd with everything that a pipeline's processes share. The coordinator creates it
 * and hands the descriptor to its workers, which attach. `struct region` is each process's private
 * view: the address, and the layout from its own computation, never from shared memory.
 */
#pragma once

#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "shm/layout.h"
#include "shm/ring.h"

struct arena_kept;
struct client_regions;

struct region {
    int fd;
    char *base;
    struct region_header *header;
    struct region_layout layout;
    struct shm_objects slots;  /* words of all slots */
    struct shm_objects blocks; /* words of all blocks */
    struct arena_kept *kept;   /* arena.h; NULL: released blocks go to their rings */
    const struct client_regions *client_regions; /* of a lane: the client regions' regions that this
                                                  * process knows; NULL: none (client_regions.h) */
};

/*
 * Creates a region: allocated, populated and sealed, every slot and block waiting in its free ring.
 * `generation`, written into the header, distinguishes regions of one pipeline. RESOURCE_EXHAUSTED:
 * not enough memory.
 */
enum status region_create(struct region *region, const struct region_plan *plan,
                          uint64_t generation, struct error *error) WARN_UNUSED;

/* Maps a region from another process, after validating seals, size, magic, version and checksum.
 * Owns `fd` on success only. */
enum status region_attach(struct region *region, int fd, struct error *error) WARN_UNUSED;

/* Checks, for the creator, that the header is still as written, so that a worker can attach.
 * DATA_LOSS or FAILED_PRECONDITION, naming the difference. */
enum status region_check_header(const struct region *region, struct error *error) WARN_UNUSED;

/* Unmaps and closes. Ignores a region that was never created or attached (all zero). */
void region_detach(struct region *region);

static inline struct shm_slot *
region_slot(const struct region *region, uint32_t index)
{
    return (struct shm_slot *)(void *)(region->base + region->layout.slots_offset) + index;
}

static inline struct shm_stage *
region_stage(const struct region *region, uint32_t stage)
{
    return (struct shm_stage *)(void *)(region->base + region->layout.stages_offset) + stage;
}

/* Returns a worker's entry; `index` is its index in the stage. */
static inline struct shm_worker *
region_worker(const struct region *region, uint32_t stage, uint32_t index)
{
    return (struct shm_worker *)(void *)(region->base + region->layout.workers_offset) +
           region->layout.first_worker[stage] + index;
}

/* Returns the place of results: the one after the last stage. */
static inline uint8_t
region_result_place(const struct region *region)
{
    return (uint8_t)region->layout.plan.stage_count;
}

/* Returns true if this region has a ring for `place`. */
static inline bool
region_place_exists(const struct region *region, uint8_t place)
{
    return place <= region->layout.plan.stage_count || place == PLACE_ERROR || place == PLACE_FREE;
}

/* Returns the ring of slots for a place: a stage, the result place, PLACE_ERROR or PLACE_FREE.
 * Inline because each request needs about four of them per stage. */
static inline struct shm_ring
region_slot_ring(const struct region *region, uint8_t place)
{
    CHECK(region_place_exists(region, place));
    const struct region_layout *layout = &region->layout;
    uint32_t number = place;
    if (place == PLACE_ERROR)
        number = layout->plan.stage_count + 1;
    else if (place == PLACE_FREE)
        number = layout->plan.stage_count + 2;
    uint64_t offset = layout->slot_rings_offset + number * layout->slot_ring_bytes;
    return (struct shm_ring){
        .shared = (struct shm_ring_shared *)(void *)(region->base + offset),
        .cell_count = layout->slot_ring_cells,
        .cell_count_log2 = (uint32_t)__builtin_ctz(layout->slot_ring_cells),
        .place = place,
    };
}

/* Returns the ring of pieces; only where the plan has one. */
struct shm_ring region_piece_ring(const struct region *region);

/* Returns the ring of free blocks of a size class. */
struct shm_ring region_class_ring(const struct region *region, uint32_t class_index);
