/* SPDX-License-Identifier: Apache-2.0 */
/* A call while this node answers it: rules R1 to R12. */
#pragma once

#include "mesh/core/state.h"

void call_on_call(struct mesh *mesh, const struct mesh_event *event);
void call_on_cancelled(struct mesh *mesh, uint32_t call);
void call_on_try(struct mesh *mesh, const struct mesh_event *event);
void call_route(struct mesh *mesh, uint32_t number);
void call_tick(struct mesh *mesh);
/* calls_check.c: states, lists and sums agree. O(everything). */
void calls_check(const struct mesh *mesh);
