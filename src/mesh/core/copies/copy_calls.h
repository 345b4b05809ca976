/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls at this node's copies, and what ends or continues a call. calls/ decides where a call goes.
 */
#pragma once

#include "mesh/core/state.h"

enum { CALL_OVERLOADS_MAX = 2 }; /* R11 */

static inline struct core_call *
call_at(struct mesh *mesh, uint32_t number)
{
    return &mesh->calls.at[number];
}

/* The only writer of a call's state. The caller has taken the call off its former list. */
void call_set(struct mesh *mesh, uint32_t number, enum core_call_state state);
/* Queues the call for routing at the end of the step. */
void call_route_later(struct mesh *mesh, uint32_t number);
void call_answer(struct mesh *mesh, uint32_t number, enum mesh_end end, const char *text);
void call_answer_overloaded(struct mesh *mesh, uint32_t number);
/* Frees the call, which is on no list any more. */
void call_finish(struct mesh *mesh, uint32_t number);
/* Forgets tries of another model or of long ago; instances that the caller excluded remain. */
void call_forget_tries(struct mesh *mesh, struct core_call *call);
/* Adds a try (R9). A full list ends the call at its next routing. */
void call_list(struct mesh *mesh, struct core_call *call, uint32_t instance, enum mesh_list which,
               int64_t since_ms);

/* The copy is loaded: serves the call, lets it wait for a permit, or turns it away. */
void calls_serve_or_wait(struct mesh *mesh, uint32_t number, struct core_entry *entry);
/* Puts the call on the entry's list. */
void calls_wait(struct mesh *mesh, uint32_t number, struct core_entry *entry);
/* Removes a call from its entry's list. */
void call_stop_waiting(struct mesh *mesh, uint32_t number);
/* Serves waiting calls in order while permits are free. */
void calls_serve_waiting(struct mesh *mesh, struct core_entry *entry);
/* Serves all calls that wait for the entry: it is loaded, or they go elsewhere. */
void calls_serve(struct mesh *mesh, struct core_entry *entry);
void calls_reroute(struct mesh *mesh, struct core_entry *entry, enum mesh_end why);
