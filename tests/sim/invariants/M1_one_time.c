/* SPDX-License-Identifier: Apache-2.0 */
/*
 * M1. After convergence all nodes have one mesh time, but for the steadiness of each (M7 of
 * mesh_clock.h); and where most clocks are about right, so is it.
 */
#include "../invariants.h"

enum { STEADY_MS = 2 * 250 + 100, ABOUT_MS = 30000 };

static int64_t
off_ms(struct world *world, uint32_t node)
{
    int64_t wall_ms = clock_wall_ms(world, node) - world->nodes[node].skew_ms;
    return clock_mesh_ms(world, node) - wall_ms;
}

static void
see(struct world *world, const struct sight *sight)
{
    (void)sight;
    uint32_t first = NODE_NONE;
    uint32_t alive = 0;
    uint32_t right = 0;
    for (uint32_t i = 0; i < world->options.nodes; i++) {
        if (world->nodes[i].mesh == NULL)
            continue;
        int64_t skew_ms = world->nodes[i].skew_ms;
        alive++;
        right += skew_ms <= ABOUT_MS && skew_ms >= -ABOUT_MS;
        if (first == NODE_NONE)
            first = i;
        int64_t apart_ms = off_ms(world, i) - off_ms(world, first);
        if (apart_ms > STEADY_MS || apart_ms < -STEADY_MS)
            broken(world, &M1_one_time, "n%u and n%u are %lld ms apart", first, i,
                   (long long)apart_ms);
    }
    bool knows = alive > 2 && alive <= MESH_CLOCKS_MAX && right > alive / 2;
    if (knows && (off_ms(world, first) > ABOUT_MS || off_ms(world, first) < -ABOUT_MS))
        broken(world, &M1_one_time, "%u of %u clocks are right, and mesh time is off by %lld ms",
               right, alive, (long long)off_ms(world, first));
}

const struct invariant M1_one_time = {
    .name = "M1 one mesh time",
    .sees = SEES(CONVERGED),
    .see = see,
};
