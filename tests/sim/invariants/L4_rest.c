/* SPDX-License-Identifier: Apache-2.0 */
/* L4. Then, where there is room for all, constant load loads and unloads nothing any more. */
#include "../invariants.h"

struct moves {
    uint32_t count;
};

static bool
has_room(const struct world *world)
{
    return models_asked(world) == world->options.models &&
           world->options.rate_for_more > 1000; /* else more copies are wanted */
}

static void
see(struct world *world, const struct sight *sight)
{
    struct moves *moves = of_model(world, &L4_rest, 0);
    if (sight->kind == SAW_WARM)
        moves->count = 0;
    else if (sight->kind != SAW_RESTED)
        moves->count++;
    else if (moves->count > 0 && has_room(world))
        broken(world, &L4_rest, "%u loads and unloads, though nothing changes", moves->count);
}

const struct invariant L4_rest = {
    .name = "L4 rest",
    .sees = SEES(WARM) | SEES(RESTED) | SEES(LOAD) | SEES(UNLOAD),
    .model_bytes = sizeof(struct moves),
    .see = see,
};
