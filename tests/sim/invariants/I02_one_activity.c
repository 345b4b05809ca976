/* SPDX-License-Identifier: Apache-2.0 */
/* I2. Nothing is loaded that is there in any form; nothing is unloaded that is not loaded. */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    enum memory memory = world->nodes[sight->node].held[sight->model].memory;
    enum memory wanted = sight->kind == SAW_LOAD ? MEMORY_NONE : MEMORY_LOADED;
    if (memory != wanted)
        broken(world, &I02_one_activity, "n%u %s m%u, which is in state %d", sight->node,
               sight->kind == SAW_LOAD ? "loads" : "unloads", sight->model, (int)memory);
}

const struct invariant I02_one_activity = {
    .name = "I2 one activity", .sees = SEES(LOAD) | SEES(UNLOAD), .see = see};
