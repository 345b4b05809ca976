/* SPDX-License-Identifier: Apache-2.0 */
#include "evictions.h"

static uint32_t
entry_model(const struct mesh_action *action)
{
    return number_of(action->txn.writes[0].model.id);
}

/* Left are those that go for another's sake: none that failed, was lost, has another copy, was
 * taken for gone, may not be here any more, or leaves with its node. */
const struct entry *
evicted_by(struct world *world, uint32_t node, const struct mesh_action *action)
{
    struct mesh *mesh = world->nodes[node].mesh;
    if (action->kind != MESH_DO_TXN || action->txn.absent != NULL || mesh->draining ||
        action->txn.writes[0].record != MESH_RECORD_MODEL)
        return NULL;
    uint32_t number = tables_model(&mesh->tables, action->txn.writes[0].model.id);
    const struct model *model = &mesh->tables.models[number];
    const struct entry *entry = entry_of(mesh, model);
    if (entry == NULL || entry->state != MESH_STATE_WITHDRAWING || entry->failed ||
        !entry->resident || entry->began_ms != mesh->now_ms)
        return NULL;
    const struct place *own = model_place(model, INSTANCE_SELF);
    if (own == NULL || own->kind != MESH_PLACE_LOADED ||
        (world->nodes[node].constrained && !node_may_hold(world, node, entry_model(action))))
        return NULL;
    const struct place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++)
        if (&places[i] != own && places[i].kind != MESH_PLACE_FAILED)
            return NULL;
    return entry;
}
