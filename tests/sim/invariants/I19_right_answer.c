/* SPDX-License-Identifier: Apache-2.0 */
/* I19. A call is served from the very model that it is for, and that is loaded. */
#include "../invariants.h"

static void
see(struct world *world, const struct sight *sight)
{
    const struct held *held = &world->nodes[sight->node].held[sight->model];
    uint64_t asked = version_at(world, sight->model, sight->number);
    if (held->memory != MEMORY_LOADED || held->version != asked)
        broken(world, &I19_right_answer, "n%u serves m%u v%llu from v%llu in state %d", sight->node,
               sight->model, (unsigned long long)asked, (unsigned long long)held->version,
               (int)held->memory);
}

const struct invariant I19_right_answer = {
    .name = "I19 right answer", .sees = SEES(SERVE), .see = see};
