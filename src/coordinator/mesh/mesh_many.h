/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's call that is for several models at once, as its metadata name them: each gets a call
 * of its own with the same message, all of them together, and the answers become one, one message
 * behind the other in the order of the ids. (To protobuf that is the messages merged: what is
 * repeated in them is there from all, of the rest the last counts.) DESIGN.md.
 *
 * Threads: mesh_many_begin on the front thread that received the call, within its callback; parts
 * end on any.
 */
#pragma once

#include <stdint.h>

#include "coordinator/mesh/mesh_call.h"
#include "coordinator/mesh/mesh_id.h"

struct mesh_many;

/* It is answered, now or later. `start->id` and `name` are not looked at. */
void mesh_many_begin(struct mesh_calls *calls, const struct mesh_call_start *start,
                     const struct mesh_named *named);

/* Once for each part, by the call that it is, whose caller this is: how it has ended. Lent pieces
 * are used. `retry_ms` 0: not said. Any thread, also under the lock of the driver. */
void mesh_many_ended(struct mesh_many *many, uint32_t part, const struct rpc_answer *answer,
                     uint32_t retry_ms);
