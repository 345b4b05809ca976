/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/copies/minimum.h"

/* A vmodel moves to another model, which may need the room. One whose target does not load stays
 * for as long as its owner likes. */
static bool
is_left(const struct mesh *mesh, uint32_t number)
{
    const struct heap *moving = &mesh->vmodels.moving;
    for (uint32_t i = 0; i < moving->count; i++) {
        const struct vmodel *vmodel = &mesh->vmodels.at[moving->cells[i].item];
        if (vmodel->active == number && !vmodel->failed)
            return true;
    }
    return false;
}

uint32_t
minimum_of(const struct mesh *mesh, uint32_t number)
{
    const struct mesh_bounds *bounds = &mesh->tables.models[number].bounds;
    bool crossed = bounds->copies_max != 0 && bounds->copies_max < bounds->copies_min;
    uint32_t least = crossed ? bounds->copies_max : bounds->copies_min;
    return least != 0 && is_left(mesh, number) ? 0 : least;
}

bool
minimum_needs(const struct mesh *mesh, const struct core_entry *entry)
{
    const struct core_model *model = &mesh->tables.models[entry->model];
    if (model->bounds.copies_min == 0)
        return false;
    const struct core_place *own = model_place(model, INSTANCE_SELF);
    uint32_t loaded = model_staying(&mesh->tables, model, MESH_PLACE_LOADED);
    bool counted = loaded > 0 && own != NULL && own->kind == MESH_PLACE_LOADED &&
                   place_alive(&mesh->tables, own);
    return loaded - counted < minimum_of(mesh, entry->model);
}
