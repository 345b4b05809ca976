/* SPDX-License-Identifier: Apache-2.0 */
#include "evictions.h"

uint32_t
entry_model(const struct mesh *mesh, const struct core_entry *entry)
{
    return number_of(names_text(&mesh->tables.model_names, entry->model));
}

/* Left are those that go for another's sake: none that failed, was lost, has another copy, was
 * taken for gone, may not be here any more, or leaves with its node. */
bool
evicted_for_room(struct world *world, uint32_t node, const struct core_entry *entry)
{
    const struct mesh *mesh = world->nodes[node].mesh;
    const struct core_model *model = &mesh->tables.models[entry->model];
    if (mesh->drain.active || entry->failed || !entry->resident)
        return false;
    const struct core_place *own = model_place(model, INSTANCE_SELF);
    if (own == NULL || own->kind != MESH_PLACE_LOADED ||
        (world->nodes[node].constrained && !node_may_hold(world, node, entry_model(mesh, entry))))
        return false;
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++)
        if (&places[i] != own && places[i].kind != MESH_PLACE_FAILED)
            return false;
    return true;
}
