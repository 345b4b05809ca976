/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I16. Nothing that was just loaded for somebody goes for another's sake. Where models turn out
 * larger than said, or memory is not given back, it may have to.
 */
#include "evictions.h"

struct loaded {
    int64_t at_ms;
    bool stays; /* it was loaded after the last step */
};

static void
judge(struct world *world, uint32_t node, const struct entry *entry, const struct loaded *loaded)
{
    if (entry->class != MESH_CLASS_ADVANCE && world->now_ms - loaded->at_ms < 1000 &&
        evicted_for_room(world, node, entry))
        broken(world, &I16_churn, "n%u evicts m%u, %lld ms after it was loaded", node,
               entry_model(world->nodes[node].mesh, entry),
               (long long)(world->now_ms - loaded->at_ms));
}

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
    const struct mesh *mesh = world->nodes[sight->node].mesh;
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        const struct entry *entry = &mesh->entries[i];
        if (entry->state == MESH_STATE_NONE)
            continue;
        struct loaded *loaded = of_pair(world, &I16_churn, sight->node, entry_model(mesh, entry));
        if (loaded->stays && entry->state == MESH_STATE_WITHDRAWING)
            judge(world, sight->node, entry, loaded);
        loaded->stays = entry->state == MESH_STATE_LOADED;
    }
}

const struct invariant I16_churn = {
    .name = "I16 churn",
    .sees = SEES(STEP) | SEES(LOADED),
    .pair_bytes = sizeof(struct loaded),
    .see = see,
};
