/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of the number of copies, as etcd has them. */
#pragma once

#include "../invariants.h"

/* Since all nodes came, went or were disturbed: their keys are back, and everybody has seen it. */
enum { CALM_MS = 45000 };

#define SEES_DISTURBANCE                                                                           \
    (SEES(TROUBLE) | SEES(BIRTH) | SEES(DEATH) | SEES(DRAIN) | SEES(DRAINED) | SEES(EMPTIED))

/* Alive, on nodes that do not drain; `least` as of model_staying. */
uint32_t copies_that_stay(struct world *world, const struct mesh_model *record,
                          enum mesh_place_kind least);
/* 0: none, or a vmodel moves away from the model. */
uint32_t copies_needed(struct world *world, const struct mesh_model *record);
