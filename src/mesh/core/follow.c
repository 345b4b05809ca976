/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for vmodels: rules V7 and V8. A call has the model that its vmodel had when it came. If
 * that goes, the call goes to the model that the vmodel has then; and if this node does not see yet
 * which that is, the call waits for the mirror.
 */
#include "base/check.h"
#include "mesh/core/state.h"

enum { PARKED_MS_MAX = 10000, TURNS_MAX = 8 }; /* V8 */

static struct call *
call_at(struct mesh *mesh, uint32_t number)
{
    return &mesh->calls[number];
}

static bool
turn_to(struct mesh *mesh, struct call *call, uint32_t model)
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
follow_turn(struct mesh *mesh, struct call *call)
{
    return turn_to(mesh, call, vmodel_model(&mesh->vmodels.at[call->vmodel]));
}

static void
park(struct mesh *mesh, uint32_t number)
{
    struct call *call = call_at(mesh, number);
    call->state = CALL_PARKED;
    call->next = mesh->parked;
    mesh->parked = number;
}

bool
follow_vmodel(struct mesh *mesh, uint32_t number)
{
    struct call *call = call_at(mesh, number);
    if (call->vmodel == NAME_NONE || (!call->gone && model_at(mesh, call->model)->known))
        return false;
    if (call->parked_ms == 0)
        call->parked_ms = mesh->now_ms;
    bool waits = mesh->now_ms - call->parked_ms < PARKED_MS_MAX;
    if (follow_turn(mesh, call) ||
        (!waits && turn_to(mesh, call, mesh->vmodels.at[call->vmodel].target)))
        call_route_later(mesh, number);
    else if (waits)
        park(mesh, number);
    else
        return false;
    return true;
}

static bool
may_concern(const struct mesh *mesh, const struct call *call, uint32_t model)
{
    const struct vmodel *vmodel = &mesh->vmodels.at[call->vmodel];
    return call->model == model || vmodel->active == model || vmodel->target == model;
}

/* Those that wait for a vmodel or a model look again; NAME_NONE for both: all. */
static void
unpark(struct mesh *mesh, uint32_t vmodel, uint32_t model)
{
    bool all = vmodel == NAME_NONE && model == NAME_NONE;
    uint32_t *link = &mesh->parked;
    while (*link != CALL_NONE) {
        uint32_t number = *link;
        struct call *call = call_at(mesh, number);
        if (!all && call->vmodel != vmodel && !may_concern(mesh, call, model)) {
            link = &call->next;
            continue;
        }
        *link = call->next;
        if (!follow_turn(mesh, call))
            call_forget_tries(mesh, call);
        call_route_later(mesh, number);
    }
}

void
follow_on_vmodel(struct mesh *mesh, uint32_t vmodel)
{
    unpark(mesh, vmodel, NAME_NONE);
}

void
follow_on_model(struct mesh *mesh, uint32_t model)
{
    unpark(mesh, NAME_NONE, model);
}

void
follow_cancelled(struct mesh *mesh, uint32_t number)
{
    uint32_t *link = &mesh->parked;
    while (*link != number) {
        CHECK(*link != CALL_NONE);
        link = &call_at(mesh, *link)->next;
    }
    *link = call_at(mesh, number)->next;
}

void
follow_tick(struct mesh *mesh)
{
    unpark(mesh, NAME_NONE, NAME_NONE);
}
