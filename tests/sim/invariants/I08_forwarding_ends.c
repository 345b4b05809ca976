/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I8. At most two hops at a time; nobody to itself; nobody is asked twice to load for one call, but
 * of one that waits for room (R14), and then not soon again.
 */
#include "../invariants.h"

enum { HOPS_MAX = 2, AGAIN_MS = 500 };

struct asked {
    uint32_t call; /* + 1: the last one that it was asked to load for */
    int64_t at_ms;
};

static void
see(struct world *world, const struct sight *sight)
{
    struct asked *asked = of_pair(world, &I08_forwarding_ends, sight->other, sight->model);
    if (sight->other == sight->node || sight->number > HOPS_MAX)
        broken(world, &I08_forwarding_ends, "n%u sends m%u to n%u as hop %llu", sight->node,
               sight->model, sight->other, (unsigned long long)sight->number);
    if (sight->hop != MESH_HOP_LOAD || world->calls[sight->client_call].vmodel != VMODEL_NONE)
        return; /* a vmodel's call may come to one model after the other */
    if (sight->number > 1 ||
        (asked->call == sight->client_call + 1 && world->now_ms - asked->at_ms < AGAIN_MS))
        broken(world, &I08_forwarding_ends, "n%u is asked again to load m%u for call %u",
               sight->other, sight->model, sight->client_call);
    *asked = (struct asked){sight->client_call + 1, world->now_ms};
}

const struct invariant I08_forwarding_ends = {
    .name = "I8 forwarding ends",
    .sees = SEES(FORWARD),
    .pair_bytes = sizeof(struct asked),
    .see = see,
};
