/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/ring.h"

#include "base/check.h"

/* Iterations after which a push or pop gives up: many times the number of cells. */
#define TURNS_MAX(ring) (16 * (ring)->cell_count)

uint32_t
ring_cells_for(uint32_t objects)
{
    uint32_t cells = RING_CELLS_MIN;
    while (cells < 2 * objects)
        cells *= 2;
    return cells;
}

size_t
ring_bytes(uint32_t cell_count)
{
    return sizeof(struct shm_ring_shared) + cell_count * sizeof(_Atomic uint64_t);
}

void
ring_init(struct shm_ring *ring)
{
    CHECK(ring->cell_count >= RING_CELLS_MIN);
    CHECK(ring->cell_count == UINT32_C(1) << ring->cell_count_log2);
    atomic_store_explicit(&ring->shared->head, 0, memory_order_relaxed);
    atomic_store_explicit(&ring->shared->tail, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < ring->cell_count; i++)
        atomic_store_explicit(&ring->shared->cells[i], cell_empty(0), memory_order_relaxed);
}

static _Atomic uint64_t *
cell_at(const struct shm_ring *ring, uint64_t position)
{
    return &ring->shared->cells[position & (ring->cell_count - 1)];
}

/*
 * Returns how many laps `cell` is ahead of `position`, as a signed distance modulo 2^23. Zero: same
 * lap. Negative: the position is ahead of the cell.
 */
static int32_t
lap_ahead(const struct shm_ring *ring, uint64_t cell, uint64_t position)
{
    uint64_t lap = position >> ring->cell_count_log2;
    uint32_t distance = (uint32_t)((cell_lap(cell) - lap) & CELL_LAP_MASK);
    return (int32_t)(distance << (32 - CELL_LAP_BITS)) >> (32 - CELL_LAP_BITS);
}

/* Moves a hint forward. Two processes may race and the smaller value may win: it is only a hint. */
static void
hint_advance(_Atomic uint64_t *hint, uint64_t position)
{
    if ((int64_t)(position - atomic_load_explicit(hint, memory_order_relaxed)) > 0)
        atomic_store_explicit(hint, position, memory_order_relaxed);
}

/*
 * Returns where to look next when the cell at `position` is in a later lap than the hint. The cell
 * was emptied `laps` times since, so the hint lags by at least that many laps minus one cell.
 */
static uint64_t
position_after_lag(const struct shm_ring *ring, uint64_t position, int32_t laps)
{
    return position + ((uint64_t)(laps - 1) << ring->cell_count_log2) + 1;
}

enum ring_result
ring_fill_cell(const struct shm_ring *ring, uint32_t index, struct shm_word waiting)
{
    uint64_t position = atomic_load_explicit(&ring->shared->tail, memory_order_relaxed);
    /* Each iteration fills a cell or has seen another process's progress. */
    for (uint32_t tries = 0; tries < TURNS_MAX(ring); tries++) {
        _Atomic uint64_t *slot = cell_at(ring, position);
        uint64_t cell = atomic_load_explicit(slot, memory_order_acquire);
        int32_t ahead = lap_ahead(ring, cell, position);
        if (ahead > 0) { /* the tail hint lags by whole laps */
            position = position_after_lag(ring, position, ahead);
        } else if (ahead < 0) { /* not emptied since the last lap: the ring is full, or the hint was
                                 * garbage */
            return RING_CORRUPT;
        } else if (cell_is_full(cell)) { /* another process filled it and has not moved the hint
                                            yet */
            position++;
        } else {
            uint64_t lap = position >> ring->cell_count_log2;
            /* release: a process that sees the cell sees the waiting word written before it */
            if (atomic_compare_exchange_strong_explicit(slot, &cell, cell_full(lap, index, waiting),
                                                        memory_order_acq_rel,
                                                        memory_order_relaxed)) {
                hint_advance(&ring->shared->tail, position + 1);
                return RING_OK;
            }
        }
    }
    return RING_CORRUPT;
}

enum ring_result
ring_push(const struct shm_ring *ring, const struct shm_objects *objects, uint32_t index,
          uint64_t held, uint32_t generation, uint16_t owner)
{
    CHECK(index < objects->count);
    _Atomic uint64_t *word = object_word(objects, index);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (!word_same_hold(seen, held))
        return RING_LOST;
    struct shm_word waiting = {.generation = generation,
                               .turn = (word_unpack(seen).turn + 1) & WORD_TURN_MAX,
                               .place = ring->place,
                               .owner = owner};
    /* release: the popper that claims the object sees everything that the owner wrote */
    if (!atomic_compare_exchange_strong_explicit(word, &seen, word_pack(waiting),
                                                 memory_order_acq_rel, memory_order_relaxed))
        return RING_LOST;
    return ring_fill_cell(ring, index, waiting);
}

