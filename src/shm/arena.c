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
    /* smallest first: it has most blocks and most requests */
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

/* ---- kept blocks ---- */

void
arena_keep(struct region *region, struct arena_kept *kept)
{
    const struct region_plan *plan = &region->layout.plan;
    *kept = (struct arena_kept){.busy = ATOMIC_FLAG_INIT};
    for (uint32_t i = 0; i < plan->class_count; i++) {
        uint32_t part = plan->class_block_counts[i] / 8;
        kept->classes[i].limit = part < ARENA_KEPT_MAX ? part : ARENA_KEPT_MAX;
    }
    region->kept = kept;
}

static bool
kept_enter(struct arena_kept *kept)
{
    return kept != NULL && !atomic_flag_test_and_set_explicit(&kept->busy, memory_order_acquire);
}

static void
kept_leave(struct arena_kept *kept)
{
    atomic_flag_clear_explicit(&kept->busy, memory_order_release);
}

/* Passes a held block to another owner. Returns false if the word is not `seen` any more. */
static bool
pass_hold(const struct region *region, uint32_t block, uint64_t seen, uint16_t to,
          uint32_t generation)
{
    struct shm_word word = word_unpack(seen);
    word.owner = to;
    word.generation = generation;
    return atomic_compare_exchange_strong_explicit(object_word(&region->blocks, block), &seen,
                                                   word_pack(word), memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static enum ring_result
kept_pop(const struct region *region, uint32_t class_index, uint32_t slot, uint32_t *block)
{
    struct arena_kept *kept = region->kept;
    if (!kept_enter(kept))
        return RING_EMPTY;
    bool any = kept->classes[class_index].count > 0;
    if (any)
        *block = kept->classes[class_index].blocks[--kept->classes[class_index].count];
    kept_leave(kept);
    if (!any)
        return RING_EMPTY;
    uint64_t seen =
        atomic_load_explicit(object_word(&region->blocks, *block), memory_order_relaxed);
    struct shm_word word = word_unpack(seen);
    bool ours = word_possible(seen) && word.held && word.owner == OWNER_KEEPER;
    return ours && pass_hold(region, *block, seen, (uint16_t)slot, word.generation) ? RING_OK
                                                                                    : RING_CORRUPT;
}

/* Keeps the block if there is room. `held` is its word, which says that the caller's slot holds
 * it. */
static bool
kept_push(const struct region *region, uint32_t class_index, uint32_t block, uint64_t held)
{
    struct arena_kept *kept = region->kept;
    if (!kept_enter(kept))
        return false;
    bool keeps =
        kept->classes[class_index].count < kept->classes[class_index].limit &&
        pass_hold(region, block, held, OWNER_KEEPER, generation_next(word_unpack(held).generation));
    if (keeps)
        kept->classes[class_index].blocks[kept->classes[class_index].count++] = (uint16_t)block;
    kept_leave(kept);
    return keeps;
}

bool
arena_keeps(const struct region *region, uint32_t block)
{
    if (region->kept == NULL)
        return false;
    if (!kept_enter(region->kept))
        return true;
    bool keeps = false;
    uint32_t class_index = arena_class_of(&region->layout, block);
    for (uint32_t i = 0; i < region->kept->classes[class_index].count; i++)
        keeps = keeps || region->kept->classes[class_index].blocks[i] == block;
    kept_leave(region->kept);
    return keeps;
}

/* ---- acquiring and releasing ---- */

/* Takes the next free block of a class. */
static enum ring_result
pop_block(const struct region *region, uint32_t class_index, uint32_t slot, uint32_t *block)
{
    enum ring_result result = kept_pop(region, class_index, slot, block);
    if (result != RING_EMPTY)
        return result;
    struct shm_ring ring = region_class_ring(region, class_index);
    struct shm_ticket taken;
    result = ring_pop(&ring, &region->blocks, (uint16_t)slot, &taken);
    if (result == RING_OK)
        *block = taken.index;
    return result;
}

enum status
arena_acquire(const struct region *region, uint32_t slot, uint64_t bytes, uint32_t *block)
{
    int fitting = arena_class_for(&region->layout, bytes);
    if (fitting < 0)
        return STATUS_RESOURCE_EXHAUSTED;
    for (uint32_t i = (uint32_t)fitting; i < region->layout.plan.class_count; i++) {
        switch (pop_block(region, i, slot, block)) {
        case RING_OK:
            /* A corrupt cell may name a block of another class, which could be smaller than
             * requested. */
            return arena_class_of(&region->layout, *block) == i ? STATUS_OK : STATUS_DATA_LOSS;
        case RING_EMPTY:
        case RING_LOST: break;
        case RING_CORRUPT: return STATUS_DATA_LOSS;
        }
    }
    return STATUS_RESOURCE_EXHAUSTED;
}

enum status
arena_release(const struct region *region, uint32_t slot, uint32_t block, uint16_t owner)
{
    if (block >= region->layout.block_count)
        return STATUS_DATA_LOSS;
    uint64_t held = atomic_load_explicit(object_word(&region->blocks, block), memory_order_relaxed);
    struct shm_word word = word_unpack(held);
    uint32_t class_index = arena_class_of(&region->layout, block);
    if (!word_possible(held) || word.place != class_index)
        return STATUS_DATA_LOSS;
    if (!word.held || word.owner != slot)
        return STATUS_FAILED_PRECONDITION;
    if (kept_push(region, class_index, block, held))
        return STATUS_OK;
    struct shm_ring ring = region_class_ring(region, class_index);
    switch (
        ring_push(&ring, &region->blocks, block, held, generation_next(word.generation), owner)) {
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
    return word.held && word.owner == slot;
}

uint32_t
arena_used(const struct region *region, int class_index)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < region->layout.block_count; i++) {
        struct shm_word word = word_unpack(
            atomic_load_explicit(object_word(&region->blocks, i), memory_order_relaxed));
        if (word.held && word.owner != OWNER_KEEPER &&
            (class_index < 0 || word.place == class_index))
            used++;
    }
    return used;
}
