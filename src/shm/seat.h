/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's place among the others, as the worker itself sees it: its seat and its stage in the
 * region, its values among the counters. What the worker says of itself to those who watch it goes
 * through here, so that the orders of these words stand in one file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/counters.h"
#include "shm/region.h"

struct seat {
    struct shm_worker *worker;
    struct shm_stage *stage;
    _Atomic uint64_t *values;
};

/* `stage`, `worker_index` and `scope` must have been checked against region and counters. */
static inline void
seat_init(struct seat *seat, const struct region *region, uint32_t stage, uint32_t worker_index,
          const struct counters *counters, uint32_t scope)
{
    seat->worker = region_worker(region, stage, worker_index);
    seat->stage = region_stage(region, stage);
    seat->values = counters_values(counters, scope);
}

static inline void
seat_count(const struct seat *seat, enum counter counter, uint64_t amount)
{
    counter_add(seat->values, counter, amount);
}

static inline void
seat_gauge(const struct seat *seat, enum counter counter, uint64_t value)
{
    counter_set(seat->values, counter, value);
}

static inline void
seat_record(const struct seat *seat, enum counter counter, uint64_t value)
{
    histogram_record(seat->values, counter, value);
}

/* A sign of life. */
static inline void
seat_alive(const struct seat *seat, int64_t now_ns)
{
    atomic_store_explicit(&seat->worker->heartbeat_ns, now_ns, memory_order_relaxed);
    counter_set(seat->values, WORKER_HEARTBEAT, (uint64_t)now_ns);
}

/* Around the modelet's run: for whoever judges that it takes too long. */
static inline void
seat_run_began(const struct seat *seat, int64_t now_ns, uint32_t items)
{
    atomic_store_explicit(&seat->worker->run_items, items, memory_order_relaxed);
    /* release: who sees that a run began sees how much it runs */
    atomic_store_explicit(&seat->worker->run_began_ns, now_ns, memory_order_release);
}

static inline void
seat_run_ended(const struct seat *seat)
{
    atomic_store_explicit(&seat->worker->run_began_ns, 0, memory_order_relaxed);
}

/* Of which guests it has items in hand, a bit each: for whoever judges its death. Before the first
 * is claimed. */
static inline void
seat_holds_guests(const struct seat *seat, uint32_t guests)
{
    if (atomic_load_explicit(&seat->worker->run_guests, memory_order_relaxed) != guests)
        atomic_store_explicit(&seat->worker->run_guests, guests, memory_order_relaxed);
}

/* Guests have come or gone, and the control socket has the word of it. */
static inline uint32_t
seat_guests_epoch(const struct seat *seat)
{
    return atomic_load_explicit(&seat->stage->guests_epoch, memory_order_acquire);
}

/* How many words the coordinator has put on the socket for models; acquire: they are there. */
static inline uint32_t
seat_models_told(const struct seat *seat)
{
    return atomic_load_explicit(&seat->worker->models_told, memory_order_acquire);
}

/* For the coordinator's forecast: what runs cost, learned from one that ended now. */
static inline void
seat_cost(const struct seat *seat, uint64_t fixed_ns, uint64_t item_ns, uint64_t spread_ns,
          int64_t now_ns)
{
    atomic_store_explicit(&seat->worker->cost_fixed_ns, fixed_ns, memory_order_relaxed);
    atomic_store_explicit(&seat->worker->cost_item_ns, item_ns, memory_order_relaxed);
    atomic_store_explicit(&seat->worker->cost_spread_ns, spread_ns, memory_order_relaxed);
    /* release: who sees the time sees figures at least as new */
    atomic_store_explicit(&seat->worker->ran_ns, now_ns, memory_order_release);
}

/* The coordinator wants batches closed at once. */
static inline bool
seat_draining(const struct seat *seat)
{
    return atomic_load_explicit(&seat->stage->draining, memory_order_relaxed) != 0;
}

/* Of a slot that the caller holds: published by the push with which it was given away. */
static inline int64_t
slot_enqueued_ns(const struct shm_slot *slot)
{
    return atomic_load_explicit(&slot->enqueued_ns, memory_order_relaxed);
}

/* Likewise: a model_word, 0: none. */
static inline uint64_t
slot_model(const struct shm_slot *slot)
{
    return atomic_load_explicit(&slot->model, memory_order_relaxed);
}

static inline int64_t
slot_deadline_ns(const struct shm_slot *slot)
{
    return atomic_load_explicit(&slot->deadline_ns, memory_order_relaxed);
}
