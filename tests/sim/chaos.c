/* SPDX-License-Identifier: Apache-2.0 */
/* Faults from outside, second by second, at the seed's rates. */

#include "invariants.h"

enum {
    DOWN_MS_MAX = 15000,
    PAUSE_MS_MAX = 3 * LEASE_S * 1000,
    LINK_MS_MAX = 12000,
    OUTAGE_MS_MAX = 25000,
    NO_SPACE_MS_MAX = 30000,
    ELECTION_MS_MAX = 4000,
    CLOCK_MS_MAX = 20000,
    SWIZZLE_MS = 1000,
    FORGOTTEN_MS = 30000,
    HANG_MS_MAX = 20000,
};

static uint32_t
any(struct world *world, uint32_t below)
{
    return draw(world, STREAM_CHAOS, below);
}

static void
trouble(struct world *world, uint32_t node)
{
    observe(world, (struct sight){.kind = SAW_TROUBLE, .node = node});
}

/* ---- processes ---- */

static void
start_again(struct world *world, struct task *task)
{
    if (world->nodes[task->node].mesh == NULL && !world->nodes[task->node].gone_for_good)
        node_start(world, task->node);
}

static void
kill_one(struct world *world, uint32_t node)
{
    trouble(world, node);
    node_kill(world, node);
    later(world, 1 + any(world, DOWN_MS_MAX),
          (struct task){.run = start_again, .node = node, .life = LIFE_ANY});
}

static void
lose_lease(struct world *world, uint32_t node)
{
    int64_t lease_id = world->nodes[node].registry.lease_id;
    if (lease_id == 0)
        return;
    trouble(world, node);
    fake_etcd_revoke(world->etcd, lease_id);
    registry_announce(world);
}

static void
set_clock(struct world *world, uint32_t node)
{
    world->nodes[node].skew_ms += (int64_t)any(world, CLOCK_MS_MAX) - CLOCK_MS_MAX / 2;
    if (world->options.wrong_clocks > 0 && draw(world, STREAM_CLOCKS, 2))
        world->nodes[node].skew_ms = clock_draw_skew(world);
}

/* ---- the network ---- */

static void
cut_port(struct world *world, uint32_t port, int64_t for_ms)
{
    for (uint32_t i = 0; i <= world->options.nodes; i++) {
        cut(world, port, i, for_ms);
        cut(world, i, port, for_ms);
    }
}

static void
cut_one(struct world *world)
{
    uint32_t ports = world->options.nodes + 1;
    uint32_t from = any(world, ports);
    uint32_t to = any(world, ports);
    trouble(world, from < world->options.nodes ? from : NODE_NONE);
    trouble(world, to < world->options.nodes ? to : NODE_NONE);
    cut(world, from, to, 1 + any(world, LINK_MS_MAX));
}

/* Some from the others, and maybe from etcd; both ways, or one. */
static void
partition(struct world *world)
{
    uint32_t ports = world->options.nodes + 1;
    int64_t for_ms = 1 + any(world, LINK_MS_MAX);
    uint32_t few = any(world, 2) ? 1 : 1 + any(world, ports);
    uint32_t first = any(world, ports);
    bool both = any(world, 2);
    trouble(world, NODE_NONE);
    for (uint32_t i = 0; i < ports; i++)
        for (uint32_t j = 0; j < ports; j++) {
            bool here = (i + ports - first) % ports < few;
            bool there = (j + ports - first) % ports < few;
            if (here != there && (both || here))
                cut(world, i, j, for_ms);
        }
}

static void
swizzle_stop(struct world *world, struct task *task)
{
    if (world->faulty)
        cut_port(world, task->a, (int64_t)task->c);
}

/* Links of some nodes stop one by one over seconds, and come back one by one in another order. */
static void
swizzle(struct world *world)
{
    uint32_t nodes = world->options.nodes;
    uint32_t few = 1 + any(world, nodes);
    trouble(world, NODE_NONE);
    for (uint32_t i = 0; i < few && i < 16; i++) {
        int64_t stops_ms = 1 + any(world, SWIZZLE_MS * 3);
        int64_t back_ms = SWIZZLE_MS * 3 + any(world, SWIZZLE_MS * 6);
        later(world, stops_ms,
              (struct task){.run = swizzle_stop,
                            .node = 0,
                            .life = LIFE_ANY,
                            .a = any(world, nodes),
                            .c = (uint64_t)(back_ms - stops_ms)});
    }
}

/* ---- etcd ---- */

static void
etcd_is_well(struct world *world, struct task *task)
{
    (void)task;
    world->no_space_until_ms = 0;
    fake_etcd_advance(world->etcd, world->now_ms);
    fake_etcd_set_health(world->etcd, FAKE_WELL);
}

static void
etcd_is_not(struct world *world, enum fake_health health, int64_t for_ms)
{
    trouble(world, NODE_NONE);
    fake_etcd_set_health(world->etcd, health);
    later(world, for_ms, (struct task){.run = etcd_is_well, .life = LIFE_ANY});
}

static void
etcd_has_no_space(struct world *world, int64_t for_ms)
{
    trouble(world, NODE_NONE);
    world->no_space_until_ms = world->now_ms + for_ms;
}

/* All of the past, or all but the last of it. */
static void
compact(struct world *world)
{
    int64_t revision = fake_etcd_revision(world->etcd) - any(world, 20);
    fake_etcd_compact(world->etcd, revision);
}

/* It may be away for a while before it comes back with nothing; and a node that begins anew
 * meanwhile may be the first there, and lead without any knowledge. */
