/* SPDX-License-Identifier: Apache-2.0 */
/* Loads in advance: rules G3 to G5. The reaper notes each model, then plans; the tick sends. */
#pragma once

#include "mesh/core/state.h"

void preload_note(struct mesh *mesh, uint32_t model);
void preload_plan(struct mesh *mesh);
void preload_tick(struct mesh *mesh);
/* The plans and the budget for them. O(models). */
void preload_check(const struct mesh *mesh);
