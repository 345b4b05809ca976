/* SPDX-License-Identifier: Apache-2.0 */
/* I15. What goes for another's sake was used before all that might have gone instead. */
#include "evictions.h"

/* Of those that may go and stay, the oldest one's last use. */
static int64_t
oldest_ms(const struct mesh *mesh)
{
    int64_t oldest_ms = INT64_MAX;
    for (uint32_t i = 0; i < mesh->entry_used; i++)
        if (heap_has(&mesh->pools[0].lru, i) && mesh->entries[i].used_ms < oldest_ms)
            oldest_ms = mesh->entries[i].used_ms;
    return oldest_ms;
}

static void
see(struct world *world, const struct sight *sight)
{
    const struct mesh *mesh = world->nodes[sight->node].mesh;
    for (uint32_t i = 0; i < sight->actions->count; i++) {
        const struct entry *entry = evicted_by(world, sight->node, &sight->actions->at[i]);
        if (entry != NULL && oldest_ms(mesh) < entry->used_ms)
            broken(world, &I15_oldest_first,
                   "n%u evicts %s, which was used %lld ms after another that may go", sight->node,
                   sight->actions->at[i].txn.writes[0].model.id,
                   (long long)(entry->used_ms - oldest_ms(mesh)));
    }
}

const struct invariant I15_oldest_first = {
    .name = "I15 oldest first", .sees = SEES(STEP), .see = see};
