/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I15. A model evicted for another was used before all other candidates. An entry CLAIMING before
 * the step could not be chosen (E3), though it may go now; nor does what somebody asked for make
 * room for itself when it turns out larger than predicted (K4).
 */
#include "evictions.h"

struct before {
    uint8_t state; /* after the last step */
};

static struct before *
before_of(struct world *world, uint32_t node, const struct core_entry *entry)
{
    return of_pair(world, &I15_oldest_first, node, entry_model(world->nodes[node].mesh, entry));
}

/* It is the one whose size was reported in this step. */
static bool
is_measured(const struct mesh *mesh, const struct core_entry *entry, const struct mesh_event *event)
{
    return event->kind == MESH_SIZE_MEASURED &&
           entry_number(mesh, entry) == (uint32_t)event->loaded.ticket;
}

static bool
could_go(struct world *world, const struct sight *sight, const struct core_entry *entry)
{
    uint8_t before = before_of(world, sight->node, entry)->state;
    if (is_measured(world->nodes[sight->node].mesh, entry, sight->event))
        before = MESH_STATE_LOADING;
    return before != MESH_STATE_CLAIMING &&
           (before != MESH_STATE_LOADING || entry->class == MESH_CLASS_ADVANCE);
}

/* Of those that could go and stay, the oldest one's last use. */
static int64_t
oldest_ms(struct world *world, const struct sight *sight, uint32_t pool)
{
    const struct mesh *mesh = world->nodes[sight->node].mesh;
    int64_t oldest_ms = INT64_MAX;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        const struct core_entry *entry = &mesh->entries.at[i];
        if (heap_has(&mesh->pools.at[pool].lru, i) && entry->used_ms < oldest_ms &&
            could_go(world, sight, entry))
            oldest_ms = entry->used_ms;
    }
    return oldest_ms;
}

static void
see(struct world *world, const struct sight *sight)
{
    const struct mesh *mesh = world->nodes[sight->node].mesh;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        const struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_WITHDRAWING &&
            before_of(world, sight->node, entry)->state == MESH_STATE_LOADED &&
            evicted_for_room(world, sight->node, entry) &&
            oldest_ms(world, sight, entry->pool) < entry->used_ms)
            broken(world, &I15_oldest_first,
                   "n%u evicts m%u, which was used %lld ms after another that may go", sight->node,
                   entry_model(mesh, entry),
                   (long long)(entry->used_ms - oldest_ms(world, sight, entry->pool)));
    }
    for (uint32_t i = 0; i < mesh->entries.used; i++)
        if (mesh->entries.at[i].state != MESH_STATE_NONE)
            before_of(world, sight->node, &mesh->entries.at[i])->state = mesh->entries.at[i].state;
}

const struct invariant I15_oldest_first = {.name = "I15 oldest first",
                                           .sees = SEES(STEP),
                                           .pair_bytes = sizeof(struct before),
                                           .see = see};
