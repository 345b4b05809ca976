/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a model and of a vmodel by their records: rule O4. */
#include "mesh/core/orders/status.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"

static bool
counts(const struct mesh *mesh, const struct core_place *place)
{
    return place->kind == MESH_PLACE_FAILED
               ? failure_is_fresh(place->since_ms, mesh->wall_ms, mesh->config.failure_fresh_ms)
               : place_alive(&mesh->tables, place);
}

static enum mesh_model_state
better(enum mesh_model_state state, enum mesh_place_kind kind)
{
    if (kind == MESH_PLACE_LOADED || state == MESH_MODEL_LOADED)
        return MESH_MODEL_LOADED;
    if (kind == MESH_PLACE_LOADING || state == MESH_MODEL_LOADING)
        return MESH_MODEL_LOADING;
    return MESH_MODEL_FAILED;
}

struct mesh_status
status_of(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    if (!model->known)
        return (struct mesh_status){.state = MESH_MODEL_NOT_FOUND};
    struct mesh_status status = {.state = MESH_MODEL_NOT_LOADED, .bounds = model->bounds};
    const struct core_place *places = model_places(model);
    struct mesh_place *made =
        bump_take(&mesh->actions.arena, (model->place_count + 1u) * sizeof(*made));
    for (uint32_t i = 0; i < model->place_count; i++)
        if (counts(mesh, &places[i]))
            heap_set(&mesh->entries.order, i, -places[i].since_ms);
    while (heap_first(&mesh->entries.order) != HEAP_NONE) {
        const struct core_place *place = &places[heap_first(&mesh->entries.order)];
        heap_remove(&mesh->entries.order, heap_first(&mesh->entries.order));
        status.state = better(status.state, (enum mesh_place_kind)place->kind);
        bool said = place->reason != NAME_NONE;
        made[status.place_count++] = (struct mesh_place){
            .instance = names_text(&mesh->tables.instance_names, place->instance),
            .reason = said ? names_text(&mesh->tables.reasons, place->reason) : NULL,
            .since_ms = place->since_ms,
            .kind = (enum mesh_place_kind)place->kind,
        };
    }
    status.places = made;
    return status;
}

static struct mesh_status
status_of_either(struct mesh *mesh, uint32_t model)
{
    return model == NAME_NONE ? (struct mesh_status){.state = MESH_MODEL_NOT_FOUND}
                              : status_of(mesh, model);
}

static const char *
model_text(const struct mesh *mesh, uint32_t model)
{
    return model == NAME_NONE ? "" : names_text(&mesh->tables.model_names, model);
}

struct mesh_vmodel_status
vmodel_status_of(struct mesh *mesh, uint32_t number)
{
    const struct vmodel *vmodel = &mesh->vmodels.at[number];
    struct mesh_vmodel_status status = {
        .state = MESH_VMODEL_NOT_FOUND, .owner = "", .active = "", .target = ""};
    if (!vmodel->known)
        return status;
    status.state = MESH_VMODEL_DEFINED;
    status.owner = vmodel->owner == NULL ? "" : vmodel->owner;
    status.active = model_text(mesh, vmodel->active);
    status.target = model_text(mesh, vmodel->target);
    status.active_status = status_of_either(mesh, vmodel->active);
    if (!vmodel_is_moving(vmodel))
        return status;
    status.state = vmodel->failed ? MESH_VMODEL_FAILED : MESH_VMODEL_TRANSITIONING;
    status.target_status = status_of_either(mesh, vmodel->target);
    if (status.target_status.state == MESH_MODEL_NOT_LOADED)
        status.target_status.state = MESH_MODEL_LOADING; /* the leader sees to it (V3) */
    return status;
}
