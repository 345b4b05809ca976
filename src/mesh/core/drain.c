/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a node leaves: rules D1 to D6. A copy goes when the record shows another one that is loaded.
 */
#include "mesh/core/state.h"

enum { RECENT_MS = 3600000, ASK_AGAIN_MS = 10000, ASKS_PER_NODE = 2 };

void
drain_begin(struct mesh *mesh)
{
    if (mesh->draining)
        return;
    mesh->draining = true;
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        struct entry *entry = &mesh->entries[i];
        if (entry->state == MESH_STATE_CLAIMING || entry->state == MESH_STATE_QUEUED)
            entry_leave(mesh, entry); /* D1 */
    }
    drain_tick(mesh);
}

static bool
is_loaded_elsewhere(const struct mesh *mesh, const struct model *model)
{
    const struct place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++) {
        const struct place *place = &places[i];
        if (place->instance != INSTANCE_SELF && place->kind == MESH_PLACE_LOADED &&
            place_alive(&mesh->tables, place) && !mesh->tables.instances[place->instance].draining)
            return true;
    }
    return false;
}

/* D4. Where nobody is who could take it, nothing is waited for. */
static bool
is_waited_for(const struct mesh *mesh, const struct entry *entry)
{
    return entry->used_ms > mesh->wall_ms - RECENT_MS && mesh->tables.live > 1 &&
           model_fresh_failures(mesh, &mesh->tables.models[entry->model]) < MESH_FAILURES_MAX;
}

/* D2, D3. True: another node is being waited for. */
static bool
move(struct mesh *mesh, struct entry *entry)
{
    const struct model *model = model_at(mesh, entry->model);
    if (is_loaded_elsewhere(mesh, model) || !is_waited_for(mesh, entry)) {
        entry_leave(mesh, entry);
        return false;
    }
    if (entry->asked_ms != 0 && mesh->now_ms - entry->asked_ms < ASK_AGAIN_MS)
        return true;
    entry->asked_ms = mesh->now_ms;
    const struct load_wish wish = {
        .model = entry->model,
        .used_ms = entry->used_ms,
        .class = MESH_CLASS_MIGRATION,
        .target = 2,
        .units = entry->units,
    };
    (void)ensure_anywhere(mesh, &wish, entry->used_ms);
    return true;
}

void
drain_tick(struct mesh *mesh)
{
    if (!mesh->draining || mesh->drained)
        return;
    bool left = false;
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        const struct entry *entry = &mesh->entries[i];
        left |= entry->state != MESH_STATE_NONE;
        if (entry->state == MESH_STATE_LOADED)
            heap_set(&mesh->order, i, -entry->used_ms);
    }
    uint32_t asks = ASKS_PER_NODE * mesh->tables.live;
    while (heap_first(&mesh->order) != HEAP_NONE) {
        uint32_t number = heap_first(&mesh->order);
        heap_remove(&mesh->order, number);
        if (asks > 0)
            asks -= move(mesh, &mesh->entries[number]);
    }
    if (left)
        return;
    mesh->drained = true; /* D5 */
    act(mesh, MESH_DO_DRAINED);
}
