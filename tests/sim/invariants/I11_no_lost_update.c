/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I11. A record is made of the one before it: a writer changes its own place alone, the one of
 * the absent node that it removes, and failures that count no more.
 */
#include <string.h>

#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    const struct mesh_model *before = sight->commit->before;
    const struct mesh_model *after = sight->commit->after;
    if (strcmp(before->path, after->path) != 0 || strcmp(before->type, after->type) != 0 ||
        (world->options.faults.orders == 0 && before->references != after->references))
        broken(world, &I11_no_lost_update, "n%u makes another model of m%u", sight->node,
               sight->model);
    for (uint32_t i = 0; i < before->place_count; i++) {
        const struct mesh_place *place = &before->places[i];
        uint32_t of = number_of(place->instance);
        const struct mesh_place *still = place_of(after, of);
        bool may = of == sight->node || place->kind == MESH_PLACE_FAILED ||
                   (sight->commit->absent != NULL && number_of(sight->commit->absent) == of);
        if (!may &&
            (still == NULL || still->since_ms != place->since_ms || still->kind != place->kind))
            broken(world, &I11_no_lost_update, "n%u changes the place of n%u in m%u", sight->node,
                   of, sight->model);
    }
    for (uint32_t i = 0; i < after->place_count; i++) {
        uint32_t of = number_of(after->places[i].instance);
        if (of != sight->node && place_of(before, of) == NULL)
            broken(world, &I11_no_lost_update, "n%u adds a place of n%u to m%u", sight->node, of,
                   sight->model);
    }
}

const struct invariant I11_no_lost_update = {
    .name = "I11 no lost update", .sees = SEES(COMMIT), .see = see};
