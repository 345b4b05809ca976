/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a step's writes withdraw a model to make room: shared by I15 and I16. */
#pragma once

#include "../invariants.h"
#include "mesh/core/state.h"

/* The entry that goes for room by this action, in this step; NULL: the action is another. */
const struct entry *evicted_by(struct world *world, uint32_t node,
                               const struct mesh_action *action);
