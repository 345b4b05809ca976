/* SPDX-License-Identifier: Apache-2.0 */
/*
 * B3. While all nodes see each other, nobody claims a copy beyond the maximum that stays; and
 * when faults have ended for a while, there is none.
 */
#include "../invariants.h"
#include "bounds.h"

static void
judge(struct world *world, const struct mesh_model *record, uint32_t before)
{
    uint32_t most = record->bounds.copies_max;
    uint32_t copies = copies_that_stay(world, record, MESH_PLACE_LOADING);
    if (most != 0 && copies > most && copies > before)
        broken(world, &B3_maximum, "%s has %u copies that stay, of %u at most", record->id, copies,
               most);
}

static void
see(struct world *world, const struct sight *sight)
{
    struct mesh_place places[64];
    struct mesh_model record;
    int64_t *disturbed_ms = of_node(world, &B3_maximum, 0);
    switch (sight->kind) {
    case SAW_COMMIT:
        if (world->now_ms - *disturbed_ms > CALM_MS)
            judge(world, sight->commit->after,
                  copies_that_stay(world, sight->commit->before, MESH_PLACE_LOADING));
        break;
    case SAW_CONVERGED:
    case SAW_RESTED:
        for (uint32_t m = 0; m < world->options.models; m++)
            if (record_now(world, m, places, &record))
                judge(world, &record, 0);
        break;
    default: *disturbed_ms = world->now_ms; break;
    }
}

const struct invariant B3_maximum = {
    .name = "B3 maximum",
    .sees = SEES(COMMIT) | SEES(CONVERGED) | SEES(RESTED) | SEES_DISTURBANCE,
    .node_bytes = sizeof(int64_t),
    .see = see,
};
