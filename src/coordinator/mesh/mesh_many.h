/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call for the several models that its metadata name: each model gets a call of its own with
 * the same message, all at once. The answers are concatenated in the order of the ids, which
 * protobuf reads as the merged messages: repeated fields have the values of all, of others the last
 * counts. DESIGN-calls.md.
 *
 * Threads: mesh_many_begin within the callback that received the call; parts end on any.
 */
#pragma once

#include <stdint.h>

#include "coordinator/mesh/mesh_call.h"
#include "coordinator/mesh/mesh_id.h"

struct mesh_many;

/* Begins the calls; the caller is answered, now or later. `start->id` and `name` are ignored. */
void mesh_many_begin(struct mesh_calls *calls, const struct mesh_call_start *start,
                     const struct mesh_named *named);

/* A part has ended; called once by each part's call. Lent pieces are consumed. `retry_ms` 0: not
 * given. Any thread, also with the runner's lock held. */
void mesh_many_ended(struct mesh_many *many, uint32_t part, const struct rpc_answer *answer,
                     uint32_t retry_ms);
