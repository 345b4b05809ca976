/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I5. Before a node unloads a model, the record does not show its place any more. Excepted is a
 * place that came back by a transaction that the node had given up, as its answer did not come; and
 * a node that rewrites a lost record states what was when it was lost.
 */
#include "../invariants.h"

struct last {
    bool late;
};

static void
see(struct world *world, const struct sight *sight)
{
    struct last *last = of_pair(world, &I05_withdraw_first, sight->node, sight->model);
    if (sight->kind == SAW_COMMIT) {
        last->late = sight->commit->late;
        return;
    }
    struct mesh_place places[64];
    struct mesh_model record;
    const struct held *held = &world->nodes[sight->node].held[sight->model];
    if (record_now(world, sight->model, places, &record) && version_of(&record) == held->version &&
        is_registered(place_of(&record, sight->node)) && !last->late && world->emptied == 0)
        broken(world, &I05_withdraw_first, "n%u unloads m%u, and the record shows it", sight->node,
               sight->model);
}

const struct invariant I05_withdraw_first = {
    .name = "I5 withdraw first",
    .sees = SEES(COMMIT) | SEES(UNLOAD),
    .pair_bytes = sizeof(struct last),
    .see = see,
};
