/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I18. Who drains begins no load, and withdraws nothing that others have yet to load. When it says
 * that it is done, nothing is left.
 */
#include "../invariants.h"
#include "mesh/core/state.h"

struct drains {
    bool drains;
};

static void
on_commit(struct world *world, const struct sight *sight)
{
    const struct commit *commit = sight->commit;
    const struct node *node = &world->nodes[sight->node];
    const struct mesh_place *was = place_of(commit->before, sight->node);
    if (node->mesh == NULL || node->life != commit->life || commit->late || was == NULL ||
        was->kind != MESH_PLACE_LOADED || is_registered(place_of(commit->after, sight->node)) ||
        node->held[sight->model].memory != MEMORY_LOADED || node->mesh->tables.live < 2 ||
        world->options.faults.size_lies + world->options.faults.keeps > 0)
        return;
    uint32_t failed = 0;
    for (uint32_t i = 0; i < commit->before->place_count; i++) {
        const struct mesh_place *place = &commit->before->places[i];
        if (place->kind == MESH_PLACE_LOADED && place != was)
            return;
        failed += place->kind == MESH_PLACE_FAILED;
    }
    if (failed < MESH_FAILURES_MAX)
        broken(world, &I18_drain, "n%u drains, and withdraws m%u, which nobody else has",
               sight->node, sight->model);
}

static void
see(struct world *world, const struct sight *sight)
{
    struct drains *drains = of_node(world, &I18_drain, sight->node);
    const struct node *node = &world->nodes[sight->node];
    switch (sight->kind) {
    case SAW_BIRTH: drains->drains = false; break;
    case SAW_DRAIN: drains->drains = true; break;
    case SAW_COMMIT:
        if (drains->drains)
            on_commit(world, sight);
        break;
    case SAW_LOAD:
        if (drains->drains)
            broken(world, &I18_drain, "n%u drains, and loads m%u", sight->node, sight->model);
        break;
    default:
        for (uint32_t i = 0; i < world->options.models; i++)
            if (node->held[i].memory != MEMORY_NONE || node->held[i].in_flight > 0)
                broken(world, &I18_drain, "n%u says that it has drained, and has m%u", sight->node,
                       i);
        break;
    }
}

const struct invariant I18_drain = {
    .name = "I18 drain",
    .sees = SEES(BIRTH) | SEES(DRAIN) | SEES(COMMIT) | SEES(LOAD) | SEES(DRAINED),
    .node_bytes = sizeof(struct drains),
    .see = see,
};
