/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of a step. */
#pragma once

#include "mesh/core/state.h"

static inline struct mesh_action *
act(struct mesh *mesh, enum mesh_action_kind kind)
{
    struct actions *actions = &mesh->actions;
    scratch_grow((void **)&actions->at, &actions->capacity, actions->count + 1,
                 sizeof(*actions->at));
    struct mesh_action *action = &actions->at[actions->count++];
    *action = (struct mesh_action){.kind = kind};
    return action;
}
