/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds of the number of copies: rules B3 to B5. Each node looks after its own copies, the leader
 * after models that have too few. Nothing is done while no record has bounds.
 */
#include "mesh/core/upkeep/bounds.h"

#include <stdlib.h>

#include "base/check.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/minimum.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"
#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/upkeep/janitor.h"

enum { MODELS_PER_TICK = 20000, AGAIN_MS = 1000, AGAIN_SHIFT_MAX = 5 };

/* B3 */
static bool
is_surplus(const struct mesh *mesh, const struct core_entry *entry)
{
    const struct core_model *model = &mesh->tables.models[entry->model];
    const struct core_place *own = model_place(model, INSTANCE_SELF);
    uint32_t most = model->bounds.copies_max;
    return most != 0 && own != NULL && own->kind == MESH_PLACE_LOADED &&
           own->since_ms == entry->since_ms &&
           model_staying(&mesh->tables, model, MESH_PLACE_LOADED) > most &&
           janitor_is_last_to_come(mesh, model, own);
}

static void
look_at_copy(struct mesh *mesh, struct core_entry *entry)
{
    const struct core_model *model = model_at(mesh, entry->model);
    if (entry->state != MESH_STATE_LOADED || !model->known)
        return;
    load_weigh(mesh, entry);
    if (mesh->drain.active || mesh->mirror.session == 0 || !is_surplus(mesh, entry))
        return;
    entry->yields = true;
    entry_leave(mesh, entry);
}

void
bounds_on_model(struct mesh *mesh, uint32_t number)
{
    struct core_entry *entry = entry_of(mesh, model_at(mesh, number));
    if (entry != NULL)
        look_at_copy(mesh, entry);
}

/* ---- the leader ---- */

static void
forget(struct core_model *model)
{
    free(model->wanting);
    model->wanting = NULL;
}

static struct wanting *
wanting_of(struct core_model *model)
{
    if (model->wanting == NULL) {
        model->wanting = calloc(1, sizeof(*model->wanting));
        CHECK(model->wanting != NULL);
    }
    return model->wanting;
}

/* B4. A copy that is being loaded may still be refused for its size, so requests become rare until
 * one is loaded or a node joins. */
static void
look_at_model(struct mesh *mesh, uint32_t number)
{
    struct core_model *model = model_at(mesh, number);
    uint32_t least = model->known ? minimum_of(mesh, number) : 0;
    uint32_t loaded = least == 0 ? 0 : model_staying(&mesh->tables, model, MESH_PLACE_LOADED);
    if (loaded >= least) {
        forget(model);
        return;
    }
    uint32_t staying = model_staying(&mesh->tables, model, MESH_PLACE_LOADING);
    if (staying >= least || model_is_lost(model) ||
        model_fresh_failures(mesh, model) >= MESH_FAILURES_MAX)
        return;
    struct wanting *wanting = wanting_of(model);
    if (loaded > wanting->loaded || mesh->tables.joins != wanting->joins)
        wanting->asks = 0;
    wanting->joins = mesh->tables.joins;
    if (wanting->asks > 0 && mesh->now_ms - wanting->asked_ms < (int64_t)AGAIN_MS
                                                                    << (wanting->asks - 1))
        return;
    wanting->asked_ms = mesh->now_ms;
    wanting->loaded = loaded;
    wanting->asks += wanting->asks <= AGAIN_SHIFT_MAX;
    const struct load_wish wish = {
        .model = number,
        .used_ms = mesh->wall_ms,
        .class = MESH_CLASS_MIGRATION,
        .target = least + model_copies(&mesh->tables, model) - staying,
    };
    ensure_in_turn(mesh, &wish, &wanting->asked);
}

static void
look_at_models(struct mesh *mesh)
{
    uint32_t used = mesh->tables.model_names.used;
    uint32_t count = used < MODELS_PER_TICK ? used : MODELS_PER_TICK;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = mesh->upkeep.bounds_at++ % used;
        if (names_text(&mesh->tables.model_names, number) != NULL)
            look_at_model(mesh, number);
    }
}

void
bounds_tick(struct mesh *mesh)
{
    if (mesh->tables.bound == 0 || !mesh->mirror.whole)
        return;
    for (uint32_t i = 0; i < mesh->entries.used; i++)
        look_at_copy(mesh, &mesh->entries.at[i]);
    if (mesh->leader && mesh->mirror.session != 0)
        look_at_models(mesh);
}
