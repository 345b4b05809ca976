/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leader's removals: rules G1 and G2. Models without copies are noted for preload.c. A pass
 * covers all models, a limited number per tick, followed by a pause. Two leaders at once do no
 * harm: each write compares the record and the instance's absence.
 */
#include "mesh/core/upkeep/reaper.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/copies/reconcile.h"
#include "mesh/core/upkeep/preload.h"

enum {
    REST_MS = 7 * 60000,
    MODELS_PER_TICK = 20000,
    WRITES_PER_TICK = 128,
    AHEAD_MS = 15 * 60000, /* G2: clocks differ by less */
};

/* G1: this node itself has seen the instance absent for long enough. */
static bool
is_gone(struct mesh *mesh, uint16_t number)
{
    struct instance *instance = &mesh->tables.instances[number];
    if (instance->session != 0 || number == INSTANCE_SELF)
        return false;
    if (instance->gone_ms == 0)
        instance->gone_ms = mesh->now_ms; /* first seen in its places */
    return mesh->now_ms - instance->gone_ms >= mesh->config.gone_ms;
}

static uint32_t
reap(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    if (!model->known || model_is_lost(model) || model->txn != 0)
        return 0;
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++)
        if (is_gone(mesh, places[i].instance)) {
            reconcile_without(mesh, number, places[i].instance);
            return 1;
        }
    if (model->used_ms <= mesh->wall_ms + AHEAD_MS)
        return 0;
    reconcile_used_now(mesh, number);
    return 1;
}

void
reaper_tick(struct mesh *mesh)
{
    if (!mesh->leader || !mesh->mirror.whole || mesh->mirror.session == 0)
        return;
    int64_t rest_ms = mesh->config.gone_ms < REST_MS ? mesh->config.gone_ms : REST_MS;
    if (mesh->upkeep.reap_at == UINT32_MAX) {
        if (mesh->now_ms - mesh->upkeep.reaped_ms < rest_ms)
            return;
        mesh->upkeep.reaped_ms = mesh->now_ms;
        mesh->upkeep.reap_at = 0;
    }
    uint32_t writes = 0;
    for (uint32_t looked = 0; looked < MODELS_PER_TICK && writes < WRITES_PER_TICK; looked++) {
        if (mesh->upkeep.reap_at >= mesh->tables.model_names.used) {
            mesh->upkeep.reap_at = UINT32_MAX;
            preload_plan(mesh);
            return;
        }
        uint32_t number = mesh->upkeep.reap_at++;
        if (names_text(&mesh->tables.model_names, number) == NULL)
            continue;
        writes += reap(mesh, number);
        preload_note(mesh, number);
    }
}
