/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region: one memfd that holds everything a pipeline's processes share. The coordinator creates
 * it and hands the descriptor to its workers, who attach. `struct region` is each process's private
 * view: the address, and the layout from its own computation, never from the shared memory.
 */
#pragma once

#include <stdint.h>

#include "base/check.h"
#include "base/error.h"
#include "shm/layout.h"
#include "shm/ring.h"

struct arena_kept;
struct guests;

struct region {
    int fd;
    char *base;
    struct region_header *header;
    struct region_layout layout;
    struct shm_objects slots;    /* words of all slots */
    struct shm_objects blocks;   /* words of all blocks */
    struct arena_kept *kept;     /* arena.h; NULL: what is released goes to its ring */
    const struct guests *guests; /* of a lane: the regions that its workers serve too, as far as
                                  * this process knows; NULL: none (guests.h) */
};

/*
 * Makes a region: memory allocated and touched, sealed, every slot and block waiting in its free
 * ring. `generation` is written into the header, for telling regions of one pipeline apart. Fails
 * with RESOURCE_EXHAUSTED when the memory is not there.
 */
enum status region_create(struct region *region, const struct region_plan *plan,
                          uint64_t generation, struct error *error) WARN_UNUSED;

/* Maps a region that somebody handed over, after validating seals, size, magic, version and
 * checksum. Takes over `fd` in success only. */
enum status region_attach(struct region *region, int fd, struct error *error) WARN_UNUSED;

/* For who made the region: whether its header is still as it was written, so that a worker can
 * attach. DATA_LOSS or FAILED_PRECONDITION, saying what is wrong. */
enum status region_check_header(const struct region *region, struct error *error) WARN_UNUSED;

/* Unmaps and closes. A region that was never created or attached (all zero) is left alone. */
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

/* A worker's seat; `index` is its index in the stage. */
static inline struct shm_worker *
region_worker(const struct region *region, uint32_t stage, uint32_t index)
{
    return (struct shm_worker *)(void *)(region->base + region->layout.workers_offset) +
           region->layout.first_worker[stage] + index;
}

/* The place of results: the one after the last stage. */
static inline uint8_t
region_result_place(const struct region *region)
{
    return (uint8_t)region->layout.plan.stage_count;
}

/* True if `place` is one that this region has a ring for. */
static inline bool
region_place_exists(const struct region *region, uint8_t place)
{
    return place <= region->layout.plan.stage_count || place == PLACE_ERROR || place == PLACE_FREE;
}

/* The ring of slots for a place: a stage, the result place, PLACE_ERROR or PLACE_FREE. Inline: each
 * request asks for some four of them at each stage. */
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

/* The ring of free blocks of a size class. */
struct shm_ring region_class_ring(const struct region *region, uint32_t class_index);
