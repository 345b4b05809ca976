/* SPDX-License-Identifier: Apache-2.0 */
/* The reason why no node loads a model now, for the call that fails and for people who ask. */
#pragma once

#include "mesh/core/cluster/place.h"
#include "mesh/core/state.h"

extern const char REGISTRY_AWAY_TEXT[];

/* Texts are the step's, or constants. */
struct refusal {
    enum mesh_end end;
    const char *text;
};

/* The wish with which the call asks for a node. */
struct place_wish call_place_wish(struct mesh *mesh, const struct core_call *call);
/* R5: the reason of the model's latest failure. */
const char *refusal_failure_text(const struct mesh *mesh, const struct core_model *model);
/* Placement has found no node, and waiting for room cannot help. */
struct refusal refusal_at_once(struct mesh *mesh, const struct place_wish *wish);
/* R14: the call has waited for room in vain. */
struct refusal refusal_after_waiting(struct mesh *mesh, uint32_t model);
