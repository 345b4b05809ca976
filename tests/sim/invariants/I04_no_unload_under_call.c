/* SPDX-License-Identifier: Apache-2.0 */
/* I4. Nothing is unloaded while it serves a call. */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    uint32_t calls = world->nodes[sight->node].held[sight->model].in_flight;
    if (calls > 0)
        broken(world, &I04_no_unload_under_call, "n%u unloads m%u under %u calls", sight->node,
               sight->model, calls);
}

const struct invariant I04_no_unload_under_call = {
    .name = "I4 no unload under a call", .sees = SEES(UNLOAD), .see = see};
