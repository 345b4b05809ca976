/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I7. While a copy is loaded, registered, alive and within reach for long before a call began and
 * until it ended, the call does not fail for want of one. And in a world in which nothing but
 * etcd's answers and drains disturb, and which has room for all, no call fails at all.
 */
#include "../invariants.h"

enum { SEEN_MS = 12000, QUIET_MS = 40000 };

struct steady {
    uint64_t version; /* 0: it is not */
    int64_t since_ms;
};

struct peace {
    int64_t broken_ms;
};

static void
disturb(struct world *world, uint32_t node)
{
    struct peace *peace = of_node(world, &I07_no_call_lost, node);
    peace->broken_ms = world->now_ms;
}

static void
on_commit(struct world *world, const struct sight *sight, struct steady *steady)
{
    const struct mesh_place *own = place_of(sight->commit->after, sight->node);
    const struct held *held = &world->nodes[sight->node].held[sight->model];
    bool good = own != NULL && own->kind == MESH_PLACE_LOADED && held->memory == MEMORY_LOADED &&
                held->version == version_of(sight->commit->after);
    if (!good)
        *steady = (struct steady){0};
    else if (steady->version != held->version)
        *steady = (struct steady){held->version, world->now_ms};
}

static bool
had_peace(struct world *world, uint32_t node, int64_t began_ms)
{
    const struct peace *peace = of_node(world, &I07_no_call_lost, node);
    return world->nodes[node].mesh != NULL &&
           (peace->broken_ms == 0 || peace->broken_ms < began_ms - QUIET_MS);
}

static bool
is_calm(const struct world *world)
{
    const struct options *options = &world->options;
    const struct faults *faults = &options->faults;
    uint32_t harm = faults->load_fails + faults->kills + faults->leases + faults->links +
                    faults->replacements + faults->pauses + faults->crashes + faults->partitions +
                    faults->swizzles + faults->outages + faults->elections + faults->keeps +
                    faults->slow + faults->lost + faults->emptyings + faults->orders +
                    faults->hangs + faults->rests + options->concurrency + options->poisoned +
                    options->lost_for_good; /* of rests: R14 */
    bool some_stay = faults->drains == 0 || options->nodes >= 4;
    return harm == 0 && some_stay && !options->labelled &&
           options->capacity_bytes >= options->model_bytes * 400;
}

static void
on_answer(struct world *world, const struct client_call *call)
{
    if (call->lost || call->end == MESH_END_OK || call->end == MESH_END_OVERLOADED ||
        call->vmodel != VMODEL_NONE)
        return;
    if (call->end != MESH_END_DEADLINE && call->began_ms > SEEN_MS && is_calm(world))
        broken(world, &I07_no_call_lost, "n%u ends a call of m%u with %d in a calm world",
               call->entry, call->model, (int)call->end);
    bool short_one = call->deadline_ms - call->began_ms < CALL_MS_MAX;
    if ((call->end == MESH_END_DEADLINE && short_one) ||
        !had_peace(world, call->entry, call->began_ms) ||
        world->nodes[call->entry].began_ms > world->now_ms - QUIET_MS)
        return;
    struct mesh_place places[64];
    struct mesh_model record;
    if (!record_now(world, call->model, places, &record))
        return;
    for (uint32_t n = 0; n < world->options.nodes; n++) {
        const struct steady *steady = of_pair(world, &I07_no_call_lost, n, call->model);
        if (steady->version == version_of(&record) && steady->since_ms < call->began_ms - SEEN_MS &&
            had_peace(world, n, call->began_ms))
            broken(world, &I07_no_call_lost, "n%u ends a call of m%u with %d, while n%u has it",
                   call->entry, call->model, (int)call->end, n);
    }
}

static void
see(struct world *world, const struct sight *sight)
{
    switch (sight->kind) {
    case SAW_ANSWER: on_answer(world, &world->calls[sight->client_call]); break;
    case SAW_COMMIT:
        on_commit(world, sight, of_pair(world, &I07_no_call_lost, sight->node, sight->model));
        break;
    case SAW_LOST:
    case SAW_UNLOAD:
        *(struct steady *)of_pair(world, &I07_no_call_lost, sight->node, sight->model) =
            (struct steady){0};
        break;
    case SAW_DEATH:
        for (uint32_t i = 0; i < world->options.models; i++)
            *(struct steady *)of_pair(world, &I07_no_call_lost, sight->node, i) =
                (struct steady){0};
        disturb(world, sight->node);
        break;
    default: /* a drain, trouble */
        for (uint32_t i = 0; i < world->options.nodes; i++)
            if (i == sight->node || sight->node == NODE_NONE)
                disturb(world, i);
        break;
    }
}

const struct invariant I07_no_call_lost = {
    .name = "I7 no call lost while a copy lives",
    .sees = SEES(ANSWER) | SEES(COMMIT) | SEES(LOST) | SEES(UNLOAD) | SEES(DEATH) | SEES(DRAIN) |
            SEES(TROUBLE),
    .pair_bytes = sizeof(struct steady),
    .node_bytes = sizeof(struct peace),
    .see = see,
};
