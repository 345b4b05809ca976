/* SPDX-License-Identifier: Apache-2.0 */
/* Reconciles this node's entries with the records by transactions: rules T1 to T7. */
#pragma once

#include "mesh/core/state.h"

void reconcile_later(struct mesh *mesh, uint32_t model);
void reconcile(struct mesh *mesh, uint32_t model);
void reconcile_all(struct mesh *mesh);
void reconcile_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end);
void reconcile_tick(struct mesh *mesh);
uint32_t model_fresh_failures(const struct mesh *mesh, const struct core_model *model);

/* G1: writes the record without the places of an instance whose key is absent. */
void reconcile_without(struct mesh *mesh, uint32_t model, uint16_t instance);

/* The current record without its places. */
struct mesh_model reconcile_facts(struct mesh *mesh, uint32_t model);
/* The current record, to be changed and written; in the step's memory. */
struct mesh_model reconcile_record(struct mesh *mesh, uint32_t model);
/* W1: rewrites a lost record as this node knew it, without its own place. */
void reconcile_anew(struct mesh *mesh, uint32_t model);

/* G2: writes the record with last use now. */
void reconcile_used_now(struct mesh *mesh, uint32_t model);

/* J4: writes this node's last use to the record. */
void reconcile_say_used(struct mesh *mesh, uint32_t model);

/* copies_check.c: T6, W1. O(everything). */
void reconcile_check(const struct mesh *mesh);
