/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/layout.h"

#include "base/hash.h"
#include "shm/ring.h"

enum { PAGE_BYTES = 4096, CACHE_LINE_BYTES = 64, CLASS_FACTOR = 4, TABLE_BYTES_SPARE = 32 * 1024 };

static uint64_t
round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static enum status
plan_validate(const struct region_plan *plan, struct error *error)
{
    if (plan->slot_count < 1 || plan->slot_count > SLOTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%u slots: must be 1 to %d",
                         plan->slot_count, SLOTS_MAX);
    if (plan->stage_count < 1 || plan->stage_count > STAGES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%u stages: must be 1 to %d",
                         plan->stage_count, STAGES_MAX);
    for (uint32_t i = 0; i < plan->stage_count; i++)
        if (plan->worker_counts[i] < 1 || plan->worker_counts[i] > STAGE_WORKERS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "stage %u has %u workers: must be 1 to %d", i, plan->worker_counts[i],
                             STAGE_WORKERS_MAX);
    if (plan->stamp_count != 0 && (plan->stamp_count < plan->stage_count ||
                                   plan->stamp_count > plan->stage_count + STAMPS_LOST_MAX))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%u stamps for %u stages",
                         plan->stamp_count, plan->stage_count);
    if (plan->pieces > 1)
        return error_set(error, STATUS_INVALID_ARGUMENT, "pieces is %u: must be 0 or 1",
                         plan->pieces);
    if (plan->class_count < 1 || plan->class_count > CLASSES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%u size classes: must be 1 to %d",
                         plan->class_count, CLASSES_MAX);
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < plan->class_count; i++) {
        uint64_t bytes = plan->class_block_bytes[i];
        if (bytes < BLOCK_BYTES_MIN || bytes % CACHE_LINE_BYTES != 0 || bytes > UINT32_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "blocks of %llu bytes",
                             (unsigned long long)bytes);
        /* a request for so many bytes gets a block of this class or a later one */
        if (i > 0 && bytes <= plan->class_block_bytes[i - 1])
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "size class %u has blocks of %llu bytes, the one before of %llu", i,
                             (unsigned long long)bytes,
                             (unsigned long long)plan->class_block_bytes[i - 1]);
        if (plan->class_block_counts[i] < 1)
            return error_set(error, STATUS_INVALID_ARGUMENT, "size class %u has no block", i);
        blocks += plan->class_block_counts[i];
    }
    if (blocks > BLOCKS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%llu blocks: must be at most %d",
                         (unsigned long long)blocks, BLOCKS_MAX);
    return STATUS_OK;
}

