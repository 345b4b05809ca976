/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for vmodels: rules V7 and V8. A call uses the model that its vmodel had when it arrived. If
 * that is gone, the call uses the vmodel's current model; if this node does not see it yet, the
 * call waits for the mirror.
 */
#include "mesh/core/calls/vmodel_route.h"
#include "base/check.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/copy_calls.h"

enum { PARKED_MS_MAX = 10000, TURNS_MAX = 8 }; /* V8 */

static bool
turn_to(struct mesh *mesh, struct core_call *call, uint32_t model)
{
    if (model == NAME_NONE || model == call->model || !model_at(mesh, model)->known ||
        call->turns == TURNS_MAX)
        return false;
    call->turns++;
    names_keep(&mesh->tables.model_names, model);
    names_release(&mesh->tables.model_names, call->model);
    call->model = model;
    call_forget_tries(mesh, call);
    return true;
}

bool
vmodel_route_turn(struct mesh *mesh, struct core_call *call)
{
    return turn_to(mesh, call, vmodel_model(&mesh->vmodels.at[call->vmodel]));
}

static void
park(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    call_set(mesh, number, CALL_PARKED);
    call->next = mesh->calls.parked;
    mesh->calls.parked = number;
}

bool
vmodel_route_call(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    if (call->vmodel == NAME_NONE || (!call->gone && model_at(mesh, call->model)->known))
        return false;
    if (call->parked_ms == 0)
        call->parked_ms = mesh->now_ms;
    bool waits = mesh->now_ms - call->parked_ms < PARKED_MS_MAX;
    if (vmodel_route_turn(mesh, call) ||
        (!waits && turn_to(mesh, call, mesh->vmodels.at[call->vmodel].target)))
        call_route_later(mesh, number);
    else if (waits)
        park(mesh, number);
    else
        return false;
    return true;
}

static bool
may_concern(const struct mesh *mesh, const struct core_call *call, uint32_t model)
{
    const struct vmodel *vmodel = &mesh->vmodels.at[call->vmodel];
    return call->model == model || vmodel->active == model || vmodel->target == model;
}

/* Re-examines parked calls for a vmodel or a model; NAME_NONE for both: all. */
static void
unpark(struct mesh *mesh, uint32_t vmodel, uint32_t model)
{
    bool all = vmodel == NAME_NONE && model == NAME_NONE;
    uint32_t *link = &mesh->calls.parked;
    while (*link != CALL_NONE) {
        uint32_t number = *link;
        struct core_call *call = call_at(mesh, number);
        if (!all && call->vmodel != vmodel && !may_concern(mesh, call, model)) {
            link = &call->next;
            continue;
        }
        *link = call->next;
        if (!vmodel_route_turn(mesh, call))
            call_forget_tries(mesh, call);
        call_route_later(mesh, number);
    }
}

void
vmodel_route_on_vmodel(struct mesh *mesh, uint32_t vmodel)
{
    unpark(mesh, vmodel, NAME_NONE);
}

void
vmodel_route_on_model(struct mesh *mesh, uint32_t model)
{
    unpark(mesh, NAME_NONE, model);
}

void
vmodel_route_cancelled(struct mesh *mesh, uint32_t number)
{
    uint32_t *link = &mesh->calls.parked;
    while (*link != number) {
        CHECK(*link != CALL_NONE);
        link = &call_at(mesh, *link)->next;
    }
    *link = call_at(mesh, number)->next;
}

void
vmodel_route_tick(struct mesh *mesh)
{
    unpark(mesh, NAME_NONE, NAME_NONE);
}
