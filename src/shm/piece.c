/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/piece.h"

#include <string.h>

#include "shm/arena.h"
#include "shm/doorbell.h"

static char *
piece_at(const struct region *region, uint32_t block)
{
    return arena_block(region, block) + arena_block_bytes(&region->layout, block) -
           sizeof(struct shm_piece);
}

void
slot_stream(const struct region *region, struct shm_ticket ticket)
{
    atomic_store_explicit(&region_slot(region, ticket.index)->streams, ticket.generation,
                          memory_order_relaxed); /* published by the push that follows */
}

/* ---- the worker ---- */

enum status
piece_push(const struct piece_pusher *pusher, struct payload_builder *builder, struct error *error)
{
    const struct region *region = pusher->region;
    struct shm_ticket ticket = pusher->ticket;
    struct shm_slot *slot = region_slot(region, ticket.index);
    struct shm_piece piece = {.slot = ticket.index,
                              .generation = ticket.generation,
                              .number = slot_emitted(slot, ticket.generation),
                              .worker = pusher->worker};
    enum status status = builder_seal_alone(builder, sizeof(piece), &piece.payload, error);
    if (status != STATUS_OK)
        return status;
    uint32_t block = piece.payload.blocks[0];
    memcpy(piece_at(region, block), &piece, sizeof(piece));
    /* It may name a block that leaves the slot now. */
    pusher->overwritten->block_count = 0;
    uint64_t held = atomic_load_explicit(object_word(&region->blocks, block), memory_order_relaxed);
    struct shm_word word = word_unpack(held);
    if (!word.held || word.owner != ticket.index)
        return error_set(error, STATUS_DATA_LOSS, "arena: corrupt");
    /* before the push: a death in between must not look like one before the first piece */
    atomic_store_explicit(&slot->emitted, slot_count(ticket.generation, piece.number + 1),
                          memory_order_release);
    struct shm_ring ring = region_piece_ring(region);
    if (ring_push(&ring, &region->blocks, block, held, word.generation, pusher->owner) != RING_OK)
        return error_set(error, STATUS_DATA_LOSS, "ring of pieces: corrupt");
    return STATUS_OK;
}

/* ---- the coordinator ---- */

bool
pieces_wait(const struct region *region)
{
    struct shm_ring ring = region_piece_ring(region);
    return ring_has_cell(&ring);
}

enum ring_result
piece_pop(const struct region *region, struct piece *piece)
{
    struct shm_ring ring = region_piece_ring(region);
    struct shm_ticket block;
    /* no slot has this number: repair must not take it for a slot's block */
    enum ring_result result = ring_pop(&ring, &region->blocks, OWNER_KEEPER, &block);
    if (result != RING_OK)
        return result;
    struct shm_piece shared;
    memcpy(&shared, piece_at(region, block.index), sizeof(shared)); /* once: it may change */
    *piece = (struct piece){.ticket = {shared.slot, shared.generation},
                            .number = shared.number,
                            .worker = shared.worker,
                            .block = block.index,
                            .payload = shared.payload};
    piece->payload.blocks[0] = (uint16_t)block.index;
    piece->payload.block_count = 1;
    return RING_OK;
}

void
piece_taken(const struct region *region, const struct piece *piece)
{
    const struct region_plan *plan = &region->layout.plan;
    uint32_t last = plan->stage_count - 1;
    atomic_store_explicit(&region_slot(region, piece->ticket.index)->taken,
                          slot_count(piece->ticket.generation, piece->number + 1),
                          memory_order_release);
    if (piece->worker < plan->worker_counts[last])
        doorbell_ring(&region_worker(region, last, piece->worker)->bell);
}

enum status
piece_release(const struct region *region, uint32_t block)
{
    uint64_t held = atomic_load_explicit(object_word(&region->blocks, block), memory_order_relaxed);
    struct shm_word word = word_unpack(held);
    if (!word_possible(held) || !word.held || word.place != PLACE_PIECE)
        return STATUS_DATA_LOSS;
    struct shm_ring ring = region_class_ring(region, arena_class_of(&region->layout, block));
    return ring_push(&ring, &region->blocks, block, held, generation_next(word.generation),
                     OWNER_COORDINATOR) == RING_OK
               ? STATUS_OK
               : STATUS_DATA_LOSS;
}
