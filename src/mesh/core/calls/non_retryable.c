/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose tries may not be repeated: rule R15. Copies known to be unreachable are put on the
 * call's lists, marked as skipped, and taken off again if no other node can serve: the knowledge is
 * up to two seconds old and may be wrong.
 */
#include "mesh/core/calls/non_retryable.h"
#include "mesh/core/copies/copy_calls.h"

static bool
is_listed(const struct core_call *call, const struct core_place *place)
{
    for (uint32_t i = 0; i < call->tried_count; i++)
        if (call->tried[i].instance == place->instance && call->tried[i].list == MESH_LIST_HIT &&
            call->tried[i].since_ms == place->since_ms)
            return true;
    return false;
}

static void
pass(struct mesh *mesh, struct core_call *call, const struct core_place *place)
{
    uint8_t first = call->tried_count;
    call_list(mesh, call, place->instance, MESH_LIST_HIT, place->since_ms);
    call_list(mesh, call, place->instance, MESH_LIST_LOAD, 0);
    for (uint8_t i = first; i < call->tried_count; i++)
        call->tried[i].passed = true;
}

void
non_retryable_pass_over(struct mesh *mesh, struct core_call *call)
{
    const struct core_model *model = &mesh->tables.models[call->model];
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++)
        if (place_is_copy(&mesh->tables, &places[i]) && !is_listed(call, &places[i]) &&
            mesh->tables.instances[places[i].instance].unreachable_until_ms > mesh->now_ms &&
            call->tried_count + 2 <= MESH_TRIED_MAX)
            pass(mesh, call, &places[i]);
}

bool
non_retryable_turn_back(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = &mesh->calls.at[number];
    uint8_t kept = 0;
    for (uint8_t i = 0; i < call->tried_count; i++)
        if (call->tried[i].passed)
            names_release(&mesh->tables.instance_names, call->tried[i].instance);
        else
            call->tried[kept++] = call->tried[i];
    bool passed = kept < call->tried_count;
    call->tried_count = kept;
    if (passed) {
        call->non_retryable = false;
        call_route_later(mesh, number);
    }
    return passed;
}
