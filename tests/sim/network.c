/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between nodes, and between nodes and etcd. Each takes its time, so they overtake one
 * another. A link may be cut, each way for itself: then what is sent is lost, or arrives when it is
 * whole again, as packets are sent anew.
 */
#include "world.h"

enum { SLOW_MS_MAX = 6000, RESENT_MS_MAX = 4000 };

uint32_t
etcd_port(const struct world *world)
{
    return world->options.nodes;
}

static int64_t *
link_of(const struct world *world, uint32_t from, uint32_t to)
{
    return &world->cut_until_ms[(size_t)from * (world->options.nodes + 1) + to];
}

bool
is_cut(const struct world *world, uint32_t from, uint32_t to)
{
    return *link_of(world, from, to) > world->now_ms;
}

void
cut(struct world *world, uint32_t from, uint32_t to, int64_t for_ms)
{
    int64_t *until_ms = link_of(world, from, to);
    if (*until_ms < world->now_ms + for_ms)
        *until_ms = world->now_ms + for_ms;
}

bool
send(struct world *world, uint32_t from, uint32_t to, struct task task)
{
    bool etcd = from == etcd_port(world) || to == etcd_port(world);
    int64_t in_ms = 1 + draw(world, STREAM_NETWORK, world->options.delay_ms);
    if (is_cut(world, from, to)) {
        int64_t whole_ms = *link_of(world, from, to) - world->now_ms;
        if (whole_ms > RESENT_MS_MAX || draw(world, STREAM_NETWORK, 2))
            return false;
        in_ms += whole_ms;
    }
    if (etcd && fault(world, STREAM_NETWORK, world->options.faults.lost))
        return false; /* between nodes a connection sees to that */
    if (fault(world, STREAM_NETWORK, world->options.faults.slow))
        in_ms += draw(world, STREAM_NETWORK, SLOW_MS_MAX);
    later(world, in_ms, task);
    return true;
}
