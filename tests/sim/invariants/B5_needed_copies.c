/* SPDX-License-Identifier: Apache-2.0 */
/*
 * B5. While all nodes see each other, no node gives up a copy that is needed for the minimum. Two
 * may give up one each at the same time, and memory that is short of what was promised counts more.
 * A copy that the runtime has lost is not given up.
 */
#include "../invariants.h"
#include "bounds.h"

enum { SEEN_MS = 3000 };

/* Of each model; when all nodes were last disturbed is in the first node's. */
struct last_commit {
    int64_t at_ms;
};

static void
on_commit(struct world *world, const struct sight *sight)
{
    const struct mesh_model *before = sight->commit->before;
    const struct mesh_place *own = place_of(before, sight->node);
    struct last_commit *last = of_model(world, &B5_needed_copies, sight->model);
    bool seen = world->now_ms - last->at_ms > SEEN_MS;
    const struct held *held = &world->nodes[sight->node].held[sight->model];
    bool goes = own != NULL && own->kind == MESH_PLACE_LOADED && held->memory == MEMORY_LOADED &&
                !is_registered(place_of(sight->commit->after, sight->node));
    last->at_ms = world->now_ms;
    uint32_t copies = copies_that_stay(world, before, MESH_PLACE_LOADED);
    if (goes && seen && copies <= copies_needed(world, before))
        broken(world, &B5_needed_copies, "n%u gives up one of %u copies of m%u", sight->node,
               copies, sight->model);
}

static void
see(struct world *world, const struct sight *sight)
{
    int64_t *disturbed_ms = of_node(world, &B5_needed_copies, 0);
    if (sight->kind != SAW_COMMIT)
        *disturbed_ms = world->now_ms;
    else if (world->now_ms - *disturbed_ms > CALM_MS)
        on_commit(world, sight);
}

const struct invariant B5_needed_copies = {
    .name = "B5 needed copies",
    .sees = SEES(COMMIT) | SEES_DISTURBANCE,
    .node_bytes = sizeof(int64_t),
    .model_bytes = sizeof(struct last_commit),
    .see = see,
};
