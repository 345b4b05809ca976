/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I19. A call is served from the very model that this node knows under that name, and that is
 * loaded. Its view may be old: which model a record is of is asked by its path, and not of
 * etcd as it is now. Of an etcd that was emptied, revisions come again, and mean others.
 */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    const struct node *node = &world->nodes[sight->node];
    const struct held *held = &node->held[sight->model];
    const struct reported_model *reported = &node->registry.reported[sight->model];
    if (held->memory != MEMORY_LOADED || held->version != reported->version ||
        sight->number != reported->create_revision)
        broken(world, &I19_right_answer,
               "n%u serves m%u v%llu from v%llu in state %d, created at %llu, as of %llu",
               sight->node, sight->model, (unsigned long long)reported->version,
               (unsigned long long)held->version, (int)held->memory,
               (unsigned long long)reported->create_revision, (unsigned long long)sight->number);
}

const struct invariant I19_right_answer = {
    .name = "I19 right answer", .sees = SEES(SERVE), .see = see};
