/* SPDX-License-Identifier: Apache-2.0 */
/* Each node's own repairs, every six minutes: rules J2, J4 and J5. */
#include <string.h>

#include "mesh/core/upkeep/janitor.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/minimum.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"

enum {
    JANITOR_MS = 6 * 60000,
    REFRESH_MS = 6 * 3600000, /* J4 */
    REFRESH_SPREAD_MS = 3600000,
    QUIET_MS = 10 * 60000,      /* J5: the third copy */
    UNUSED_MS_MIN = 41 * 60000, /* J5: the second; S2's window has passed by then */
    UNUSED_MS_MAX = 10 * 3600000,
};

bool
janitor_is_last_to_come(const struct mesh *mesh, const struct core_model *model,
                        const struct core_place *own)
{
    const struct names *names = &mesh->tables.instance_names;
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++) {
        const struct core_place *place = &places[i];
        if (place == own || !place_is_copy(&mesh->tables, place))
            continue;
        if (place->since_ms > own->since_ms ||
            (place->since_ms == own->since_ms &&
             strcmp(names_text(names, place->instance), names_text(names, INSTANCE_SELF)) > 0))
            return false;
    }
    return true;
}

static uint32_t
copies_loaded(const struct mesh *mesh, const struct core_model *model)
{
    const struct core_place *places = model_places(model);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->place_count; i++)
        count += places[i].kind == MESH_PLACE_LOADED && place_alive(&mesh->tables, &places[i]) &&
                 !mesh->tables.instances[places[i].instance].draining;
    return count;
}

static bool
is_one_too_many(struct mesh *mesh, const struct core_entry *entry, int64_t cache_age_ms)
{
    const struct core_model *model = model_at(mesh, entry->model);
    const struct core_place *own = model_place(model, INSTANCE_SELF);
    uint32_t loaded = copies_loaded(mesh, model);
    if (own == NULL || own->kind != MESH_PLACE_LOADED || loaded < 2 || minimum_needs(mesh, entry) ||
        !janitor_is_last_to_come(mesh, model, own))
        return false;
    int64_t here_ms = mesh->now_ms - entry->began_ms;
    if (loaded > 2)
        return here_ms >= QUIET_MS && mesh->now_ms - entry->heavy_ms >= QUIET_MS;
    int64_t unused_ms = cache_age_ms / 10;
    if (unused_ms < UNUSED_MS_MIN)
        unused_ms = UNUSED_MS_MIN;
    if (unused_ms > UNUSED_MS_MAX)
        unused_ms = UNUSED_MS_MAX;
    return mesh->wall_ms - entry->used_ms >= unused_ms && here_ms >= UNUSED_MS_MIN;
}

static void
shrink(struct mesh *mesh, uint32_t number)
{
    struct mesh_figures figures = pool_figures(mesh, &mesh->pools.at[number]);
    if (figures.free_units > figures.capacity_units / 20)
        return; /* no shortage of room */
    int64_t cache_age_ms = mesh->wall_ms - figures.oldest_ms;
    uint64_t budget = figures.capacity_units / 20;
    for (uint32_t i = 0; i < mesh->entries.used; i++)
        if (mesh->entries.at[i].state == MESH_STATE_LOADED && mesh->entries.at[i].pool == number)
            heap_set(&mesh->entries.order, i, mesh->entries.at[i].used_ms);
    while (heap_first(&mesh->entries.order) != HEAP_NONE) {
        struct core_entry *entry = &mesh->entries.at[heap_first(&mesh->entries.order)];
        heap_remove(&mesh->entries.order, heap_first(&mesh->entries.order));
        if (budget == 0 || !is_one_too_many(mesh, entry, cache_age_ms))
            continue;
        budget = budget > entry->units ? budget - entry->units : 0;
        entry->yields = true;
        entry_leave(mesh, entry);
    }
}

/* J4, at a different moment for each model and instance. */
static void
refresh(struct mesh *mesh)
{
    const struct tables *tables = &mesh->tables;
    uint32_t own = tables->instance_names.at[INSTANCE_SELF].hash;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        const struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state != MESH_STATE_LOADED)
            continue;
        uint32_t spread = (tables->model_names.at[entry->model].hash ^ own) % REFRESH_SPREAD_MS;
        if (entry->used_ms - model_at(mesh, entry->model)->used_ms > REFRESH_MS + spread)
            reconcile_say_used(mesh, entry->model);
    }
}

void
janitor_tick(struct mesh *mesh)
{
    if (!mesh->mirror.whole || mesh->mirror.session == 0 || mesh->drain.active ||
        mesh->now_ms - mesh->upkeep.cleaned_ms < JANITOR_MS)
        return;
    mesh->upkeep.cleaned_ms = mesh->now_ms;
    reconcile_all(mesh); /* J2: a safety net for states that no rule foresees */
    refresh(mesh);
    for (uint32_t i = 0; i < mesh->pools.count; i++)
        shrink(mesh, i);
}
