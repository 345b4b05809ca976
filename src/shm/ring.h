/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings of tickets, over a table of objects (slots or blocks). `ring_push` hands an object that the
 * caller holds to a place, `ring_pop` claims one. Many processes may do both at once, and each may
 * be killed or stopped at any instruction; DESIGN.md proves why nothing is lost. Both work on plain
 * memory as well, which is how the tests run them between threads.
 *
 * The structs here are private views: pointers into shared memory, and sizes that the caller has
 * from its own copy of the layout. What is read from the shared memory itself is believed only
 * after it was checked against these.
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
    _Alignas(64) _Atomic uint64_t cells[]; /* each by CAS, from any party */
};

/* A view of a ring. `place` is what the words of objects waiting in it say. */
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
    RING_LOST,    /* push: the word is not the one the caller says it holds; pop: others took
                   * everything this long, try again later */
    RING_CORRUPT, /* impossible contents: full ring, index out of range, word with wrong bits */
};

/* Cells for `objects` objects: a power of two, at least twice as many. */
uint32_t ring_cells_for(uint32_t objects);
size_t ring_bytes(uint32_t cell_count);

/* Makes an empty ring in memory that nobody else uses yet. */
void ring_init(struct shm_ring *ring);

static inline _Atomic uint64_t *
object_word(const struct shm_objects *objects, uint32_t index)
{
    return (_Atomic uint64_t *)(void *)(objects->first + index * objects->stride);
}

/*
 * Pushes an object. `held` is the word with which the caller holds it (the turn in it does not
 * count), `generation` the one it is to have while it waits (the next one when it is released, else
 * the same), `party` the caller.
 */
enum ring_result ring_push(const struct shm_ring *ring, const struct shm_objects *objects,
                           uint32_t index, uint64_t held, uint32_t generation,
                           uint16_t party) WARN_UNUSED;

/*
 * Claims the object at the head. Its word is then held by `party` (for a slot the process, for a
 * block the slot's index) and `*taken`, if not NULL, names it.
 */
enum ring_result ring_pop(const struct shm_ring *ring, const struct shm_objects *objects,
                          uint16_t party, struct shm_ticket *taken) WARN_UNUSED;

/* The object that the next pop would claim, if nobody is faster; false: none, or the head hint
 * lags. Claims nothing: what is true of it may be so no longer. */
bool ring_peek(const struct shm_ring *ring, const struct shm_objects *objects,
               struct shm_ticket *next);

/* True if a pop would look at a full cell. For deciding whether to sleep, after a full fence. */
bool ring_has_cell(const struct shm_ring *ring);

/* How many cells lie between the hints, at most the number of cells: for people and
 * for estimates. */
uint32_t ring_depth(const struct shm_ring *ring);

/* How many pushes there were since the ring was made, by the tail's hint: for estimates. */
static inline uint64_t
ring_pushes(const struct shm_ring *ring)
{
    return atomic_load_explicit(&ring->shared->tail, memory_order_relaxed);
}

/* Shows each full cell that a popper would meet, in order, and changes nothing: for an audit. Cells
 * of hostile contents are shown as well. */
void ring_visit(const struct shm_ring *ring, void (*visit)(void *context, uint64_t cell),
                void *context);

/* Only step 2 of a push: fills a cell for an object whose word, `waiting`, says already that it
 * waits here. For repair, which owes the push in the name of a dead party. */
enum ring_result ring_fill_cell(const struct shm_ring *ring, uint32_t index,
                                struct shm_word waiting) WARN_UNUSED;
