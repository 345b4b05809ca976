/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain ring that Shoal's ring is measured against: one producer, one consumer, nobody ever
 * dies. Head and tail have a cache line each; the producer publishes by a release store of the
 * tail, the consumer by one of the head. `ring_plain` reads the other side's index on every
 * operation; `ring_cached` remembers it and reads it again only when the ring seems full or empty,
 * which is as cheap as a ring between two cores gets. `ring_record` is `ring_plain` with a record
 * of a cache line in each cell, all of it written and read: what it costs that an item is a
 * request, not a number, however little the ring itself does.
 */
#pragma once

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RING_PLAIN_CELLS 1024u /* a power of two */
#define RING_PLAIN_LINE 64

struct ring_plain {
    alignas(RING_PLAIN_LINE) _Atomic uint64_t tail; /* written by the producer */
    uint64_t head_seen;                             /* the producer's memory, for ring_cached */
    alignas(RING_PLAIN_LINE) _Atomic uint64_t head; /* written by the consumer */
    uint64_t tail_seen;                             /* the consumer's memory, for ring_cached */
    alignas(RING_PLAIN_LINE) uint64_t cells[RING_PLAIN_CELLS];
};

static inline void
ring_plain_init(struct ring_plain *ring)
{
    *ring = (struct ring_plain){.head_seen = 0};
}

static inline bool
ring_plain_push(struct ring_plain *ring, uint64_t item)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&ring->head, memory_order_acquire) == RING_PLAIN_CELLS)
        return false;
    ring->cells[tail % RING_PLAIN_CELLS] = item;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

static inline bool
ring_plain_pop(struct ring_plain *ring, uint64_t *item)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == atomic_load_explicit(&ring->tail, memory_order_acquire))
        return false;
    *item = ring->cells[head % RING_PLAIN_CELLS];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}

static inline bool
ring_cached_push(struct ring_plain *ring, uint64_t item)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - ring->head_seen == RING_PLAIN_CELLS) {
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->head_seen == RING_PLAIN_CELLS)
            return false;
    }
    ring->cells[tail % RING_PLAIN_CELLS] = item;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

static inline bool
ring_cached_pop(struct ring_plain *ring, uint64_t *item)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == ring->tail_seen) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head == ring->tail_seen)
            return false;
    }
    *item = ring->cells[head % RING_PLAIN_CELLS];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}

#define RING_RECORD_WORDS (RING_PLAIN_LINE / sizeof(uint64_t))

struct ring_record {
    alignas(RING_PLAIN_LINE) _Atomic uint64_t tail; /* written by the producer */
    alignas(RING_PLAIN_LINE) _Atomic uint64_t head; /* written by the consumer */
    alignas(RING_PLAIN_LINE) uint64_t cells[RING_PLAIN_CELLS][RING_RECORD_WORDS];
};

static inline bool
ring_record_push(struct ring_record *ring, uint64_t item)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&ring->head, memory_order_acquire) == RING_PLAIN_CELLS)
        return false;
    uint64_t *record = ring->cells[tail % RING_PLAIN_CELLS];
    for (uint64_t i = 0; i < RING_RECORD_WORDS; i++)
        record[i] = item + i;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

/* A record that is not whole gives an item that nobody pushed. */
static inline bool
ring_record_pop(struct ring_record *ring, uint64_t *item)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == atomic_load_explicit(&ring->tail, memory_order_acquire))
        return false;
    const uint64_t *record = ring->cells[head % RING_PLAIN_CELLS];
    uint64_t differences = 0;
    for (uint64_t i = 1; i < RING_RECORD_WORDS; i++)
        differences |= record[i] ^ (record[0] + i);
    *item = differences == 0 ? record[0] : UINT64_MAX;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}
