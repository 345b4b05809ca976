/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a slot: acquired by the coordinator from the free ring, pushed from stage to stage by
 * whoever holds it, claimed by the next, released by the coordinator. Whoever holds a slot also
 * holds its blocks and may write its fields (layout.h). Each function is one transition of the
 * word.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* The coordinator takes a free slot. RING_EMPTY: all are in flight. */
enum ring_result slot_acquire(const struct region *region, uint16_t party,
                              struct shm_ticket *ticket) WARN_UNUSED;

/* Claims the next slot that waits at a place: a stage, the result place or PLACE_ERROR. */
enum ring_result slot_pop(const struct region *region, uint8_t place, uint16_t party,
                          struct shm_ticket *ticket) WARN_UNUSED;

/*
 * Pushes a slot on. `from` is the place it was claimed from. The caller must have written
 * payload[place & 1] (for PLACE_ERROR: status and text) before. Notifying is the caller's: many
 * pushes may share one.
 */
enum ring_result slot_push(const struct region *region, struct shm_ticket ticket, uint8_t from,
                           uint8_t place, uint16_t party, int64_t now_ns) WARN_UNUSED;

/* Gives back every block that either payload descriptor names, and the slot itself. DATA_LOSS:
 * corrupt. */
enum status slot_release(const struct region *region, struct shm_ticket ticket, uint8_t from,
                         uint16_t party) WARN_UNUSED;

/* Instead of a model's word: the slot is a probe of the coordinator's (lane_probe). */
#define SLOT_MODEL_PROBE UINT64_MAX

/* Nobody waits for this request any more. Coordinator only; harmless when the ticket is outdated.
 */
void slot_cancel(const struct region *region, struct shm_ticket ticket);

/* One relaxed load. */
static inline bool
slot_cancelled(const struct shm_slot *slot, uint32_t generation)
{
    return atomic_load_explicit(&slot->cancelled, memory_order_relaxed) == generation;
}

/* From now on, at every stage, this request is run in a batch of its own: a worker has died that
 * held it. Coordinator only; harmless when the ticket is outdated. */
void slot_run_alone(const struct region *region, struct shm_ticket ticket);

static inline bool
slot_runs_alone(const struct shm_slot *slot, uint32_t generation)
{
    return atomic_load_explicit(&slot->alone, memory_order_relaxed) == generation;
}

/* This use of the slot is traced: whoever runs it stamps it (stamp.h). Coordinator only, before the
 * first push. */
void slot_trace(const struct region *region, struct shm_ticket ticket);

static inline bool
slot_traced(const struct shm_slot *slot, uint32_t generation)
{
    return atomic_load_explicit(&slot->traced, memory_order_relaxed) == generation;
}

/* Writes status and text (cut to fit) for the way through PLACE_ERROR. */
void slot_set_failure(struct shm_slot *slot, uint8_t place, enum status status, const char *text);

/* Of a slot that goes back by way of PLACE_ERROR as it came, because its model is not held. */
void slot_set_not_held(struct shm_slot *slot, uint8_t place);

/* The same read: a status that is a failure, and a text that ends. */
void slot_failure(const struct shm_slot *slot, struct error *failure);

/* Where it is and who has it: one load. */
struct shm_word slot_where(const struct region *region, uint32_t index);

/* Of a slot that the caller holds; TIME_NEVER_NS: none. */
void slot_set_deadline(struct shm_slot *slot, int64_t deadline_ns);
/* About how many slots are not free: two loads of what others may be writing. For estimates. */
uint32_t slots_in_flight(const struct region *region);

/* How many slots are not free. Reads every word: for people and for tests. */
uint32_t slots_used(const struct region *region);
