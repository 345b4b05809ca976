/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I17. A model that fails is not claimed any more where three failures are fresh, and not loaded
 * again where it has just failed. A model registered anew is another model (T7), though its path
 * may be the same: its failures went with its record. Where clocks differ, freshness does, too; an
 * emptied etcd forgets failures.
 */
#include "../invariants.h"

/* Two answers of up to two seconds (M2) each misjudge a clock by half of that, and M7 keeps a base
 * that is a quarter of a second off. So mesh time moves by this much when a faster answer comes. */
enum { CLOCK_ERROR_MS = 2250 };

/* By the creation revisions of records. */
struct failed {
    uint64_t claimed;
    uint64_t loading;
    uint64_t failed;
    int64_t at_ms; /* 0: not */
};

static void
on_commit(struct world *world, const struct sight *sight, struct failed *failed)
{
    const struct mesh_model *before = sight->commit->before;
    const struct mesh_place *own = place_of(sight->commit->after, sight->node);
    if (!is_registered(own) || is_registered(place_of(before, sight->node)) ||
        own->kind == MESH_PLACE_LOADED)
        return;
    failed->claimed = sight->commit->after->create_revision;
    uint32_t fresh = 0;
    int64_t wall_ms = clock_mesh_ms(world, sight->node);
    for (uint32_t i = 0; i < before->place_count; i++) {
        const struct mesh_place *place = &before->places[i];
        fresh += place->kind == MESH_PLACE_FAILED && place->since_ms > wall_ms - FRESH_MS / 2 &&
                 place->since_ms <= wall_ms;
    }
    if (fresh >= MESH_FAILURES_MAX)
        broken(world, &I17_failures, "n%u claims m%u, which has just failed %u times", sight->node,
               sight->model, fresh);
}

static void
see(struct world *world, const struct sight *sight)
{
    if (world->options.skewed || world->options.wrong_clocks > 0 ||
        world->options.faults.clocks > 0 || world->emptied > 0)
        return;
    struct failed *failed = of_pair(world, &I17_failures, sight->node, sight->model);
    switch (sight->kind) {
    case SAW_COMMIT: on_commit(world, sight, failed); break;
    case SAW_LOADED:
        if (!sight->ok) {
            failed->failed = failed->loading;
            failed->at_ms = world->now_ms;
        }
        break;
    case SAW_DEATH:
        for (uint32_t i = 0; i < world->options.models; i++)
            *(struct failed *)of_pair(world, &I17_failures, sight->node, i) = (struct failed){0};
        break;
    default:
        failed->loading = failed->claimed;
        if (failed->at_ms != 0 && failed->failed == failed->claimed &&
            world->now_ms - failed->at_ms < FRESH_MS - CLOCK_ERROR_MS)
            broken(world, &I17_failures, "n%u loads m%u again, %lld ms after it failed",
                   sight->node, sight->model, (long long)(world->now_ms - failed->at_ms));
        break;
    }
}

const struct invariant I17_failures = {
    .name = "I17 failures are contained",
    .sees = SEES(COMMIT) | SEES(LOADED) | SEES(DEATH) | SEES(LOAD),
    .pair_bytes = sizeof(struct failed),
    .see = see,
};
