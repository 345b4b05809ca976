/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This node's entries: admission (A), eviction (E) and the load queue (Q). A pointer to an entry is
 * valid until the next load_begin.
 */
#pragma once

#include "mesh/core/state.h"

/* NULL: none. */
static inline struct core_entry *
entry_of(struct mesh *mesh, const struct core_model *model)
{
    return model->entry == ENTRY_NONE ? NULL : &mesh->entries.at[model->entry];
}

static inline uint32_t
entry_number(const struct mesh *mesh, const struct core_entry *entry)
{
    return (uint32_t)(entry - mesh->entries.at);
}

static inline bool
state_loads(enum mesh_state state)
{
    return state >= MESH_STATE_CLAIMING && state <= MESH_STATE_LOADING;
}

static inline bool
state_serves(enum mesh_state state)
{
    return state == MESH_STATE_LOADED || state == MESH_STATE_WITHDRAWING;
}

/* The copy is in memory and may be given calls. */
static inline bool
entry_serves(const struct core_entry *entry)
{
    return state_serves((enum mesh_state)entry->state) && entry->resident && !entry->failed;
}

enum load_refusal {
    LOAD_BEGUN,
    LOAD_LEAVING,
    LOAD_NOT_HERE,
    LOAD_FAILED_HERE,
    LOAD_TOO_LARGE,
    LOAD_FULL
};

enum load_refusal load_begin(struct mesh *mesh, const struct load_wish *wish);
/* Returns whether a load for a call would be admitted now. */
bool load_may_begin(struct mesh *mesh, uint32_t model);
/* Returns true if evictions or refusals left work. */
bool load_run_queue(struct mesh *mesh);
void load_tick(struct mesh *mesh);
/* E3: makes entries whose guard has ended evictable. */
void load_grow_up(struct mesh *mesh);
/* B5: makes a loaded entry evictable, or not, by its model's minimum. */
void load_weigh(struct mesh *mesh, struct core_entry *entry);
void load_touch(struct mesh *mesh, struct core_entry *entry, int64_t used_ms);
/* The wall clock jumped by `by_ms`; wall_ms is already the new time. */
void load_on_clock_set(struct mesh *mesh, int64_t by_ms);
/* A call was served by the entry. */
void load_called(struct mesh *mesh, struct core_entry *entry);
/* Q1, Q2: its key in the queue of loads. */
int64_t load_queue_key(const struct core_entry *entry);
/* Q3: raises the class of an entry that a call waits for. */
void load_lift(struct mesh *mesh, struct core_entry *entry, enum mesh_class class);
/* The only writer of an entry's state; NONE releases the entry. */
void entry_set(struct mesh *mesh, struct core_entry *entry, enum mesh_state state);
/* The claim holds and the size is known: queues the entry, or makes it leave. */
void entry_admit(struct mesh *mesh, struct core_entry *entry);
/* Moves the entry to WITHDRAWING or releases it; its waiting calls go elsewhere. */
void entry_leave(struct mesh *mesh, struct core_entry *entry);
void load_on_size(struct mesh *mesh, uint64_t ticket, uint64_t size_bytes);
void load_on_load(struct mesh *mesh, const struct mesh_event *event);
void load_on_measured(struct mesh *mesh, uint64_t ticket, uint64_t size_bytes);
void load_on_unload(struct mesh *mesh, const struct mesh_event *event);
/* DO_SIZE, DO_LOAD or DO_UNLOAD. */
void act_on_model(struct mesh *mesh, enum mesh_action_kind kind, const struct core_entry *entry);
void load_on_runtime_lost(struct mesh *mesh, uint32_t pool);

/* copies_check.c: states, fields and lists of the entries agree. O(everything). */
void entries_check(const struct mesh *mesh);
