/* SPDX-License-Identifier: Apache-2.0 */
/* S6. A copy takes as many calls at a time as its runtime has said, not more. */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    uint32_t most = runtime_concurrency(world, sight->model);
    uint32_t calls = world->nodes[sight->node].held[sight->model].in_flight;
    if (most != 0 && calls >= most)
        broken(world, &S6_permits, "n%u serves m%u to %u calls at a time, and it takes %u",
               sight->node, sight->model, calls + 1, most);
}

const struct invariant S6_permits = {.name = "S6 seats", .sees = SEES(SERVE), .see = see};
