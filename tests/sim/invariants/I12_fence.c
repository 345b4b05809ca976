/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I12. A writer has a key of this very session; an instance that it removes as absent has none. A
 * place that it writes is of its own life.
 */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    const struct commit *commit = sight->commit;
    struct mesh_instance key;
    if (!key_now(world, sight->node, &key) || key.session != commit->session)
        broken(world, &I12_fence, "n%u writes m%u without a session", sight->node, sight->model);
    if (commit->absent != NULL && key_now(world, number_of(commit->absent), &key))
        broken(world, &I12_fence, "n%u removes %s from m%u, which is alive", sight->node,
               commit->absent, sight->model);
    const struct mesh_place *own = place_of(commit->after, sight->node);
    const struct mesh_place *was = place_of(commit->before, sight->node);
    bool is_new = is_registered(own) && (was == NULL || was->since_ms != own->since_ms);
    if (is_new && commit->life == world->nodes[sight->node].life &&
        own->since_ms < world->nodes[sight->node].start_ms)
        broken(world, &I12_fence, "n%u's new place in m%u is older than its process", sight->node,
               sight->model);
}

const struct invariant I12_fence = {.name = "I12 fence", .sees = SEES(COMMIT), .see = see};
