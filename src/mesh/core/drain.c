/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a node leaves: rules D1 to D6. Its copies move away first (move.c).
 */
#include "mesh/core/state.h"

enum { ENTRIES_PER_MS = 256 }; /* a look is at all entries: that costs some percent of the time */

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

/* Returns whether copies that can move have yet to. */
static bool
move_all(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        const struct entry *entry = &mesh->entries[i];
        if (entry->state == MESH_STATE_LOADED && model_at(mesh, entry->model)->known)
            heap_set(&mesh->order, i, -entry->used_ms);
    }
    return move_in_order(mesh);
}

static bool
has_entries(const struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->entry_used; i++)
        if (mesh->entries[i].state != MESH_STATE_NONE)
            return true;
    return false;
}

void
drain_tick(struct mesh *mesh)
{
    if (!mesh->draining || mesh->drained)
        return;
    mesh->drain_ms = mesh->now_ms;
    mesh->keeps_unmovable = true;
    mesh->unmovable_called = false;
    if (!move_all(mesh) && !mesh->unmovable_called) { /* D4 */
        mesh->keeps_unmovable = false;
        (void)move_all(mesh);
    }
    if (has_entries(mesh) || mesh->crowd != CALL_NONE) /* R14: others may have room for them */
        return;
    mesh->drained = true; /* D5 */
    act(mesh, MESH_DO_DRAINED);
}

/* D2: another copy has come, maybe; to wait for the tick would be a second for each few models. */
void
drain_on_model(struct mesh *mesh, uint32_t number)
{
    const struct entry *entry = entry_of(mesh, model_at(mesh, number));
    if (mesh->draining && entry != NULL && entry->asked &&
        mesh->now_ms - mesh->drain_ms >= mesh->entry_used / ENTRIES_PER_MS)
        drain_tick(mesh);
}
