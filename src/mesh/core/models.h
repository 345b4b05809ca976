/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up a model by its number. */
#pragma once

#include "mesh/core/state.h"

static inline struct core_model *
model_at(struct mesh *mesh, uint32_t number)
{
    return &mesh->tables.models[number];
}
