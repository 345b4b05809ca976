/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer in pieces. A piece is one block of the arena with tensors, their table and, at its end,
 * a shm_piece. The worker of the last stage pushes it to the ring of pieces, whose one popper at a
 * time is the coordinator. The slot stays with the worker meanwhile: its last push is the end.
 *
 * The worker counts a piece in the slot before it pushes it, so that a request of which a piece may
 * have left is never run again. At most PIECES_AHEAD_MAX pieces of a request wait to be popped, and
 * fewer large ones: the arena belongs to other requests, too. The coordinator pops them whatever
 * their caller does, so a worker that waits for it waits for no caller.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/payload.h"
#include "shm/region.h"

enum { PIECES_AHEAD_MAX = 32 };

/* A private copy of what a popped block says of itself. Not to be trusted. */
struct piece {
    struct shm_ticket ticket;
    uint32_t number;
    uint32_t worker;
    uint32_t block;
    struct shm_payload payload; /* its only block is the piece's */
};

/* Returns whether the caller of this use of the slot takes pieces. */
static inline bool
slot_streams(const struct shm_slot *slot, uint32_t generation)
{
    return atomic_load_explicit(&slot->streams, memory_order_relaxed) == generation;
}

/* Coordinator only, before the first push. */
void slot_stream(const struct region *region, struct shm_ticket ticket);

/* The number of pieces that were pushed, or were about to be when their worker died. */
static inline uint32_t
slot_emitted(const struct shm_slot *slot, uint32_t generation)
{
    return slot_count_of(atomic_load_explicit(&slot->emitted, memory_order_acquire), generation);
}

/* The number of pieces that wait to be popped. Call as the slot's owner. */
static inline uint32_t
slot_pieces_waiting(const struct shm_slot *slot, uint32_t generation)
{
    uint64_t taken = atomic_load_explicit(&slot->taken, memory_order_acquire);
    return slot_emitted(slot, generation) - slot_count_of(taken, generation);
}

/* A process that pushes a piece of a slot that it owns. */
struct piece_pusher {
    const struct region *region;
    struct shm_ticket ticket;
    uint16_t owner;
    uint32_t worker;
    struct shm_payload *overwritten; /* the descriptor for the next place */
};

/* Pushes what the builder has, and empties it. The caller rings the coordinator's bell afterwards.
 * RESOURCE_EXHAUSTED: no block is free; DATA_LOSS: corrupt. */
enum status piece_push(const struct piece_pusher *pusher, struct payload_builder *builder,
                       struct error *error) WARN_UNUSED;

/* ---- the coordinator, one thread at a time ---- */

/* Returns whether a pop would meet a full cell. */
bool pieces_wait(const struct region *region);
enum ring_result piece_pop(const struct region *region, struct piece *piece) WARN_UNUSED;
/* Notifies the worker that a piece was popped and released; wakes it if it waits for that. */
void piece_taken(const struct region *region, const struct piece *piece);
/* Releases a popped block. DATA_LOSS: corrupt. */
enum status piece_release(const struct region *region, uint32_t block) WARN_UNUSED;
