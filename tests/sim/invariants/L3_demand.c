/* SPDX-License-Identifier: Apache-2.0 */
/* L3. Then each model that is called for a while is answered, unless minima take all memory. */
#include "../invariants.h"

struct demand {
    uint32_t calls;
    uint32_t answered;
};

static void
see(struct world *world, const struct sight *sight)
{
    if (sight->kind == SAW_ANSWER) {
        const struct client_call *call = &world->calls[sight->client_call];
        if (call->vmodel != VMODEL_NONE)
            return;
        struct demand *demand = of_model(world, &L3_demand, call->model);
        demand->calls++;
        demand->answered += call->end == MESH_END_OK && !call->lost;
        return;
    }
    for (uint32_t i = 0; i < world->options.models; i++) {
        struct demand *demand = of_model(world, &L3_demand, i);
        if (sight->kind == SAW_WARM && demand->calls > 0 && demand->answered == 0 &&
            world->options.bounds != BOUNDS_MANY)
            broken(world, &L3_demand, "m%u was called %u times, and never answered", i,
                   demand->calls);
        *demand = (struct demand){0};
    }
}

const struct invariant L3_demand = {
    .name = "L3 demand is met",
    .sees = SEES(ANSWER) | SEES(CONVERGED) | SEES(WARM),
    .model_bytes = sizeof(struct demand),
    .see = see,
};
