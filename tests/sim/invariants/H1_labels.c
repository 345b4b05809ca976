/* SPDX-License-Identifier: Apache-2.0 */
/* H1, H3. A node loads nothing that it may not hold, a tick after it has learned so at the
 * latest. */
#include "../invariants.h"

enum { TICK_MS = 1000 };

static void
see(struct world *world, const struct sight *sight)
{
    const struct node *node = &world->nodes[sight->node];
    if (node->constrained && !node_may_hold(world, sight->node, sight->model) &&
        world->now_ms - node->received_ms > TICK_MS)
        broken(world, &H1_labels, "n%u loads m%u without the label that it requires", sight->node,
               sight->model);
}

const struct invariant H1_labels = {.name = "H1 labels", .sees = SEES(LOAD), .see = see};
