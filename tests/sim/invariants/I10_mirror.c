/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I10. A node's mirror at a revision equals etcd's content then, or newer; its revision never
 * goes back. Looked at is one model each time.
 */
#include "mirror.h"

struct reported {
    uint64_t history;
    uint64_t revision;
};

static void
see(struct world *world, const struct sight *sight)
{
    struct reported *reported = of_node(world, &I10_mirror, sight->node);
    if (sight->kind == SAW_BIRTH) {
        reported->revision = 0;
        return;
    }
    uint64_t history = world->nodes[sight->node].registry.history;
    if (history == reported->history && sight->number < reported->revision)
        broken(world, &I10_mirror, "n%u goes back to revision %llu", sight->node,
               (unsigned long long)sight->number);
    reported->history = history;
    reported->revision = sight->number;
    if (history != fake_etcd_history(world->etcd))
        return; /* that past is gone */
    uint32_t model = draw(world, STREAM_CHECKS, world->options.models);
    const char *wrong = mirror_judge(world, sight->node, model, sight->number);
    if (wrong != NULL)
        broken(world, &I10_mirror, "on n%u m%u %s at revision %llu", sight->node, model, wrong,
               (unsigned long long)sight->number);
}

const struct invariant I10_mirror = {
    .name = "I10 mirror",
    .sees = SEES(BIRTH) | SEES(MIRROR),
    .node_bytes = sizeof(struct reported),
    .see = see,
};
