/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second phase: faults end, some nodes stay away for good, and what must hold then is looked
 * at: first with nobody calling, then each model is asked for until it answers, then under
 * constant load.
 */
#include "invariants.h"

enum {
    SETTLE_MS = 65000, /* a drain's grace, or a lease, a node's absence and a reaper's round */
    ROUND_MS = 3000,
    ROUNDS_MAX = 40,
    ASKED_MAX = 12,
    REST_MS = 15000,
    DEADLINE_MS = 20000,
};

static uint32_t
any_node(struct world *world)
{
    uint32_t node;
    do
        node = draw(world, STREAM_CHECKS, world->options.nodes);
    while (world->nodes[node].mesh == NULL);
    return node;
}

static bool
is_asked_for(const struct world *world, uint32_t model)
{
    uint64_t each = world->options.model_bytes * 4;
    bool all_fit = each * world->options.models <= world->options.capacity_bytes;
    return all_fit || world->options.models <= ASKED_MAX ||
           model % (world->options.models / ASKED_MAX) == 0;
}

/* Those of one round are called at once; who fails is called again. */
static uint32_t
call_those_left(struct world *world, const struct client_call *calls, uint32_t *last_call,
                bool first)
{
    uint32_t left = 0;
    for (uint32_t m = 0; m < world->options.models; m++) {
        if (!is_asked_for(world, m))
            continue;
        const struct client_call *last = first ? NULL : &calls[last_call[m]];
        if (last != NULL && (last->open || last->end == MESH_END_OK)) {
            left += last->open;
            continue;
        }
        left++;
        last_call[m] = call_begin(world, any_node(world), m, world->now_ms + DEADLINE_MS);
        calls = world->calls;
        world_run(world, 50);
    }
    return left;
}

static void
warm_up(struct world *world)
{
    uint32_t *last_call = arena_take(&world->arena, world->options.models * sizeof(*last_call));
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        if (call_those_left(world, world->calls, last_call, round == 0) == 0)
            break;
        world_run(world, ROUND_MS);
    }
    world_run(world, DEADLINE_MS);
}

void
world_converge(struct world *world)
{
    world->quiet = true;
    chaos_end(world);
    world_run(world, SETTLE_MS);
    observe(world, (struct sight){.kind = SAW_CONVERGED});
    warm_up(world);
    world->quiet = false;
    observe(world, (struct sight){.kind = SAW_WARM});
    world_run(world, REST_MS);
    observe(world, (struct sight){.kind = SAW_RESTED});
}
