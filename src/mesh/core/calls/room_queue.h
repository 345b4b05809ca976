/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that wait for room: rule R14. */
#pragma once

#include "mesh/core/state.h"

/* False: waiting would not help. */
bool room_queue_join(struct mesh *mesh, uint32_t call);
/* Returns whether room is all that is missing: some node may hold the model and has not failed to.
 * `call`: its exclusions count; NULL: no call. */
bool room_queue_may_help(struct mesh *mesh, uint32_t model, const struct core_call *call);
void room_queue_cancelled(struct mesh *mesh, uint32_t call);
void room_queue_on_model(struct mesh *mesh, uint32_t model);
/* Routes, at the end of a step, the calls that can go, if room may have appeared. */
void room_queue_look(struct mesh *mesh);
void room_queue_tick(struct mesh *mesh);
