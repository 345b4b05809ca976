/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/calls/refusal.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"

const char REGISTRY_AWAY_TEXT[] = "the registry cannot be written";
static const char LEAVING_TEXT[] =
    "Nowhere available to load: the nodes that may load the model are draining or have just left";

struct place_wish
call_place_wish(struct mesh *mesh, const struct core_call *call)
{
    struct place_wish wish = ensure_wish(mesh, call->model);
    wish.tried = call->tried;
    wish.tried_count = call->tried_count;
    wish.again = call->overloads == 0;
    wish.not_self |= !load_may_begin(mesh, call->model); /* more precise than figures */
    wish.churn_ms = 0;
    wish.patient = call->arrival != 0;
    return wish;
}

const char *
refusal_failure_text(const struct mesh *mesh, const struct core_model *model)
{
    const struct core_place *places = model_places(model);
    const struct core_place *last = NULL;
    for (uint32_t i = 0; i < model->place_count; i++)
        if (places[i].kind == MESH_PLACE_FAILED && places[i].reason != NAME_NONE &&
            (last == NULL || places[i].since_ms > last->since_ms))
            last = &places[i];
    return last == NULL ? "the model failed to load"
                        : names_text(&mesh->tables.reasons, last->reason);
}

struct refusal
refusal_at_once(struct mesh *mesh, const struct place_wish *wish)
{
    const struct core_entry *entry = entry_of(mesh, wish->model);
    enum place_refusal refusal = place_refusal(&mesh->tables, wish);
    bool leaves = mesh->drain.active || place_is_leaving(&mesh->tables, wish); /* R18 */
    if (entry != NULL && entry->failed && entry->reason != NAME_NONE)
        return (struct refusal){MESH_END_LOAD_FAILED, /* not in the record yet */
                                names_text(&mesh->tables.reasons, entry->reason)};
    if (refusal == PLACE_ALL_TRIED && model_fresh_failures(mesh, wish->model) > 0)
        return (struct refusal){leaves ? MESH_END_UNAVAILABLE : MESH_END_LOAD_FAILED,
                                refusal_failure_text(mesh, wish->model)};
    if (leaves && refusal != PLACE_NO_LABELS)
        return (struct refusal){MESH_END_UNAVAILABLE, LEAVING_TEXT};
    return (struct refusal){leaves ? MESH_END_UNAVAILABLE : MESH_END_FAILED,
                            ensure_refusal_text(mesh, wish, refusal)};
}

/* If every node that may hold the model has it and yet did not serve the call, room is not
 * missing. */
struct refusal
refusal_after_waiting(struct mesh *mesh, uint32_t model)
{
    struct place_wish wish = ensure_wish(mesh, model);
    enum place_refusal refusal = place_refusal(&mesh->tables, &wish);
    bool full = refusal != PLACE_ALL_TRIED;
    wish.not_self = !pool_for(mesh, model_at(mesh, model))->runtime;
    if (refusal == PLACE_ALL_FULL && place_is_bare(&mesh->tables, &wish))
        return (struct refusal){MESH_END_UNAVAILABLE,
                                "no runtime that may load the model was ready in time"};
    if (full && refusal != PLACE_AT_MOST)
        refusal = PLACE_ALL_FULL;
    return (struct refusal){full ? MESH_END_FULL : MESH_END_FAILED, place_refusal_text(refusal)};
}