static void
empty(struct world *world)
{
    trouble(world, NODE_NONE);
    observe(world, (struct sight){.kind = SAW_EMPTIED});
    world->emptied++;
    fake_etcd_empty(world->etcd);
    if (any(world, 2))
        return;
    etcd_is_not(world, FAKE_SILENT, 1 + any(world, OUTAGE_MS_MAX));
    uint32_t node = any(world, world->options.nodes);
    if (world->options.faults.kills > 0 && node_is_up(world, node))
        kill_one(world, node);
}

/* ---- its operators ---- */

static void
receives(struct world *world, struct task *task)
{
    node_receive(world, task->node, task->a != 0);
}

/* Each node learns of it in its time. */
static void
constrain(struct world *world, bool constrained)
{
    world->constrained = constrained;
    for (uint32_t i = 0; i < world->options.nodes; i++)
        if (world->nodes[i].mesh != NULL)
            node_later(world, i, 1 + any(world, 3000),
                       (struct task){.run = receives, .a = constrained});
}

/* ---- each second ---- */

static bool
comes(struct world *world, uint32_t per_mille)
{
    return fault(world, STREAM_CHAOS, per_mille);
}

static void
harm_nodes(struct world *world)
{
    const struct faults *faults = &world->options.faults;
    const uint32_t rates[] = {faults->kills,  faults->pauses, faults->crashes,
                              faults->leases, faults->clocks, faults->drains};
    for (uint32_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        uint32_t node = any(world, world->options.nodes);
        if (!comes(world, rates[i]) || !node_is_up(world, node))
            continue;
        switch (i) {
        case 0: kill_one(world, node); break;
        case 1: node_pause(world, node, 1 + any(world, PAUSE_MS_MAX)); break;
        case 2: runtime_crash(world, node); break;
        case 3: lose_lease(world, node); break;
        case 4: set_clock(world, node); break;
        default: node_drain(world, node); break;
        }
    }
}

/* One, or all that can at once: calls have to wait then. */
static void
let_rest(struct world *world)
{
    uint32_t one = draw(world, STREAM_RESTS, world->options.nodes);
    bool all = draw(world, STREAM_RESTS, 2) == 0;
    for (uint32_t i = 0; i < world->options.nodes; i++)
        if ((all || i == one) && node_is_up(world, i))
            runtime_rest(world, i);
}

static void
hang_one(struct world *world)
{
    uint32_t node = any(world, world->options.nodes);
    if (!node_is_up(world, node))
        return;
    trouble(world, node);
    runtime_hang(world, node, 1 + any(world, HANG_MS_MAX));
}

static void
second(struct world *world, struct task *task)
{
    const struct faults *faults = &world->options.faults;
    if (!world->faulty)
        return;
    harm_nodes(world);
    if (comes(world, faults->hangs))
        hang_one(world);
    if (faults->rests > 0 && fault(world, STREAM_RESTS, faults->rests))
        let_rest(world);
    if (comes(world, faults->links))
        cut_one(world);
    if (comes(world, faults->partitions))
        partition(world);
    if (comes(world, faults->swizzles))
        swizzle(world);
    if (comes(world, faults->outages))
        etcd_is_not(world, FAKE_SILENT, 1 + any(world, OUTAGE_MS_MAX));
    if (comes(world, faults->elections))
        etcd_is_not(world, FAKE_NO_LEADER, 1 + any(world, ELECTION_MS_MAX));
    if (faults->no_space > 0 && fault(world, STREAM_SPACE, faults->no_space))
        etcd_has_no_space(world, 1 + draw(world, STREAM_SPACE, NO_SPACE_MS_MAX));
    if (comes(world, faults->compactions))
        compact(world);
    if (comes(world, faults->replacements))
        registry_replace(world, any(world, world->options.models));
    if (world->options.bounds == BOUNDS_FEW && draw(world, STREAM_BOUNDS, 16) == 0)
        registry_bind(world);
    if (comes(world, faults->emptyings))
        empty(world);
    if (world->options.labelled && comes(world, faults->constraints))
        constrain(world, !world->constrained);
    if (comes(world, faults->orders))
        orders_client(world);
    later(world, 1000, *task);
}

void
chaos_start(struct world *world)
{
    later(world, 1000, (struct task){.run = second, .life = LIFE_ANY});
}

/* Models that were unregistered, or that no surviving node knew. */
static void
register_missing(struct world *world, struct task *task)
{
    (void)task;
    for (uint32_t i = 0; i < world->options.models; i++)
        registry_register(world, i);
}

void
chaos_end(struct world *world)
{
    const struct options *options = &world->options;
    world->faulty = false;
    trouble(world, NODE_NONE);
    size_t ports = options->nodes + 1;
    for (size_t i = 0; i < ports * ports; i++)
        world->cut_until_ms[i] = 0;
    fake_etcd_advance(world->etcd, world->now_ms);
    fake_etcd_set_health(world->etcd, FAKE_WELL);
    constrain(world, options->labelled);
    if (world->emptied == 0)
        register_missing(world, NULL);
    else /* a node that still knows them rewrites them before that */
        later(world, FORGOTTEN_MS, (struct task){.run = register_missing, .life = LIFE_ANY});
    for (uint32_t i = 0; i < options->nodes; i++) {
        struct node *node = &world->nodes[i];
        node->hangs_until_ms = 0;
        node->gone_for_good = i > 0 && i <= options->lost_for_good;
        if (node->mesh == NULL && !node->gone_for_good)
            node_start(world, i);
        else if (node->mesh != NULL && node->gone_for_good)
            node_kill(world, i);
        else if (node->mesh != NULL && node->kept_bytes[0] + node->kept_bytes[1] > 0)
            runtime_crash(world, i); /* nothing else brings the memory back */
    }
}
