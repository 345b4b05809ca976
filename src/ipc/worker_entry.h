/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's entry as the worker sees it: its entry and its stage in the region, and its counter
 * values. All that a worker publishes about itself goes through here, so that the memory orders of
 * these words are in one file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/counters.h"
#include "shm/region.h"

struct worker_entry {
    struct shm_worker *worker;
    struct shm_stage *stage;
    _Atomic uint64_t *values;
};

/* `stage`, `worker_index` and `scope` must have been checked against region and counters. */
static inline void
worker_entry_init(struct worker_entry *entry, const struct region *region, uint32_t stage,
                  uint32_t worker_index, const struct counters *counters, uint32_t scope)
{
    entry->worker = region_worker(region, stage, worker_index);
    entry->stage = region_stage(region, stage);
    entry->values = counters_values(counters, scope);
}

static inline void
worker_entry_count(const struct worker_entry *entry, enum counter counter, uint64_t amount)
{
    counter_add(entry->values, counter, amount);
}

static inline void
worker_entry_gauge(const struct worker_entry *entry, enum counter counter, uint64_t value)
{
    counter_set(entry->values, counter, value);
}

static inline void
worker_entry_record(const struct worker_entry *entry, enum counter counter, uint64_t value)
{
    histogram_record(entry->values, counter, value);
}

static inline void
worker_entry_alive(const struct worker_entry *entry, int64_t now_ns)
{
    atomic_store_explicit(&entry->worker->heartbeat_ns, now_ns, memory_order_relaxed);
    counter_set(entry->values, WORKER_HEARTBEAT, (uint64_t)now_ns);
}

/* Call around the modelet's run, for the coordinator's run_timeout_ms. */
static inline void
worker_entry_run_began(const struct worker_entry *entry, int64_t now_ns, uint32_t items)
{
    atomic_store_explicit(&entry->worker->run_items, items, memory_order_relaxed);
    /* release: a reader that sees the start sees the number of items */
    atomic_store_explicit(&entry->worker->run_began_ns, now_ns, memory_order_release);
}

static inline void
worker_entry_run_ended(const struct worker_entry *entry)
{
    atomic_store_explicit(&entry->worker->run_began_ns, 0, memory_order_relaxed);
}

/* Publishes which client regions the worker holds items of, a bit each, for the judgment of its
 * death. Call before the first item is claimed. */
static inline void
worker_entry_holds_regions(const struct worker_entry *entry, uint32_t client_regions)
{
    if (atomic_load_explicit(&entry->worker->run_client_regions, memory_order_relaxed) !=
        client_regions)
        atomic_store_explicit(&entry->worker->run_client_regions, client_regions,
                              memory_order_relaxed);
}

/* Counts client regions that came or went; the messages are on the control socket (acquire). */
static inline uint32_t
worker_entry_regions_epoch(const struct worker_entry *entry)
{
    return atomic_load_explicit(&entry->stage->client_regions_epoch, memory_order_acquire);
}

/* Counts the coordinator's messages on the socket for models (acquire). */
static inline uint32_t
worker_entry_models_reported(const struct worker_entry *entry)
{
    return atomic_load_explicit(&entry->worker->models_reported, memory_order_acquire);
}

/* Publishes the learned cost of runs for the coordinator's forecast, after a run that ended at
 * `now_ns`. */
static inline void
worker_entry_cost(const struct worker_entry *entry, uint64_t fixed_ns, uint64_t item_ns,
                  uint64_t spread_ns, int64_t now_ns)
{
    atomic_store_explicit(&entry->worker->cost_fixed_ns, fixed_ns, memory_order_relaxed);
    atomic_store_explicit(&entry->worker->cost_item_ns, item_ns, memory_order_relaxed);
    atomic_store_explicit(&entry->worker->cost_spread_ns, spread_ns, memory_order_relaxed);
    /* release: a reader that sees the time sees figures at least as new */
    atomic_store_explicit(&entry->worker->ran_ns, now_ns, memory_order_release);
}

/* Returns true if the coordinator wants batches closed at once. */
static inline bool
worker_entry_draining(const struct worker_entry *entry)
{
    return atomic_load_explicit(&entry->stage->draining, memory_order_relaxed) != 0;
}
