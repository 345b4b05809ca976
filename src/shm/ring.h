/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings of tickets over a table of objects (slots or blocks). `ring_push` hands an object that the
 * caller holds to a place; `ring_pop` claims one. Many processes may do both concurrently, and each
 * may be killed or stopped at any instruction; DESIGN.md proves why nothing is lost. Both also work
 * on plain memory, where the tests run them between threads.
 *
 * The structs here are private views: pointers into shared memory, and sizes from the caller's own
 * copy of the layout. Values read from shared memory are checked against these before they are
 * used.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/word.h"

/* The shared part. head and tail are hints, counted in positions since the ring was made. */
struct shm_ring_shared {
    _Alignas(64) _Atomic uint64_t head;    /* written by poppers */
    _Alignas(64) _Atomic uint64_t tail;    /* written by pushers */
    _Alignas(64) _Atomic uint64_t cells[]; /* each by CAS, from any process */
};

/* A view of a ring. The words of objects waiting in it contain `place`. */
struct shm_ring {
    struct shm_ring_shared *shared;
    uint32_t cell_count; /* a power of two, at least RING_CELLS_MIN */
    uint32_t cell_count_log2;
    uint8_t place;
};

/* A view of the words of all slots, or of all blocks. */
struct shm_objects {
    char *first;   /* the first object's word, _Atomic uint64_t */
    size_t stride; /* bytes from one word to the next */
    uint32_t count;
};

enum { RING_CELLS_MIN = 64 };

enum ring_result {
    RING_OK,
    RING_EMPTY,   /* pop: nothing waits here */
    RING_LOST,    /* push: the caller does not hold the object; pop: other processes took every
                     object, try again later */
    RING_CORRUPT, /* impossible contents: full ring, index out of range, impossible word */
};

/* Returns the number of cells for `objects` objects: a power of two, at least twice as many. */
uint32_t ring_cells_for(uint32_t objects);
size_t ring_bytes(uint32_t cell_count);

/* Makes an empty ring in memory that no other thread uses yet. */
void ring_init(struct shm_ring *ring);

static inline _Atomic uint64_t *
object_word(const struct shm_objects *objects, uint32_t index)
{
    return (_Atomic uint64_t *)(void *)(objects->first + index * objects->stride);
}

/*
 * Pushes an object. `held` is the word with which the caller holds it (its turn is ignored),
 * `generation` the generation while it waits (the next one on release, else the same), `owner` the
 * caller.
 */
enum ring_result ring_push(const struct shm_ring *ring, const struct shm_objects *objects,
                           uint32_t index, uint64_t held, uint32_t generation,
                           uint16_t owner) WARN_UNUSED;

/*
 * Claims the object at the head. Its word is then held by `owner` (for a slot the process, for a
 * block the slot's index). `*taken`, unless NULL, names it.
 */
enum ring_result ring_pop(const struct shm_ring *ring, const struct shm_objects *objects,
                          uint16_t owner, struct shm_ticket *taken) WARN_UNUSED;

/* Finds the object that the next pop would claim. False: none, or the head hint lags. Claims
 * nothing, so the result may be outdated at once. */
bool ring_peek(const struct shm_ring *ring, const struct shm_objects *objects,
               struct shm_ticket *next);

/* Returns true if a pop would meet a full cell. Used to decide whether to sleep, after a full
 * fence. */
bool ring_has_cell(const struct shm_ring *ring);

/* Returns the number of cells between the hints, at most the number of cells. It serves
 * display and estimates. */
uint32_t ring_depth(const struct shm_ring *ring);

/* Returns the number of pushes since the ring was made, by the tail hint. It serves estimates. */
static inline uint64_t
ring_pushes(const struct shm_ring *ring)
{
    return atomic_load_explicit(&ring->shared->tail, memory_order_relaxed);
}

/* Calls `visit` for each full cell that a popper would meet, in order, hostile contents included.
 * Changes nothing. The audit uses it. */
void ring_visit(const struct shm_ring *ring, void (*visit)(void *context, uint64_t cell),
                void *context);

/* Step 2 of a push alone: fills a cell for an object whose word, `waiting`, already says that it
 * waits here. Repair uses it, which owes the push of a dead owner. */
enum ring_result ring_fill_cell(const struct shm_ring *ring, uint32_t index,
                                struct shm_word waiting) WARN_UNUSED;
