/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's invariants between two steps: those of each folder, and references, which cross
 * folders. Visits everything: the unit tests and the simulator call it after each step.
 */
#include <stdlib.h>

#include "base/check.h"
#include "mesh/core/calls/call.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"
#include "mesh/core/orders/orders.h"
#include "mesh/core/upkeep/drain.h"
#include "mesh/core/upkeep/preload.h"

/* ---- references: each interned text has exactly as many as there are users ---- */

struct references {
    const struct names *names;
    uint32_t *counts;
};

static struct references
references_of(const struct names *names)
{
    struct references references = {names, calloc(names->used + 1, sizeof(uint32_t))};
    CHECK(references.counts != NULL);
    return references;
}

static void
add_reference(struct references *references, uint32_t number)
{
    if (number == NAME_NONE)
        return;
    CHECK(number < references->names->used && names_text(references->names, number) != NULL);
    references->counts[number]++;
}

static void
references_end(struct references *references)
{
    for (uint32_t i = 0; i < references->names->used; i++)
        CHECK(references->counts[i] == 0 ||
              references->counts[i] == references->names->at[i].references);
    uint32_t held = 0;
    for (uint32_t i = 0; i < references->names->used; i++)
        held += references->counts[i] != 0;
    CHECK(held == references->names->live);
    free(references->counts);
}

static void
check_model_references(const struct mesh *mesh)
{
    struct references held = references_of(&mesh->tables.model_names);
    for (uint32_t i = 0; i < mesh->tables.model_names.used; i++)
        add_reference(&held, mesh->tables.models[i].listed ? i : NAME_NONE);
    for (uint32_t i = 0; i < mesh->entries.used; i++)
        if (mesh->entries.at[i].state != MESH_STATE_NONE)
            add_reference(&held, mesh->entries.at[i].model);
    for (uint32_t i = 0; i < mesh->calls.capacity; i++)
        if (mesh->calls.at[i].state != CALL_FREE)
            add_reference(&held, mesh->calls.at[i].model);
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++)
        add_reference(&held, mesh->questions.at[i].model);
    for (uint32_t i = 0; i < mesh->early.count; i++)
        add_reference(&held, mesh->early.at[i].load.model);
    for (uint32_t i = 0; i < mesh->orders.under_way_count; i++)
        add_reference(&held, mesh->orders.at[mesh->orders.under_way[i]].model);
    for (uint32_t i = 0; i < mesh->vmodels.names.used; i++) {
        add_reference(&held, mesh->vmodels.at[i].active);
        add_reference(&held, mesh->vmodels.at[i].target);
    }
    references_end(&held);
}

static void
check_vmodel_references(const struct mesh *mesh)
{
    struct references held = references_of(&mesh->vmodels.names);
    for (uint32_t i = 0; i < mesh->vmodels.names.used; i++)
        add_reference(&held, mesh->vmodels.at[i].listed ? i : NAME_NONE);
    for (uint32_t i = 0; i < mesh->calls.capacity; i++)
        if (mesh->calls.at[i].state != CALL_FREE)
            add_reference(&held, mesh->calls.at[i].vmodel);
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++)
        add_reference(&held, mesh->questions.at[i].vmodel);
    for (uint32_t i = 0; i < mesh->orders.under_way_count; i++)
        add_reference(&held, mesh->orders.at[mesh->orders.under_way[i]].vmodel);
    references_end(&held);
}

/* The references that records hold to instances and reasons, besides calls and entries. */
static void
add_places(const struct tables *tables, struct references *instances, struct references *reasons)
{
    for (uint32_t i = 0; i < tables->model_names.used; i++) {
        const struct core_place *places = model_places(&tables->models[i]);
        for (uint32_t k = 0; k < tables->models[i].place_count; k++) {
            add_reference(instances, places[k].instance);
            add_reference(reasons, places[k].reason);
        }
    }
}

static void
check_place_references(const struct mesh *mesh)
{
    struct references instances = references_of(&mesh->tables.instance_names);
    struct references reasons = references_of(&mesh->tables.reasons);
    add_places(&mesh->tables, &instances, &reasons);
    add_reference(&instances, INSTANCE_SELF);
    for (uint32_t i = 0; i < mesh->tables.instance_names.used; i++)
        add_reference(&instances, mesh->tables.instances[i].session != 0 ? i : NAME_NONE);
    for (uint32_t i = 0; i < mesh->calls.capacity; i++) {
        const struct core_call *call = &mesh->calls.at[i];
        for (uint32_t k = 0; k < call->tried_count; k++)
            add_reference(&instances, call->tried[k].instance);
        if (call->state == CALL_THERE)
            add_reference(&instances, call->there);
    }
    for (uint32_t i = 0; i < mesh->entries.used; i++)
        if (mesh->entries.at[i].state != MESH_STATE_NONE)
            add_reference(&reasons, mesh->entries.at[i].reason);
    references_end(&instances);
    references_end(&reasons);
}

static void
check_table_references(const struct tables *tables)
{
    struct references types = references_of(&tables->type_names);
    struct references labels = references_of(&tables->label_sets);
    struct references generations = references_of(&tables->generations.names);
    for (uint32_t i = 0; i < tables->model_names.used; i++)
        add_reference(&types, tables->models[i].known ? tables->models[i].type : NAME_NONE);
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        add_reference(&labels, tables->instances[i].label_set);
        add_reference(&generations, tables->instances[i].generation);
    }
    for (uint32_t i = 0; i < DEPARTED_MAX; i++)
        add_reference(&labels, tables->departed[i].label_set);
    references_end(&types);
    references_end(&labels);
    references_end(&generations);
}

void
mesh_check(const struct mesh *mesh)
{
    tables_check(&mesh->tables);
    vmodels_check(&mesh->vmodels);
    entries_check(mesh);
    pools_check(mesh);
    reconcile_check(mesh);
    early_check(mesh);
    calls_check(mesh);
    orders_check(mesh);
    drain_check(mesh);
    preload_check(mesh);
    check_model_references(mesh);
    check_vmodel_references(mesh);
    check_place_references(mesh);
    check_table_references(&mesh->tables);
}
