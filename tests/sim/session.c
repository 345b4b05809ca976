/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's session: a lease that it keeps, and its instance key under it. When nobody has confirmed
 * the lease in time it stops writing, whether etcd has ended the lease or not, and begins anew.
 */
#include "ask.h"

enum {
    SECOND_MS = 500,
    MARGIN_MS = LEASE_S * 100,
    RENEW_MS = LEASE_S * 1000 / 3,
    PUBLISH_MS = 5000,
};

static void
session_is(struct world *world, uint32_t node, uint64_t session)
{
    world->nodes[node].registry.session = session;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_SESSION, .session = {.revision = session}});
}

void
session_lost(struct world *world, uint32_t node)
{
    struct registry *registry = &world->nodes[node].registry;
    registry->lease_id = 0;
    observe(world, (struct sight){.kind = SAW_TROUBLE, .node = node});
    if (registry->session != 0)
        session_is(world, node, 0);
}

static struct etcd_bytes
own_value(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    uint32_t pools = runtime_pools(world, number);
    struct mesh_figures pool_figures[NODE_POOLS_MAX];
    for (uint32_t i = 0; i < pools; i++)
        pool_figures[i] = mesh_pool_figures(node->mesh, i);
    const struct mesh_instance instance = {
        .labels = number % LABELLED_EVERY == 0 ? "large" : "",
        .start_ms = node->start_ms,
        .version = world->options.upgrades ? 1 + node->life / 2 : 1,
        .draining = node->draining,
        .figures = mesh_figures(node->mesh),
        .pool_types = runtime_pool_types,
        .pool_figures = pool_figures,
        .pool_count = pools > 1 ? pools : 0,
    };
    return codec_write_instance(&world->arena, &instance);
}

static void join(struct world *world, uint32_t node);

static void
predecessor_gone(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    (void)answer; /* the next attempt shows the reason */
    if (world->nodes[ask->node].registry.lease_id != 0)
        join(world, ask->node);
    else
        world->nodes[ask->node].registry.joining = false;
}

static void
joined(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    struct registry *registry = &world->nodes[ask->node].registry;
    bool known = answer != NULL && answer->fate == ETCD_DONE && registry->lease_id != 0;
    if (known && !answer->succeeded && answer->responses[0].kv_count > 0) {
        /* A predecessor's key, or one of ours that we know nothing of. Its creation revision is not
         * ours: it goes first. */
        struct ask away = {.kind = ASK_TXN, .done = predecessor_gone};
        away.compares[0] = (struct etcd_compare){
            .range = own_key(world, ask->node),
            .target = ETCD_MOD,
            .number = answer->responses[0].kvs[0].mod_revision,
        };
        away.success[0] = (struct etcd_op){.kind = ETCD_DELETE, .range = own_key(world, ask->node)};
        away.txn.compare_count = away.txn.success_count = 1;
        ask_etcd(world, ask->node, &away);
        return;
    }
    registry->joining = false;
    if (known && answer->succeeded && ask->lease_id == registry->lease_id)
        session_is(world, ask->node, (uint64_t)answer->revision);
}

static void
join(struct world *world, uint32_t node)
{
    struct ask ask = {
        .kind = ASK_TXN, .done = joined, .lease_id = world->nodes[node].registry.lease_id};
    ask.compares[0] =
        (struct etcd_compare){.range = own_key(world, node), .target = ETCD_CREATE, .number = 0};
    ask.success[0] = (struct etcd_op){.kind = ETCD_PUT,
                                      .range = own_key(world, node),
                                      .value = own_value(world, node),
                                      .lease_id = ask.lease_id};
    ask.failure[0] = (struct etcd_op){.kind = ETCD_RANGE, .range = own_key(world, node)};
    ask.txn.compare_count = ask.txn.success_count = ask.txn.failure_count = 1;
    ask_etcd(world, node, &ask);
}

static void
granted(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    struct registry *registry = &world->nodes[ask->node].registry;
    if (answer == NULL || answer->fate != ETCD_DONE) {
        registry->joining = false;
        return;
    }
    registry->lease_id = answer->lease_id;
    registry->lease_until_ms = ask->sent_ms + answer->ttl_s * 1000 - MARGIN_MS;
    join(world, ask->node);
}

static void
renewed(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    struct registry *registry = &world->nodes[ask->node].registry;
    if (answer == NULL || answer->fate != ETCD_DONE || ask->lease_id != registry->lease_id)
        return;
    if (answer->ttl_s == 0)
        session_lost(world, ask->node);
    else
        registry->lease_until_ms = ask->sent_ms + answer->ttl_s * 1000 - MARGIN_MS;
}

static void
session_second(struct world *world, struct task *task)
{
    struct registry *registry = &world->nodes[task->node].registry;
    if (registry->lease_id != 0 && world->now_ms >= registry->lease_until_ms)
        session_lost(world, task->node);
    if (registry->session == 0 && !registry->joining) {
        registry->joining = true;
        if (registry->lease_id != 0)
            join(world, task->node);
        else
            ask_etcd(world, task->node, &(struct ask){.kind = ASK_GRANT, .done = granted});
    }
    later(world, SECOND_MS, *task);
}

static void
renew(struct world *world, struct task *task)
{
    struct registry *registry = &world->nodes[task->node].registry;
    if (registry->lease_id != 0)
        ask_etcd(world, task->node,
                 &(struct ask){.kind = ASK_RENEW, .done = renewed, .lease_id = registry->lease_id});
    later(world, RENEW_MS, *task);
}

static void
published(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    const struct registry *registry = &world->nodes[ask->node].registry;
    bool gone = answer != NULL && answer->fate == ETCD_DONE && !answer->succeeded;
    if (gone && ask->session == registry->session && registry->session != 0 &&
        !world->options.unsure)
        session_lost(world, ask->node); /* somebody has taken the key away */
}

void
registry_publish(struct world *world, uint32_t node)
{
    const struct registry *registry = &world->nodes[node].registry;
    if (registry->session == 0)
        return;
    struct ask ask = {.kind = ASK_TXN, .done = published, .session = registry->session};
    ask.compares[0] = (struct etcd_compare){
        .range = own_key(world, node), .target = ETCD_CREATE, .number = (int64_t)registry->session};
    ask.success[0] = (struct etcd_op){.kind = ETCD_PUT,
                                      .range = own_key(world, node),
                                      .value = own_value(world, node),
                                      .lease_id = registry->lease_id};
    ask.txn.compare_count = ask.txn.success_count = 1;
    ask_etcd(world, node, &ask);
}

static void
publish(struct world *world, struct task *task)
{
    registry_publish(world, task->node);
    later(world, PUBLISH_MS, *task);
}

void
session_start(struct world *world, uint32_t node)
{
    node_later(world, node, 1, (struct task){.run = session_second});
    node_later(world, node, RENEW_MS, (struct task){.run = renew});
    node_later(world, node, PUBLISH_MS / 2 + draw(world, STREAM_ETCD, PUBLISH_MS),
               (struct task){.run = publish});
}
