/* SPDX-License-Identifier: Apache-2.0 */
/* L1. When faults have ended for a while, each node's view is what etcd has: models and nodes. */
#include "mesh/core/state.h"
#include "mirror.h"

static void
see(struct world *world, const struct sight *sight)
{
    uint32_t keys = 0;
    struct mesh_instance key;
    for (uint32_t n = 0; n < world->options.nodes; n++)
        keys += key_now(world, n, &key);
    for (uint32_t n = 0; n < world->options.nodes; n++) {
        const struct node *node = &world->nodes[n];
        if (node->mesh == NULL)
            continue;
        if (!node->mesh->mirror.whole || node->registry.session == 0 ||
            node->mesh->tables.live != keys)
            broken(world, &L1_convergence, "n%u sees %u nodes of %u, its session is %llu", n,
                   node->mesh->tables.live, keys, (unsigned long long)node->registry.session);
        for (uint32_t m = 0; m < world->options.models; m++) {
            const char *wrong = mirror_judge(world, n, m, sight->number);
            if (wrong != NULL)
                broken(world, &L1_convergence, "on n%u m%u %s", n, m, wrong);
        }
    }
}

const struct invariant L1_convergence = {
    .name = "L1 convergence", .sees = SEES(CONVERGED), .see = see};
