/* SPDX-License-Identifier: Apache-2.0 */
/* L5. Then exactly one node leads. (I12 says that two leaders at once do no harm.) */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    (void)sight;
    uint32_t leaders = 0;
    for (uint32_t i = 0; i < world->options.nodes; i++)
        leaders += world->nodes[i].mesh != NULL && world->nodes[i].registry.leads;
    if (leaders != 1)
        broken(world, &L5_one_leader, "%u nodes lead", leaders);
}

const struct invariant L5_one_leader = {
    .name = "L5 one leader", .sees = SEES(CONVERGED), .see = see};
