/* SPDX-License-Identifier: Apache-2.0 */
#include "mirror.h"

#include <string.h>

#include "mesh/core/state.h"

static bool
are_same(const struct tables *tables, const struct core_model *known,
         const struct mesh_model *record)
{
    const struct core_place *places = model_places(known);
    if (known->place_count != record->place_count ||
        known->create_revision != record->create_revision)
        return false;
    for (uint32_t i = 0; i < known->place_count; i++) {
        const struct mesh_place *given = &record->places[i];
        if (strcmp(names_text(&tables->instance_names, places[i].instance), given->instance) != 0 ||
            places[i].since_ms != given->since_ms || (int)places[i].kind != (int)given->kind)
            return false;
    }
    return true;
}

const char *
mirror_judge(struct world *world, uint32_t node, uint32_t model, uint64_t revision)
{
    const struct tables *tables = &world->nodes[node].mesh->tables;
    uint32_t number = tables_model(tables, world->model_names[model]);
    const struct core_model *known = number == NAME_NONE ? NULL : &tables->models[number];
    struct mesh_place places[64];
    struct mesh_model record;
    bool exists = record_then(world, model, revision, places, &record);
    if (known != NULL && known->known && known->revision == 0)
        return NULL; /* it was lost, and is to be written anew (W1) */
    if (known == NULL || !known->known)
        return exists && (known == NULL || known->revision < revision) ? "is not known" : NULL;
    if (!exists && known->revision <= revision)
        return "is known, and is gone";
    if (exists && known->revision < record.revision)
        return "is known as of old";
    if (!record_then(world, model, known->revision, places, &record) ||
        record.revision != known->revision)
        return "is known as of a revision that it never had";
    return are_same(tables, known, &record) ? NULL : "is known with a state that it never had";
}