enum status
layout_compute(const struct region_plan *plan, struct region_layout *layout, struct error *error)
{
    enum status status = plan_validate(plan, error);
    if (status != STATUS_OK)
        return status;
    *layout = (struct region_layout){.plan = *plan};
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        layout->first_worker[i] = layout->worker_total;
        layout->worker_total += plan->worker_counts[i];
    }
    uint64_t offset = round_up(sizeof(struct region_header), CACHE_LINE_BYTES);
    layout->stages_offset = offset;
    offset += plan->stage_count * sizeof(struct shm_stage);
    layout->workers_offset = offset;
    offset += layout->worker_total * sizeof(struct shm_worker);
    layout->slots_offset = offset;
    offset += plan->slot_count * sizeof(struct shm_slot);
    layout->stamps_offset = offset;
    offset += (uint64_t)plan->slot_count * plan->stamp_count * sizeof(struct shm_stamp);
    offset = round_up(offset, CACHE_LINE_BYTES);

    layout->slot_ring_count = plan->stage_count + 3;
    layout->slot_ring_cells = ring_cells_for(plan->slot_count);
    layout->slot_ring_bytes = round_up(ring_bytes(layout->slot_ring_cells), CACHE_LINE_BYTES);
    layout->slot_rings_offset = offset;
    offset += layout->slot_ring_count * layout->slot_ring_bytes;

    for (uint32_t i = 0; i < plan->class_count; i++) {
        layout->first_block[i] = layout->block_count;
        layout->block_count += plan->class_block_counts[i];
        /* A ring must also have room for stale cells: ring_cells_for doubles. Cells contain indices
         * over all blocks, so one table of words serves all classes. */
        layout->class_ring_cells[i] = ring_cells_for(plan->class_block_counts[i]);
        layout->class_rings_offset[i] = offset;
        offset += round_up(ring_bytes(layout->class_ring_cells[i]), CACHE_LINE_BYTES);
    }
    if (plan->pieces != 0) {
        layout->piece_ring_cells = ring_cells_for(layout->block_count);
        layout->piece_ring_offset = offset;
        offset += round_up(ring_bytes(layout->piece_ring_cells), CACHE_LINE_BYTES);
    }
    layout->block_words_offset = offset;
    offset += layout->block_count * sizeof(uint64_t);
    for (uint32_t i = 0; i < plan->class_count; i++) {
        offset = round_up(offset, PAGE_BYTES);
        layout->arena_offset[i] = offset;
        /* no overflow: counts below 2^16, sizes below 2^32, 12 classes */
        offset += plan->class_block_counts[i] * plan->class_block_bytes[i];
    }
    layout->region_bytes = round_up(offset, PAGE_BYTES);
    return STATUS_OK;
}

enum status
plan_arena(struct region_plan *plan, uint64_t message_bytes_max, uint64_t arena_bytes,
           struct error *error)
{
    /* The largest payload: the largest message, aligned, plus a table. */
    uint64_t largest = round_up(message_bytes_max + TABLE_BYTES_SPARE, PAGE_BYTES);
    uint32_t classes = 0;
    uint64_t bytes = BLOCK_BYTES_MIN;
    while (bytes < largest && classes < CLASSES_MAX - 1) {
        plan->class_block_bytes[classes++] = bytes;
        bytes *= CLASS_FACTOR;
    }
    plan->class_block_bytes[classes++] = largest;
    plan->class_count = classes;

    uint64_t least = 2 * largest;
    for (uint32_t i = 0; i + 1 < classes; i++)
        least += 2 * plan->class_block_bytes[i];
    if (arena_bytes < least)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "an arena of %llu MiB is too small for messages of %llu bytes: at least "
                         "%llu MiB",
                         (unsigned long long)(arena_bytes >> 20),
                         (unsigned long long)message_bytes_max,
                         (unsigned long long)((least >> 20) + 1));
    uint64_t spare = arena_bytes - least;
    plan->class_block_counts[classes - 1] = 2;
    /* Two blocks of the smallest size per slot, using at most half of the spare bytes. */
    uint64_t small = 2 * (uint64_t)plan->slot_count;
    if (small > spare / 2 / BLOCK_BYTES_MIN)
        small = spare / 2 / BLOCK_BYTES_MIN;
    if (small > BLOCKS_MAX / 2)
        small = BLOCKS_MAX / 2;
    plan->class_block_counts[0] = 2 + (uint32_t)small;
    spare -= small * BLOCK_BYTES_MIN;
    uint64_t blocks_left = BLOCKS_MAX - 2 - plan->class_block_counts[0];
    for (uint32_t i = 1; i + 1 < classes; i++) {
        uint64_t share = spare / (classes - 1 - i);
        uint64_t count = share / plan->class_block_bytes[i];
        uint64_t most = blocks_left / (classes - 1 - i);
        count = count + 2 > most ? most - 2 : count;
        plan->class_block_counts[i] = 2 + (uint32_t)count;
        blocks_left -= 2 + count;
        spare -= count * plan->class_block_bytes[i];
    }
    return STATUS_OK;
}

uint64_t
region_checksum(const struct region_header *header)
{
    return hash_fnv1a(HASH_FNV1A_SEED, header, offsetof(struct region_header, checksum));
}
