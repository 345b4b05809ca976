/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I16. A model that was just loaded and called is not evicted for another: it stays for as long as
 * the node's last loads took on average, less the second that a tick may be late. It may go for a
 * model that moves here, or if calls have waited for room since before its own load was begun.
 * Where models turn out larger than said, or memory is not given back, it may have to go.
 */
#include "evictions.h"

enum { TICK_MS = 1000 };

struct loaded {
    int64_t began_ms; /* to load */
    int64_t at_ms;
    bool stays;   /* it was loaded after the last step */
    bool overdue; /* calls were waiting before it was begun */
    bool grown;   /* it has stayed for as long as loads took then, though they take longer by now */
};

/* Of a node's life. */
struct times {
    uint32_t life;
    uint32_t count;
    int64_t took_ms[SAMPLES_MAX];
    int64_t waits_ms; /* since when the first call waited for room, after the last step */
};

static struct times *
times_of(struct world *world, uint32_t node)
{
    struct times *times = of_node(world, &I16_churn, node);
    if (times->life != world->nodes[node].life)
        *times = (struct times){.life = world->nodes[node].life, .waits_ms = INT64_MAX};
    return times;
}

static int64_t
stays_ms(const struct times *times)
{
    uint32_t count = times->count < SAMPLES_MAX ? times->count : SAMPLES_MAX;
    int64_t sum_ms = 0;
    for (uint32_t i = 0; i < count; i++)
        sum_ms += times->took_ms[i];
    return count == 0 ? 0 : sum_ms / count - TICK_MS;
}

static bool
some_move_here(const struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->entries.used; i++)
        if (mesh->entries.at[i].class == MESH_CLASS_MIGRATION &&
            state_loads((enum mesh_state)mesh->entries.at[i].state))
            return true;
    return false;
}

static void
judge(struct world *world, uint32_t node, const struct core_entry *entry,
      const struct loaded *loaded)
{
    int64_t here_ms = world->now_ms - loaded->at_ms;
    if (entry->called && !loaded->overdue && !loaded->grown &&
        here_ms < stays_ms(times_of(world, node)) && !some_move_here(world->nodes[node].mesh) &&
        evicted_for_room(world, node, entry))
        broken(world, &I16_churn, "n%u evicts m%u, %lld ms after it was loaded", node,
               entry_model(world->nodes[node].mesh, entry), (long long)here_ms);
}

static void
on_step(struct world *world, uint32_t node)
{
    const struct mesh *mesh = world->nodes[node].mesh;
    struct times *times = times_of(world, node);
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        const struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_NONE)
            continue;
        struct loaded *loaded = of_pair(world, &I16_churn, node, entry_model(mesh, entry));
        if (loaded->stays && entry->state == MESH_STATE_WITHDRAWING)
            judge(world, node, entry, loaded);
        loaded->stays = entry->state == MESH_STATE_LOADED;
        if (state_loads((enum mesh_state)entry->state))
            loaded->overdue = loaded->grown = false;
        else
            loaded->overdue |= times->waits_ms < entry->claimed_ms;
        loaded->grown |= loaded->stays && world->now_ms - loaded->at_ms >= stays_ms(times);
    }
    times->waits_ms = mesh->room_queue.first == CALL_NONE
                          ? INT64_MAX
                          : mesh->calls.at[mesh->room_queue.first].queued_ms;
}

static void
see(struct world *world, const struct sight *sight)
{
    if (world->options.faults.size_lies + world->options.faults.keeps > 0)
        return;
    if (sight->kind == SAW_STEP) {
        on_step(world, sight->node);
        return;
    }
    struct loaded *loaded = of_pair(world, &I16_churn, sight->node, sight->model);
    struct times *times = times_of(world, sight->node);
    if (sight->kind == SAW_LOAD) {
        loaded->began_ms = world->now_ms;
    } else {
        loaded->at_ms = world->now_ms;
        if (sight->ok)
            times->took_ms[times->count++ % SAMPLES_MAX] = world->now_ms - loaded->began_ms;
    }
}

const struct invariant I16_churn = {
    .name = "I16 churn",
    .sees = SEES(STEP) | SEES(LOAD) | SEES(LOADED),
    .pair_bytes = sizeof(struct loaded),
    .node_bytes = sizeof(struct times),
    .see = see,
};
