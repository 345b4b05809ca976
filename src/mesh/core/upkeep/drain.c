/* SPDX-License-Identifier: Apache-2.0 */
/* The drain of a node: rules D1 to D6. Its copies move away first (migrate.c). */
#include "mesh/core/upkeep/drain.h"
#include "base/check.h"
#include "mesh/core/actions.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/migrate.h"

enum { ENTRIES_PER_MS = 256 }; /* bounds the cost of passes, which visit all entries */

void
drain_begin(struct mesh *mesh)
{
    if (mesh->drain.active)
        return;
    mesh->drain.active = true;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_CLAIMING || entry->state == MESH_STATE_QUEUED)
            entry_leave(mesh, entry); /* D1 */
    }
    drain_tick(mesh);
}

/* Returns true while copies that can move have not. */
static bool
migrate_all(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        const struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_LOADED && model_at(mesh, entry->model)->known)
            heap_set(&mesh->entries.order, i, -entry->used_ms);
    }
    return migrate_in_order(mesh);
}

static bool
has_entries(const struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->entries.used; i++)
        if (mesh->entries.at[i].state != MESH_STATE_NONE)
            return true;
    return false;
}

void
drain_tick(struct mesh *mesh)
{
    if (!mesh->drain.active || mesh->drain.reported)
        return;
    mesh->drain.passed_ms = mesh->now_ms;
    mesh->drain.keeps_unmovable = true;
    mesh->drain.unmovable_called = false;
    if (!migrate_all(mesh) && !mesh->drain.unmovable_called) { /* D4 */
        mesh->drain.keeps_unmovable = false;
        (void)migrate_all(mesh);
    }
    if (has_entries(mesh) || mesh->room_queue.first != CALL_NONE) /* R14: others may have room */
        return;
    mesh->drain.reported = true; /* D5 */
    act(mesh, MESH_DO_DRAINED);
}

void
drain_check(const struct mesh *mesh)
{
    CHECK(mesh->drain.active || !mesh->drain.reported);
    CHECK(!mesh->drain.reported || !has_entries(mesh)); /* D5 */
    for (uint32_t i = 0; mesh->drain.active && i < mesh->entries.used; i++)
        CHECK(mesh->entries.at[i].state != MESH_STATE_CLAIMING &&
              mesh->entries.at[i].state != MESH_STATE_QUEUED); /* D1 */
}

/* D2: another copy may have arrived. Waiting for the tick would take a second for every few models.
 */
void
drain_on_model(struct mesh *mesh, uint32_t number)
{
    const struct core_entry *entry = entry_of(mesh, model_at(mesh, number));
    if (mesh->drain.active && entry != NULL && entry->asked &&
        mesh->now_ms - mesh->drain.passed_ms >= mesh->entries.used / ENTRIES_PER_MS)
        drain_tick(mesh);
}
