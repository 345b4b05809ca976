/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removals by the leader: rules G1 and G2; models without copies that it comes by are noted for
 * ahead.c. It goes through all models, so many per tick, and then rests. Two leaders at once do no
 * harm: each write compares the record, and that the instance is absent.
 */
#include "mesh/core/state.h"

enum {
    REST_MS = 7 * 60000,
    MODELS_PER_TICK = 20000,
    WRITES_PER_TICK = 128,
    AHEAD_MS = 15 * 60000, /* G2: clocks differ by less */
};

/* G1: this node has seen for itself that it has been away for long. */
static bool
is_gone(struct mesh *mesh, uint16_t number)
{
    struct instance *instance = &mesh->tables.instances[number];
    if (instance->session != 0 || number == INSTANCE_SELF)
        return false;
    if (instance->gone_ms == 0)
        instance->gone_ms = mesh->now_ms; /* heard of it first by its places */
    return mesh->now_ms - instance->gone_ms >= mesh->config.gone_ms;
}

static uint32_t
reap(struct mesh *mesh, uint32_t number)
{
    const struct model *model = model_at(mesh, number);
    if (!model->known || model_is_lost(model) || model->txn != 0)
        return 0;
    const struct place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++)
        if (is_gone(mesh, places[i].instance)) {
            settle_without(mesh, number, places[i].instance);
            return 1;
        }
    if (model->used_ms <= mesh->wall_ms + AHEAD_MS)
        return 0;
    settle_used_now(mesh, number);
    return 1;
}

void
reaper_tick(struct mesh *mesh)
{
    if (!mesh->leader || !mesh->whole || mesh->session == 0)
        return;
    int64_t rest_ms = mesh->config.gone_ms < REST_MS ? mesh->config.gone_ms : REST_MS;
    if (mesh->reap_at == UINT32_MAX) {
        if (mesh->now_ms - mesh->reaped_ms < rest_ms)
            return;
        mesh->reaped_ms = mesh->now_ms;
        mesh->reap_at = 0;
    }
    uint32_t writes = 0;
    for (uint32_t looked = 0; looked < MODELS_PER_TICK && writes < WRITES_PER_TICK; looked++) {
        if (mesh->reap_at >= mesh->tables.model_names.used) {
            mesh->reap_at = UINT32_MAX;
            ahead_plan(mesh);
            return;
        }
        uint32_t number = mesh->reap_at++;
        if (names_text(&mesh->tables.model_names, number) == NULL)
            continue;
        writes += reap(mesh, number);
        ahead_note(mesh, number);
    }
}
