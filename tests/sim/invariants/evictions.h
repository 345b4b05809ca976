/* SPDX-License-Identifier: Apache-2.0 */
/* Foretells the entries of a node that a step takes to make room: shared by I15 and I16. */
#pragma once

#include "../invariants.h"
#include "mesh/core/copies/load.h"

/* Whether the entry, that is WITHDRAWING since this step and was LOADED before it, goes for room.
 */
bool evicted_for_room(struct world *world, uint32_t node, const struct core_entry *entry);

/* The simulator's number of the entry's model. */
uint32_t entry_model(const struct mesh *mesh, const struct core_entry *entry);
