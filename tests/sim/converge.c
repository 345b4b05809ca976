/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second phase: faults end, some nodes stay away for good, and what must hold then is looked
 * at: first with nobody calling, then each model is asked for until it answers, then under
 * constant load.
 */
#include "invariants.h"

enum {
    SETTLE_MS = 65000, /* a drain's grace, or a lease, a node's absence and a reaper's round */
    BACK_MS =
        75000, /* after this time a node that has not come back to an emptied etcd is not missed */
    ROUND_MS = 5000, /* what is too young to go grows up in the time of all of them */
    ROUNDS_MAX = 40,
    ASKED_MAX = 12,
    REST_MS = 15000,
    PAUSE_MS = 1500,
    PAUSES_MAX = 60,
    TRANSITION_PAUSES_MAX = 200,
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

/* So many that one node has room for twice as much: the rest of it may be full of what is too young
 * to go. */
uint32_t
models_asked(const struct world *world)
{
    uint64_t sum = 0;
    uint32_t count = 0;
    while (count < world->options.models) {
        sum += runtime_bytes(world, count) * 3 / 2; /* some are larger than said */
        if (sum * 2 > world->options.capacity_bytes - world->options.capacity_bytes / 10)
            break;
        count++;
    }
    return count < ASKED_MAX || world->options.models <= 40 ? count : ASKED_MAX;
}

/* The models of one round are called at once; failed calls are repeated. */
static uint32_t
call_those_left(struct world *world, const struct client_call *calls, uint32_t *last_call,
                bool first)
{
    uint32_t left = 0;
    for (uint32_t m = 0; m < models_asked(world); m++) {
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

static bool
is_busy(const struct world *world)
{
    for (uint32_t n = 0; n < world->options.nodes; n++)
        for (uint32_t m = 0; world->nodes[n].mesh != NULL && m < world->options.models; m++) {
            enum mesh_state state = mesh_state(world->nodes[n].mesh, world->model_names[m]);
            if (state != MESH_STATE_NONE && state != MESH_STATE_LOADED)
                return true;
        }
    return false;
}

/* Until nothing is loaded for a moment: the leader loads in advance whenever it likes. All that
 * etcd had at that moment's beginning has been seen by everybody at its end: its revision. So
 * nothing was under way at its beginning, either: what ended then has been written since. */
static uint64_t
run_to_rest(struct world *world)
{
    uint64_t loads;
    int64_t revision;
    uint32_t pauses = 0;
    bool was_busy;
    do {
        was_busy = is_busy(world);
        revision = fake_etcd_revision(world->etcd);
        loads = world->loads;
        world_run(world, PAUSE_MS);
    } while ((was_busy || is_busy(world) || world->loads != loads) && ++pauses < PAUSES_MAX);
    return (uint64_t)revision;
}

/* A target may have to wait until what is young on full nodes may go. */
static bool
is_any_moving(struct world *world)
{
    for (uint32_t v = 0; v < world->options.vmodels; v++) {
        struct mesh_vmodel vmodel;
        if (vmodel_now(world, v, &vmodel) && model_differs(vmodel.active, vmodel.target))
            return true;
    }
    return false;
}

void
world_converge(struct world *world)
{
    world->quiet = true;
    chaos_end(world);
    world_run(world, world->emptied > 0 ? SETTLE_MS + BACK_MS : SETTLE_MS);
    for (uint32_t i = 0; i < world->options.models; i++)
        registry_register(world, i); /* whose order to unregister it came last of all */
    uint64_t revision = run_to_rest(world);
    observe(world, (struct sight){.kind = SAW_CONVERGED, .number = revision});
    warm_up(world);
    world->quiet = false;
    observe(world, (struct sight){.kind = SAW_WARM});
    world_run(world, REST_MS);
    observe(world, (struct sight){.kind = SAW_RESTED});
    for (uint32_t i = 0; i < TRANSITION_PAUSES_MAX && is_any_moving(world); i++)
        world_run(world, PAUSE_MS);
    observe(world, (struct sight){.kind = SAW_END});
}
