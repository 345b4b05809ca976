/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I16. Nothing that was just loaded for somebody goes for another's sake. Where models turn out
 * larger than said, or memory is not given back, it may have to.
 */
#include "evictions.h"

struct loaded {
    int64_t at_ms;
};

static void
see(struct world *world, const struct sight *sight)
{
    if (sight->kind == SAW_LOADED) {
        struct loaded *loaded = of_pair(world, &I16_churn, sight->node, sight->model);
        loaded->at_ms = world->now_ms;
        return;
    }
    if (world->options.faults.size_lies + world->options.faults.keeps > 0)
        return;
    for (uint32_t i = 0; i < sight->actions->count; i++) {
        const struct mesh_action *action = &sight->actions->at[i];
        const struct entry *entry = evicted_by(world, sight->node, action);
        if (entry == NULL || entry->class == MESH_CLASS_ADVANCE)
            continue;
        const struct loaded *loaded =
            of_pair(world, &I16_churn, sight->node, number_of(action->txn.writes[0].model.id));
        if (world->now_ms - loaded->at_ms < 1000)
            broken(world, &I16_churn, "n%u evicts %s, %lld ms after it was loaded", sight->node,
                   action->txn.writes[0].model.id, (long long)(world->now_ms - loaded->at_ms));
    }
}

const struct invariant I16_churn = {
    .name = "I16 churn",
    .sees = SEES(STEP) | SEES(LOADED),
    .pair_bytes = sizeof(struct loaded),
    .see = see,
};
