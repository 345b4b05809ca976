/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/arena.h"

#include "base/check.h"

int
arena_class_for(const struct region_layout *layout, uint64_t bytes)
{
    for (uint32_t i = 0; i < layout->plan.class_count; i++)
        if (layout->plan.class_block_bytes[i] >= bytes)
            return (int)i;
    return -1;
}

uint32_t
arena_class_of(const struct region_layout *layout, uint32_t block)
{
    CHECK(block < layout->block_count);
    /* from the smallest: there most blocks are, and most requests */
    uint32_t last = layout->plan.class_count - 1;
    uint32_t class_index = 0;
    while (class_index < last && layout->first_block[class_index + 1] <= block)
        class_index++;
    return class_index;
}

uint64_t
arena_block_bytes(const struct region_layout *layout, uint32_t block)
{
    return layout->plan.class_block_bytes[arena_class_of(layout, block)];
}

char *
arena_block(const struct region *region, uint32_t block)
{
    const struct region_layout *layout = &region->layout;
    uint32_t class_index = arena_class_of(layout, block);
    return region->base + layout->arena_offset[class_index] +
           (block - layout->first_block[class_index]) * layout->plan.class_block_bytes[class_index];
}

enum status
arena_acquire(const struct region *region, uint32_t slot, uint64_t bytes, uint32_t *block)
{
    int fitting = arena_class_for(&region->layout, bytes);
    if (fitting < 0)
        return STATUS_RESOURCE_EXHAUSTED;
    for (uint32_t i = (uint32_t)fitting; i < region->layout.plan.class_count; i++) {
        struct shm_ring ring = region_class_ring(region, i);
        struct shm_ticket taken;
        switch (ring_pop(&ring, &region->blocks, (uint16_t)slot, &taken)) {
        case RING_OK:
            /* A cell may name any block; one of another class would be smaller than promised. */
            if (arena_class_of(&region->layout, taken.index) != i)
                return STATUS_DATA_LOSS;
            *block = taken.index;
            return STATUS_OK;
        case RING_EMPTY:
        case RING_LOST: break;
        case RING_CORRUPT: return STATUS_DATA_LOSS;
        }
    }
    return STATUS_RESOURCE_EXHAUSTED;
}

enum status
arena_release(const struct region *region, uint32_t slot, uint32_t block, uint16_t party)
{
    if (block >= region->layout.block_count)
        return STATUS_DATA_LOSS;
    uint64_t held = atomic_load_explicit(object_word(&region->blocks, block), memory_order_relaxed);
    struct shm_word word = word_unpack(held);
    uint32_t class_index = arena_class_of(&region->layout, block);
    if (!word_possible(held) || word.place != class_index)
        return STATUS_DATA_LOSS;
    if (!word.held || word.party != slot)
        return STATUS_FAILED_PRECONDITION;
    struct shm_ring ring = region_class_ring(region, class_index);
    switch (
        ring_push(&ring, &region->blocks, block, held, generation_next(word.generation), party)) {
    case RING_OK: return STATUS_OK;
    case RING_LOST: return STATUS_FAILED_PRECONDITION;
    default: return STATUS_DATA_LOSS;
    }
}

bool
arena_holds(const struct region *region, uint32_t slot, uint32_t block)
{
    struct shm_word word = word_unpack(
        atomic_load_explicit(object_word(&region->blocks, block), memory_order_relaxed));
    return word.held && word.party == slot;
}

uint32_t
arena_used(const struct region *region, int class_index)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < region->layout.block_count; i++) {
        struct shm_word word = word_unpack(
            atomic_load_explicit(object_word(&region->blocks, i), memory_order_relaxed));
        if (word.held && (class_index < 0 || word.place == class_index))
            used++;
    }
    return used;
}
