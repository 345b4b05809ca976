/* SPDX-License-Identifier: Apache-2.0 */
/* A node: a real mesh core, and an edge around it that carries out what it decides. */
#include <stdio.h>
#include <string.h>

#include "invariants.h"

enum {
    CALLS_MAX = 1 << 16,
    TICK_MS = 1000,
    GRACE_MS = 40000,
    SUCCESSOR_MS = 2000,
    CHECK_EACH = 24, /* steps of a node; mesh_check takes far longer than one */
    CHECK_EACH_OF_MANY = 192,
    MODELS_MANY = 100,
};

bool
node_is_up(const struct world *world, uint32_t node)
{
    return world->nodes[node].mesh != NULL && world->nodes[node].paused_until_ms <= world->now_ms;
}

static void
replaced(struct world *world, struct task *task)
{
    node_kill(world, task->node);
    node_start(world, task->node);
}

/* The process ends, and its successor comes. */
static void
do_drained(struct world *world, uint32_t node)
{
    observe(world, (struct sight){.kind = SAW_DRAINED, .node = node});
    world->drained++;
    node_later(world, node, SUCCESSOR_MS, (struct task){.run = replaced});
}

static void
carry_out(struct world *world, uint32_t node, const struct mesh_action *action)
{
    trace(world, (uint64_t)node << 32 | (uint64_t)action->kind);
    switch (action->kind) {
    case MESH_DO_TXN: registry_write(world, node, &action->txn); break;
    case MESH_DO_SERVE: call_do_serve(world, node, action); break;
    case MESH_DO_FORWARD: call_do_forward(world, node, action); break;
    case MESH_DO_ANSWER: call_do_answer(world, node, action); break;
    case MESH_DO_REPLY: orders_replied(world, node, action); break;
    case MESH_DO_ENSURE: call_do_ensure(world, node, action); break;
    case MESH_DO_SIZE: runtime_size(world, node, action); break;
    case MESH_DO_LOAD: runtime_load(world, node, action); break;
    case MESH_DO_UNLOAD: runtime_unload(world, node, action); break;
    case MESH_DO_OPEN:
    case MESH_DO_CLOSE: break; /* all calls are the core's */
    case MESH_DO_DRAINED: do_drained(world, node); break;
    }
}

void
node_step(struct world *world, uint32_t number, struct mesh_event event)
{
    struct node *node = &world->nodes[number];
    event.now_ms = world->now_ms;
    event.wall_ms = clock_mesh_ms(world, number);
    struct mesh_actions actions = mesh_step(node->mesh, &event);
    uint32_t each = world->options.models < MODELS_MANY ? CHECK_EACH : CHECK_EACH_OF_MANY;
    if (++node->steps % each == 0)
        mesh_check(node->mesh);
    observe(world,
            (struct sight){.kind = SAW_STEP, .node = number, .event = &event, .actions = &actions});
    for (uint32_t i = 0; i < actions.count; i++)
        carry_out(world, number, &actions.at[i]);
}

static void
tick(struct world *world, struct task *task)
{
    clock_tick(world, task->node);
    node_step(world, task->node, (struct mesh_event){.kind = MESH_TICK});
    later(world, TICK_MS, *task);
}

void
node_receive(struct world *world, uint32_t node, bool constrained)
{
    static const char *const labels[] = {"large"};
    static const struct mesh_type_rule rules[] = {
        {.type = "heavy", .required = labels, .required_count = 1}};
    world->nodes[node].constrained = constrained;
    world->nodes[node].received_ms = world->now_ms;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_TYPES,
                                  .types = {.rules = rules, .rule_count = constrained}});
}

static void
pool_name(const char *type, const char *key, char name[MESH_POOL_NAME_BYTES])
{
    (void)key;
    snprintf(name, MESH_POOL_NAME_BYTES, "%s", type);
}

void
node_start(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    const struct options *options = &world->options;
    if (node->held == NULL)
        node->held = arena_take(&world->arena, options->models * sizeof(*node->held));
    memset(node->held, 0, options->models * sizeof(*node->held));
    node->slot_count = 0;
    node->life++;
    node->runtime++;
    memset(node->kept_bytes, 0, sizeof(node->kept_bytes));
    node->hangs_until_ms = 0;
    node->paused_until_ms = 0;
    node->draining = false;
    clock_start(world, number);
    node->mesh = mesh_create(&(struct mesh_config){
        .instance = world->node_names[number],
        .seed = world->seed * 1000 + number,
        .models_max = options->models,
        .instances_max = options->nodes + 1,
        .calls_max = CALLS_MAX,
        .vmodels_max = options->vmodels + 1,
        .orders_max = ORDERS_MAX,
        .failure_fresh_ms = FRESH_MS,
        .gone_ms = GONE_MS,
        .rate_for_more = options->rate_for_more,
        .pool_types = runtime_pool_types,
        .pool_count = runtime_pools(world, number),
        .pool_name = options->pools ? pool_name : NULL,
    });
    observe(world, (struct sight){.kind = SAW_BIRTH, .node = number});
    node->constrained = false;
    if (world->constrained)
        node_receive(world, number, true);
    runtime_start(world, number);
    registry_start(world, number);
    node_later(world, number, 1 + draw(world, STREAM_CHAOS, TICK_MS), (struct task){.run = tick});
}

void
node_kill(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    observe(world, (struct sight){.kind = SAW_DEATH, .node = number});
    mesh_destroy(node->mesh);
    node->mesh = NULL;
    node->runtime++;
    calls_die(world, number);
    orders_die(world, number);
    memset(node->held, 0, world->options.models * sizeof(*node->held));
}

void
node_pause(struct world *world, uint32_t node, int64_t for_ms)
{
    observe(world, (struct sight){.kind = SAW_TROUBLE, .node = node});
    world->nodes[node].paused_until_ms = world->now_ms + for_ms;
}

void
node_drain(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    if (node->draining)
        return;
    node->draining = true;
    registry_publish(world, number);
    observe(world, (struct sight){.kind = SAW_DRAIN, .node = number});
    node_later(world, number, GRACE_MS, (struct task){.run = replaced});
    node_step(world, number, (struct mesh_event){.kind = MESH_DRAIN});
}
