/* SPDX-License-Identifier: Apache-2.0 */
/*
 * B4. When faults have ended for a while, a model has as many loaded copies as it shall have at
 * least, or no further node has room beside what is needed there.
 */
#include "../invariants.h"
#include "bounds.h"
#include "mesh/core/state.h"

/* The node lacks it, and would have to take it. */
static bool
has_room(struct world *world, uint32_t number, uint32_t model, const struct mesh_model *record)
{
    const struct node *node = &world->nodes[number];
    if (node->mesh == NULL || node->draining || is_registered(place_of(record, number)))
        return false;
    const struct pool *pool = &node->mesh->pools.at[runtime_pool(world, number, model)];
    uint64_t units = runtime_bytes(world, model) * 3 / 2 / LEDGER_UNIT_BYTES + 1; /* or less */
    uint64_t full = pool->default_units + pool->ledger.capacity / 20;             /* P3, or less */
    return pool->held_units + units + full <= ledger_usable(&pool->ledger);
}

static void
judge(struct world *world, uint32_t model, const struct mesh_model *record)
{
    uint32_t least = copies_needed(world, record);
    uint32_t copies = copies_that_stay(world, record, MESH_PLACE_LOADED);
    uint32_t failures = 0;
    for (uint32_t i = 0; i < record->place_count; i++)
        failures += record->places[i].kind == MESH_PLACE_FAILED;
    for (uint32_t n = 0; n < world->options.nodes && copies < least && failures == 0; n++)
        if (has_room(world, n, model, record))
            broken(world, &B4_minimum, "m%u has %u copies of %u at least, and n%u has room", model,
                   copies, least, n);
}

static void
see(struct world *world, const struct sight *sight)
{
    (void)sight;
    for (uint32_t m = 0; m < world->options.models; m++) {
        struct mesh_place places[64];
        struct mesh_model record;
        if (record_now(world, m, places, &record))
            judge(world, m, &record);
    }
}

const struct invariant B4_minimum = {
    .name = "B4 minimum", .sees = SEES(CONVERGED) | SEES(RESTED), .see = see};
