/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I8. At most two hops at a time; nobody to itself; nobody is asked twice to load one model for one
 * call. Two calls may ask again: one that has stood in the line for room since (R14), not sooner
 * than half a second later; and a vmodel's, that has come to another model since, or has waited for
 * the mirror to show one (V8). Where a call stands, its entry's core is asked.
 */
#include "../invariants.h"
#include "mesh/core/state.h"

enum { HOPS_MAX = 2, AGAIN_MS = 500, NODES_FIRST = 4 };

/* Where the call has stood since; the last of these that it did. */
enum stood { NOWHERE, FOR_ROOM, FOR_THE_MIRROR };

struct ask {
    uint32_t node;
    enum stood stood;
    int64_t at_ms;
};

/* Of one call, as long as it is for one model: the nodes that it has asked to load it. */
struct asks {
    struct ask *at;
    uint32_t count;
    uint32_t capacity;
    uint32_t model;
};

static void
stands(struct world *world, uint32_t node, uint32_t number, enum stood where)
{
    const struct slot *slot = &world->nodes[node].slots[number];
    struct asks *asks = world->calls[slot->client_call].asks;
    if (slot->origin != ORIGIN_CLIENT || asks == NULL)
        return;
    for (uint32_t i = 0; i < asks->count; i++)
        if (asks->at[i].stood < where)
            asks->at[i].stood = where;
}

static void
on_step(struct world *world, uint32_t node)
{
    const struct mesh *mesh = world->nodes[node].mesh;
    for (uint32_t i = mesh->room_queue.first; i != CALL_NONE; i = mesh->calls.at[i].next)
        stands(world, node, i, FOR_ROOM);
    for (uint32_t i = mesh->calls.parked; i != CALL_NONE; i = mesh->calls.at[i].next)
        stands(world, node, i, FOR_THE_MIRROR);
}

static struct asks *
asks_of(struct world *world, const struct sight *sight)
{
    struct client_call *call = &world->calls[sight->client_call];
    if (call->asks == NULL)
        call->asks = arena_take(&world->arena, sizeof(*call->asks));
    if (call->asks->model != sight->model)
        *call->asks = (struct asks){.model = sight->model};
    return call->asks;
}

static struct ask *
ask_of(struct world *world, struct asks *asks, uint32_t node)
{
    for (uint32_t i = 0; i < asks->count; i++)
        if (asks->at[i].node == node)
            return &asks->at[i];
    if (asks->count == asks->capacity) {
        struct ask *former = asks->at;
        asks->capacity = asks->capacity * 2 + NODES_FIRST;
        asks->at = arena_take(&world->arena, asks->capacity * sizeof(*asks->at));
        for (uint32_t i = 0; i < asks->count; i++)
            asks->at[i] = former[i];
    }
    asks->at[asks->count] = (struct ask){.node = node, .at_ms = INT64_MIN};
    return &asks->at[asks->count++];
}

static bool
may_ask(const struct world *world, const struct ask *ask)
{
    return ask->at_ms == INT64_MIN || ask->stood == FOR_THE_MIRROR ||
           (ask->stood == FOR_ROOM && world->now_ms - ask->at_ms >= AGAIN_MS);
}

static void
see(struct world *world, const struct sight *sight)
{
    if (sight->kind == SAW_STEP) {
        on_step(world, sight->node);
        return;
    }
    if (sight->other == sight->node || sight->number > HOPS_MAX)
        broken(world, &I08_forwarding_ends, "n%u sends m%u to n%u as hop %llu", sight->node,
               sight->model, sight->other, (unsigned long long)sight->number);
    struct asks *asks = asks_of(world, sight); /* those for a former model end with any hop */
    if (sight->hop != MESH_HOP_LOAD)
        return;
    struct ask *ask = ask_of(world, asks, sight->other);
    if (sight->number > 1 || !may_ask(world, ask))
        broken(world, &I08_forwarding_ends, "n%u is asked again to load m%u for call %u",
               sight->other, sight->model, sight->client_call);
    *ask = (struct ask){.node = sight->other, .at_ms = world->now_ms};
}

const struct invariant I08_forwarding_ends = {
    .name = "I8 forwarding ends",
    .sees = SEES(FORWARD) | SEES(STEP),
    .see = see,
};
