/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I3. Each load has a claim of its own: a transaction of this node that put its place into the
 * record of this very model. And a claim is made only where copies are missing: seen from outside
 * that is certain in a calm world alone, where nobody can have an old view of the living nodes, and
 * no copy belongs to a runtime that rests.
 */
#include <string.h>

#include "../invariants.h"

enum { ALL_SEEN_MS = 12000 }; /* by then all nodes have seen each other */

struct claim {
    uint64_t version;
    int64_t since_ms; /* of the place; 0: none */
    int64_t spent_ms; /* of the one that was loaded for */
};

static uint32_t
copies_but(struct world *world, const struct mesh_model *record, uint32_t node)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < record->place_count; i++)
        copies += number_of(record->places[i].instance) != node &&
                  is_registered(&record->places[i]) && place_is_alive(world, &record->places[i]);
    return copies;
}

static bool
is_calm(const struct world *world)
{
    const struct faults *faults = &world->options.faults;
    const uint32_t harm[] = {
        faults->slow,    faults->lost,   faults->load_fails, faults->load_slow, faults->size_lies,
        faults->forgets, faults->kills,  faults->pauses,     faults->crashes,   faults->leases,
        faults->drains,  faults->links,  faults->partitions, faults->swizzles,  faults->outages,
        faults->keeps,   faults->clocks, faults->elections,  faults->hangs,     faults->rests};
    uint32_t sum = world->options.lost_for_good + world->options.poisoned + faults->emptyings +
                   faults->orders + faults->constraints + world->options.concurrency;
    for (uint32_t i = 0; i < sizeof(harm) / sizeof(harm[0]); i++)
        sum += harm[i];
    return sum == 0 && world->now_ms > ALL_SEEN_MS;
}

static void
on_commit(struct world *world, const struct sight *sight, struct claim *claim)
{
    const struct mesh_model *before = sight->commit->before;
    const struct mesh_place *own = place_of(sight->commit->after, sight->node);
    bool claims = is_registered(own) && !is_registered(place_of(before, sight->node));
    claim->version = version_of(before);
    claim->since_ms = is_registered(own) ? own->since_ms : 0;
    if (!claims || world->options.rate_for_more < 1000)
        return;
    uint32_t others = copies_but(world, before, sight->node);
    /* One that was given up for want of room may be on its way out of the record. */
    uint32_t most = world->options.capacity_bytes < world->options.model_bytes * 200;
    if (world->options.bounds == BOUNDS_MANY) /* each load may turn out to have no room */
        most = world->options.nodes;
    if (is_calm(world) && others > most && others >= sight->commit->after->bounds.copies_min)
        broken(world, &I03_claims, "n%u claims m%u, which has %u copies", sight->node, sight->model,
               others);
}

/* A lost record is written anew, with all that was known of it (W1). */
static void
on_creation(struct world *world, const struct sight *sight)
{
    const struct mesh_model *after = sight->commit->after;
    for (uint32_t i = 0; i < after->place_count; i++)
        if (is_registered(&after->places[i])) {
            uint32_t node = number_of(after->places[i].instance);
            struct claim *claim = of_pair(world, &I03_claims, node, sight->model);
            claim->version = version_of(after);
            claim->since_ms = after->places[i].since_ms;
        }
}

static void
see(struct world *world, const struct sight *sight)
{
    if (sight->kind == SAW_BIRTH) {
        for (uint32_t i = 0; i < world->options.models; i++)
            memset(of_pair(world, &I03_claims, sight->node, i), 0, sizeof(struct claim));
        return;
    }
    struct claim *claim = of_pair(world, &I03_claims, sight->node, sight->model);
    if (sight->kind == SAW_COMMIT && sight->commit->creates) {
        on_creation(world, sight);
        return;
    }
    if (sight->kind == SAW_COMMIT) {
        if (sight->commit->life == world->nodes[sight->node].life)
            on_commit(world, sight, claim);
        return;
    }
    if (claim->since_ms == 0 || claim->since_ms == claim->spent_ms ||
        claim->version != sight->number)
        broken(world, &I03_claims, "n%u loads m%u v%llu without a claim of its own", sight->node,
               sight->model, (unsigned long long)sight->number);
    claim->spent_ms = claim->since_ms;
}

const struct invariant I03_claims = {
    .name = "I3 claims",
    .sees = SEES(BIRTH) | SEES(COMMIT) | SEES(LOAD),
    .pair_bytes = sizeof(struct claim),
    .see = see,
};
