/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for vmodels: rules V7 and V8. */
#pragma once

#include "mesh/core/state.h"

/* Routes the call to another model or parks it until the mirror has seen more. False: it is over.
 */
bool vmodel_route_call(struct mesh *mesh, uint32_t call);
/* Gives the call its vmodel's current model, if that is another. */
bool vmodel_route_turn(struct mesh *mesh, struct core_call *call);
void vmodel_route_cancelled(struct mesh *mesh, uint32_t call);
void vmodel_route_on_vmodel(struct mesh *mesh, uint32_t vmodel);
void vmodel_route_on_model(struct mesh *mesh, uint32_t model);
void vmodel_route_tick(struct mesh *mesh);
