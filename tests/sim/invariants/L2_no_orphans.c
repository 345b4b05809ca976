/* SPDX-License-Identifier: Apache-2.0 */
/*
 * L2. Then records name the living alone, and say of them what their runtimes hold, neither less
 * nor more; and each node's key has a lease.
 */

#include "../invariants.h"

static void
look_at(struct world *world, uint32_t node, uint32_t model, const struct mesh_model *record)
{
    const struct mesh_place *place = place_of(record, node);
    const struct held *held = &world->nodes[node].held[model];
    bool says = is_registered(place);
    if (says && (world->nodes[node].mesh == NULL || !place_is_alive(world, place)))
        broken(world, &L2_no_orphans, "m%u is said to be on n%u, which is not there", model, node);
    if (says != (held->memory != MEMORY_NONE))
        broken(world, &L2_no_orphans, "m%u is %s to be on n%u, and is in state %d", model,
               says ? "said" : "not said", node, (int)held->memory);
    if (says && (place->kind != MESH_PLACE_LOADED || held->memory != MEMORY_LOADED ||
                 held->version != version_of(record)))
        broken(world, &L2_no_orphans, "m%u is said to be in state %d on n%u, and is in state %d",
               model, (int)place->kind, node, (int)held->memory);
    if (held->in_flight > 0)
        broken(world, &L2_no_orphans, "a call of m%u on n%u does not end", model, node);
}

static void
see(struct world *world, const struct sight *sight)
{
    (void)sight;
    for (uint32_t m = 0; m < world->options.models; m++) {
        struct mesh_place places[64];
        struct mesh_model record = {0};
        (void)record_now(world, m, places, &record);
        for (uint32_t n = 0; n < world->options.nodes; n++)
            look_at(world, n, m, &record);
    }
    size_t count;
    const struct etcd_kv *kvs = fake_etcd_all(world->etcd, &count);
    for (size_t i = 0; i < count; i++)
        if (*(const char *)kvs[i].key.data == 'i' && kvs[i].lease_id == 0)
            broken(world, &L2_no_orphans, "a node's key has no lease");
}

const struct invariant L2_no_orphans = {
    .name = "L2 no orphans", .sees = SEES(CONVERGED), .see = see};
