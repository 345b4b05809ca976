/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I1. The models that a runtime holds, loads, or has not yet freed never exceed its capacity when a
 * load begins. A model that turns out larger overshoots by itself alone, and evictable models go in
 * the same step; so it is when memory is not given back. An unmeasured model counts as predicted
 * (K7).
 */
#include "../invariants.h"
#include "mesh/core/state.h"

/* The model just loaded stays at any size. */
static bool
could_evict(const struct pool *pool, const struct mesh_event *event)
{
    uint32_t loaded = (uint32_t)event->loaded.ticket;
    uint32_t itself = heap_has(&pool->lru, loaded) + heap_has(&pool->young, loaded);
    return pool->lru.count + pool->young.count > itself;
}

/* NULL: it is not known any more to which of several the entry belonged. */
static const struct pool *
pool_of_ticket(const struct mesh *mesh, uint64_t ticket)
{
    const struct core_entry *entry = &mesh->entries.at[(uint32_t)ticket];
    bool is_gone = entry->state == MESH_STATE_NONE;
    return mesh->pools.count > 1 && is_gone ? NULL : &mesh->pools.at[entry->pool];
}

static void
see(struct world *world, const struct sight *sight)
{
    const struct node *node = &world->nodes[sight->node];
    if (sight->kind == SAW_STEP) {
        const struct mesh *mesh = node->mesh;
        enum mesh_event_kind kind = sight->event->kind;
        if (kind != MESH_LOAD_ENDED && kind != MESH_SIZE_MEASURED && kind != MESH_UNLOAD_ENDED)
            return;
        const struct pool *pool = pool_of_ticket(mesh, sight->event->loaded.ticket);
        if (pool != NULL && could_evict(pool, sight->event) &&
            ledger_excess_admitted(&pool->ledger) > 0)
            broken(world, &I01_capacity, "n%u has %llu units too many, and evicts nothing",
                   sight->node, (unsigned long long)ledger_excess_admitted(&pool->ledger));
        return;
    }
    uint32_t pool = runtime_pool(world, sight->node, sight->model);
    uint64_t used = node->kept_bytes[pool] + runtime_reserved(world, sight->node, sight->model);
    for (uint32_t i = 0; i < world->options.models; i++)
        used += node->held[i].memory != MEMORY_NONE && runtime_pool(world, sight->node, i) == pool
                    ? node->held[i].bytes
                    : 0;
    if (used > world->options.capacity_bytes)
        broken(world, &I01_capacity, "n%u loads m%u: %llu bytes of %llu", sight->node, sight->model,
               (unsigned long long)used, (unsigned long long)world->options.capacity_bytes);
}

const struct invariant I01_capacity = {
    .name = "I1 capacity", .sees = SEES(LOAD) | SEES(STEP), .see = see};
