/* SPDX-License-Identifier: Apache-2.0 */
/* I6. Each call of a client ends exactly once, and not with what only nodes say to each other. */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    if (sight->kind == SAW_CONVERGED) {
        for (uint32_t i = 0; i < world->call_count; i++)
            if (world->calls[i].open)
                broken(world, &I06_one_end, "call %u of m%u, from %lld ms on, never ended", i,
                       world->calls[i].model, (long long)world->calls[i].began_ms);
        return;
    }
    const struct client_call *call = &world->calls[sight->client_call];
    if (!call->open)
        broken(world, &I06_one_end, "call %u ends a second time", sight->client_call);
    if (!call->lost && (call->end == MESH_END_NOT_HERE || call->end == MESH_END_REFUSED))
        broken(world, &I06_one_end, "call %u ends with %d", sight->client_call, (int)call->end);
}

const struct invariant I06_one_end = {
    .name = "I6 one end", .sees = SEES(ANSWER) | SEES(CONVERGED), .see = see};
