/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a slot: the coordinator acquires it from the free ring, each owner pushes it to the
 * next place, the next owner claims it there, and the coordinator releases it. The owner of a slot
 * also owns its blocks and may write its fields (layout.h). Each function is one transition of the
 * word.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* Acquires a free slot. Coordinator only. RING_EMPTY: all are in flight. */
enum ring_result slot_acquire(const struct region *region, uint16_t owner,
                              struct shm_ticket *ticket) WARN_UNUSED;

/* Claims the next slot that waits at a place: a stage, the result place or PLACE_ERROR. */
enum ring_result slot_pop(const struct region *region, uint8_t place, uint16_t owner,
                          struct shm_ticket *ticket) WARN_UNUSED;

/*
 * Pushes a slot on. `from` is the place it was claimed from. The caller must have written
 * payload[place & 1] (for PLACE_ERROR: status and text) before, and notifies afterwards: many
 * pushes may share one notification.
 */
enum ring_result slot_push(const struct region *region, struct shm_ticket ticket, uint8_t from,
                           uint8_t place, uint16_t owner, int64_t now_ns) WARN_UNUSED;

/* Releases the slot and every block that either payload descriptor names. DATA_LOSS: corrupt. */
enum status slot_release(const struct region *region, struct shm_ticket ticket, uint8_t from,
                         uint16_t owner) WARN_UNUSED;

/* Takes the place of a model's word: the slot is a probe of the coordinator (lane_probe). */
#define SLOT_MODEL_PROBE UINT64_MAX

/* Requires that the caller owns the slot: the push that gave it away published the value. */
static inline int64_t
slot_enqueued_ns(const struct shm_slot *slot)
{
    return atomic_load_explicit(&slot->enqueued_ns, memory_order_relaxed);
}

/* Like slot_enqueued_ns(), but returns the model_word; 0: none. */
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

/* Marks the request as abandoned by its caller. Coordinator only; harmless if the ticket is
 * outdated. */
void slot_cancel(const struct region *region, struct shm_ticket ticket);

/* Costs one relaxed load. */
static inline bool
slot_cancelled(const struct shm_slot *slot, uint32_t generation)
{
    return atomic_load_explicit(&slot->cancelled, memory_order_relaxed) == generation;
}

/* Makes every later stage run this request in a batch of its own, because a worker died that held
 * it. Coordinator only; harmless if the ticket is outdated. */
void slot_run_alone(const struct region *region, struct shm_ticket ticket);

static inline bool
slot_runs_alone(const struct shm_slot *slot, uint32_t generation)
{
    return atomic_load_explicit(&slot->alone, memory_order_relaxed) == generation;
}

/* Marks this use of the slot as traced: workers stamp it (stamp.h). Coordinator only, before the
 * first push. */
void slot_trace(const struct region *region, struct shm_ticket ticket);

static inline bool
slot_traced(const struct shm_slot *slot, uint32_t generation)
{
    return atomic_load_explicit(&slot->traced, memory_order_relaxed) == generation;
}

/* Writes status and text (cut to fit) for the way through PLACE_ERROR. */
void slot_set_failure(struct shm_slot *slot, uint8_t place, enum status status, const char *text);

/* Prepares a slot that returns through PLACE_ERROR unchanged, because the worker does not hold its
 * model. */
void slot_set_not_held(struct shm_slot *slot, uint8_t place);

/* Reads the failure: always an error status, and a terminated text. */
void slot_failure(const struct shm_slot *slot, struct error *failure);

/* Returns the slot's word. One load. */
struct shm_word slot_where(const struct region *region, uint32_t index);

/* Sets the deadline of a slot that the caller holds; TIME_NEVER_NS: none. */
void slot_set_deadline(struct shm_slot *slot, int64_t deadline_ns);
/* Returns about how many slots are not free. Two loads of words that others may be writing; for
 * estimates. */
uint32_t slots_in_flight(const struct region *region);

/* Returns how many slots are not free. Reads every word; for display and tests. */
uint32_t slots_used(const struct region *region);
