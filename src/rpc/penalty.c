/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses that flooded the server, and when each may have its next connection.
 *
 *   1. After a flood the address gets no new connection for RPC_PENALTY_NS, or for
 *      RPC_PENALTY_AGAIN_NS if its last penalty ended no more than RPC_PENALTY_MEMORY_NS ago.
 *   2. Then waiting connections follow one by one, RPC_PENALTY_STEP_NS apart: the next one only
 *      when a flood of the previous one would have been found. If there is one, rule 1 applies to
 *      the rest.
 *   3. In a full table, the penalty that ends first, or has ended, is replaced.
 */
#include "base/clock.h"
#include "rpc/internal.h"

static struct rpc_penalty *
find(struct rpc_penalties *penalties, const struct rpc_peer *peer)
{
    for (size_t i = 0; i < RPC_PENALTIES_MAX; i++)
        if (penalties->items[i].until_ns != 0 &&
            rpc_peer_same_machine(&penalties->items[i].peer, peer))
            return &penalties->items[i];
    return NULL;
}

void
rpc_penalties_add(struct rpc_penalties *penalties, const struct rpc_peer *peer, int64_t now_ns)
{
    struct rpc_penalty *penalty = find(penalties, peer);
    bool again = penalty != NULL && now_ns - penalty->until_ns <= RPC_PENALTY_MEMORY_NS;
    if (penalty == NULL) {
        penalty = &penalties->items[0];
        for (size_t i = 1; i < RPC_PENALTIES_MAX; i++)
            if (penalties->items[i].until_ns < penalty->until_ns)
                penalty = &penalties->items[i];
    }
    penalty->peer = *peer;
    penalty->until_ns = now_ns + (again ? RPC_PENALTY_AGAIN_NS : RPC_PENALTY_NS);
}

int64_t
rpc_penalties_until(struct rpc_penalties *penalties, const struct rpc_peer *peer)
{
    const struct rpc_penalty *penalty = find(penalties, peer);
    return penalty == NULL ? 0 : penalty->until_ns;
}

void
rpc_penalties_step(struct rpc_penalties *penalties, const struct rpc_peer *peer, int64_t now_ns)
{
    struct rpc_penalty *penalty = find(penalties, peer);
    if (penalty != NULL)
        penalty->until_ns = now_ns + RPC_PENALTY_STEP_NS;
}
