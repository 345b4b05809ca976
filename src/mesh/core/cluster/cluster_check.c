/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of the tables between two steps. Visits everything: for tests. */
#include "base/check.h"
#include "mesh/core/cluster/tables.h"
#include "mesh/core/cluster/vmodels.h"

/* ---- models ---- */

static void
check_places(const struct tables *tables, const struct core_model *model)
{
    const struct core_place *places = model_places(model);
    CHECK(model->place_count <= (model->places != NULL ? MESH_PLACES_MAX : PLACES_INLINE));
    for (uint32_t i = 0; i < model->place_count; i++) {
        CHECK(names_text(&tables->instance_names, places[i].instance) != NULL);
        CHECK(model_place(model, places[i].instance) == &places[i]); /* one per instance */
        CHECK(places[i].since_ms == stamp_judge(places[i].since_ms));
        CHECK(places[i].kind == MESH_PLACE_FAILED || places[i].reason == NAME_NONE);
    }
}

static bool
has_place(const struct core_model *model, bool failed)
{
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++)
        if ((places[i].kind == MESH_PLACE_FAILED) == failed)
            return true;
    return false;
}

static void
check_model(const struct tables *tables, uint32_t number)
{
    const struct core_model *model = &tables->models[number];
    bool named = names_text(&tables->model_names, number) != NULL;
    CHECK(model->known == (model->path != NULL));
    CHECK(model->known || model->wanting == NULL);
    CHECK(model->known || (model->place_count == 0 && model->places == NULL));
    CHECK(model->listed || !model->known);
    CHECK(named || !(model->listed || model->entry != ENTRY_NONE));
    CHECK(model->txn == 0 || model->txn_compare == model->revision); /* T4 */
    CHECK(model->txn == 0 || (uint32_t)model->txn == number);
    CHECK(model->used_ms == stamp_judge(model->used_ms));
    check_places(tables, model);
}

static void
check_models(const struct tables *tables)
{
    uint32_t known = 0;
    uint32_t held = 0;
    uint32_t failed = 0;
    uint32_t bound = 0;
    for (uint32_t i = 0; i < tables->model_names.used; i++) {
        check_model(tables, i);
        known += tables->models[i].known;
        held += has_place(&tables->models[i], false);
        failed += has_place(&tables->models[i], true);
        bound += tables->models[i].bounds.copies_min + tables->models[i].bounds.copies_max > 0;
    }
    CHECK(bound == tables->bound);
    CHECK(known == tables->known && held == tables->held && failed == tables->failed);
}

/* ---- instances ---- */

static void
check_instance(const struct tables *tables, uint32_t number)
{
    const struct instance *instance = &tables->instances[number];
    bool named = names_text(&tables->instance_names, number) != NULL;
    CHECK(named || (instance->session == 0 && instance->out == 0));
    CHECK(!instance->lost || instance->session != 0); /* W1: it counts until it is dropped */
    CHECK(instance->session != 0 || instance->generation == NAME_NONE);
    CHECK(instance->loads_out <= instance->out);
    CHECK(instance->figures.free_units <= instance->figures.capacity_units);
    CHECK(instance->start_ms == stamp_judge(instance->start_ms));
}

void
tables_check(const struct tables *tables)
{
    names_check(&tables->model_names);
    names_check(&tables->instance_names);
    names_check(&tables->type_names);
    names_check(&tables->reasons);
    names_check(&tables->label_sets);
    names_check(&tables->generations.names);
    CHECK(tables->model_names.used <= tables->model_capacity);
    CHECK(tables->instance_names.used <= tables->instance_capacity);
    CHECK(tables->instance_names.used <= tables->candidate_capacity);
    check_models(tables);
    uint32_t live = 0;
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        check_instance(tables, i);
        live += tables->instances[i].session != 0;
    }
    CHECK(live == tables->live);
    CHECK(names_text(&tables->instance_names, INSTANCE_SELF) != NULL);
}

/* ---- vmodels ---- */

static void
check_vmodel(const struct vmodels *vmodels, uint32_t number)
{
    const struct vmodel *vmodel = &vmodels->at[number];
    bool named = names_text(&vmodels->names, number) != NULL;
    CHECK(vmodel->listed || !vmodel->known);
    CHECK(named || !vmodel->listed);
    CHECK(vmodel->known ||
          (vmodel->active == NAME_NONE && vmodel->target == NAME_NONE && vmodel->owner == NULL));
    CHECK(vmodel->active == NAME_NONE || vmodel->target != NAME_NONE);
    CHECK(heap_has(&vmodels->moving, number) == vmodel_is_moving(vmodel));
    CHECK(!heap_has(&vmodels->graves, number) || !vmodel->known); /* T6 */
    CHECK(!vmodel_is_lost(vmodel) || vmodels->lost);              /* W1 */
    CHECK(vmodel->asked.count <= MESH_TRIED_MAX);
    CHECK(vmodel->bid.count <= MESH_WRITES_MAX && (vmodel->bid.txn == 0 || vmodel->bid.count > 0));
}

void
vmodels_check(const struct vmodels *vmodels)
{
    names_check(&vmodels->names);
    heap_check(&vmodels->moving);
    heap_check(&vmodels->graves);
    CHECK(vmodels->names.used <= vmodels->capacity);
    for (uint32_t i = 0; i < vmodels->names.used; i++)
        check_vmodel(vmodels, i);
}
