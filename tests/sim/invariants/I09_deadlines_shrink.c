/* SPDX-License-Identifier: Apache-2.0 */
/* I9. A hop's deadline is before the sender's; nothing runs after its deadline. */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    if (sight->kind == SAW_FORWARD && sight->deadline_ms >= sight->former_ms)
        broken(world, &I09_deadlines_shrink, "n%u sends m%u on with a deadline of %lld after %lld",
               sight->node, sight->model, (long long)sight->deadline_ms,
               (long long)sight->former_ms);
    if (sight->kind == SAW_SERVE && world->now_ms >= sight->deadline_ms)
        broken(world, &I09_deadlines_shrink, "n%u serves m%u %lld ms after the deadline",
               sight->node, sight->model, (long long)(world->now_ms - sight->deadline_ms));
}

const struct invariant I09_deadlines_shrink = {
    .name = "I9 deadlines shrink", .sees = SEES(FORWARD) | SEES(SERVE), .see = see};