/* Prefetches the slot's next lines, with the payload descriptors, while the claim waits for the
 * first. Saves a twentieth of a lone request's way from core to core. */
static void
prefetch_object(const struct shm_objects *objects, uint32_t index)
{
    enum { LINE_BYTES = 64, LINES = 3 };
    for (size_t at = LINE_BYTES; at < objects->stride && at < LINES * (size_t)LINE_BYTES;
         at += LINE_BYTES)
        __builtin_prefetch(objects->first + index * objects->stride + at);
}

/* Claims the object if its word is still `seen`. */
static bool
claim(_Atomic uint64_t *word, uint64_t seen, uint16_t owner)
{
    struct shm_word held = word_unpack(seen);
    held.held = true;
    held.owner = owner;
    return atomic_compare_exchange_strong_explicit(word, &seen, word_pack(held),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

enum ring_result
ring_pop(const struct shm_ring *ring, const struct shm_objects *objects, uint16_t owner,
         struct shm_ticket *taken)
{
    uint64_t position = atomic_load_explicit(&ring->shared->head, memory_order_relaxed);
    /* Each iteration drops a cell, takes one, or has seen another process's progress. The bound is
     * for a hostile process that refills as fast as we drop. */
    for (uint32_t tries = 0; tries < TURNS_MAX(ring); tries++) {
        _Atomic uint64_t *slot = cell_at(ring, position);
        uint64_t cell = atomic_load_explicit(slot, memory_order_acquire);
        int32_t ahead = lap_ahead(ring, cell, position);
        if (ahead > 0) { /* the head hint lags */
            position = position_after_lag(ring, position, ahead);
            continue;
        }
        if (ahead < 0)
            return RING_CORRUPT;
        if (!cell_is_full(cell)) {
            /* so that a hint left behind by a death does not look like work forever */
            hint_advance(&ring->shared->head, position);
            return RING_EMPTY;
        }
        uint32_t index = cell_index(cell);
        if (index >= objects->count)
            return RING_CORRUPT;
        _Atomic uint64_t *word = object_word(objects, index);
        prefetch_object(objects, index);
        uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
        if (!word_possible(seen))
            return RING_CORRUPT;
        struct shm_word state = word_unpack(seen);
        bool claimed = !state.held && state.place == ring->place &&
                       cell_names(cell, index, state) && claim(word, seen, owner);
        /* Claimed or stale: the cell has served its purpose. If the CAS fails, another popper has
         * emptied it. */
        uint64_t lap = position >> ring->cell_count_log2;
        atomic_compare_exchange_strong_explicit(slot, &cell, cell_empty(lap + 1),
                                                memory_order_acq_rel, memory_order_relaxed);
        hint_advance(&ring->shared->head, position + 1);
        if (claimed) {
            if (taken != NULL)
                *taken = (struct shm_ticket){index, state.generation};
            return RING_OK;
        }
        position++;
    }
    return RING_LOST;
}

void
ring_visit(const struct shm_ring *ring, void (*visit)(void *context, uint64_t cell), void *context)
{
    uint64_t position = atomic_load_explicit(&ring->shared->head, memory_order_relaxed);
    for (uint32_t i = 0; i < ring->cell_count; i++, position++) {
        uint64_t cell = atomic_load_explicit(cell_at(ring, position), memory_order_acquire);
        if (cell_is_full(cell))
            visit(context, cell);
        else if (lap_ahead(ring, cell, position) <= 0)
            return; /* the end; a cell of a later lap was just taken, or the head hint lags */
    }
}

bool
ring_peek(const struct shm_ring *ring, const struct shm_objects *objects, struct shm_ticket *next)
{
    uint64_t position = atomic_load_explicit(&ring->shared->head, memory_order_relaxed);
    uint64_t cell = atomic_load_explicit(cell_at(ring, position), memory_order_acquire);
    uint32_t index = cell_index(cell);
    if (!cell_is_full(cell) || index >= objects->count)
        return false;
    struct shm_word word =
        word_unpack(atomic_load_explicit(object_word(objects, index), memory_order_acquire));
    *next = (struct shm_ticket){index, word.generation};
    return !word.held && word.place == ring->place && cell_names(cell, index, word);
}

bool
ring_has_cell(const struct shm_ring *ring)
{
    uint64_t position = atomic_load_explicit(&ring->shared->head, memory_order_relaxed);
    uint64_t cell = atomic_load_explicit(cell_at(ring, position), memory_order_acquire);
    return cell_is_full(cell) || lap_ahead(ring, cell, position) != 0;
}

uint32_t
ring_depth(const struct shm_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->shared->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->shared->tail, memory_order_relaxed);
    int64_t depth = (int64_t)(tail - head);
    if (depth < 0)
        return 0;
    return depth > ring->cell_count ? ring->cell_count : (uint32_t)depth;
}
