/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes' wall clocks, and how they ask each other for them. */
#include "world.h"

enum { START_MS = 1000 };

#define EPOCH_MS INT64_C(1700000000000)

struct clock_message {
    uint32_t from;
    struct mesh_clock_answer answer;
};

int64_t
clock_wall_ms(const struct world *world, uint32_t node)
{
    return EPOCH_MS + world->now_ms + world->nodes[node].skew_ms;
}

int64_t
clock_mesh_ms(struct world *world, uint32_t node)
{
    return mesh_clock_now(&world->nodes[node].clock, world->now_ms, clock_wall_ms(world, node));
}

int64_t
clock_draw_skew(struct world *world)
{
    static const int64_t largest_ms[] = {10000, 60000, 600000, 3600000, 86400000};
    size_t which = draw(world, STREAM_CLOCKS, sizeof(largest_ms) / sizeof(largest_ms[0]));
    int64_t skew_ms = largest_ms[which];
    if (draw(world, STREAM_CLOCKS, 2))
        skew_ms = draw(world, STREAM_CLOCKS, (uint32_t)skew_ms);
    return draw(world, STREAM_CLOCKS, 2) ? skew_ms : -skew_ms;
}

void
clock_start(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    mesh_clock_init(&node->clock, world->node_names[number]);
    node->began_ms = world->now_ms;
    node->start_ms = clock_mesh_ms(world, number);
}

/* ---- messages ---- */

/* As network.c, but with chances of its own. */
static void
send_clock(struct world *world, uint32_t from, uint32_t to, struct task task)
{
    int64_t in_ms = 1 + draw(world, STREAM_CLOCKS, world->options.delay_ms);
    if (is_cut(world, from, to) || world->nodes[to].mesh == NULL)
        return;
    if (fault(world, STREAM_CLOCKS, world->options.faults.slow))
        in_ms += draw(world, STREAM_CLOCKS, 6000);
    task.node = to;
    task.life = world->nodes[to].life;
    task.inside = true;
    later(world, in_ms, task);
}

/* A start is never before what a clock that was ahead has said it was. */
static void
correct_start(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    int64_t start_ms = clock_mesh_ms(world, number) - (world->now_ms - node->began_ms);
    if (start_ms >= node->start_ms - START_MS)
        return;
    node->start_ms = start_ms;
    registry_publish(world, number);
}

static void
on_answer(struct world *world, struct task *task)
{
    struct clock_message *message = task->data;
    message->answer.received_ms = world->now_ms;
    mesh_clock_notify(&world->nodes[task->node].clock,
                      mesh_clock_key(world->node_names[message->from]), &message->answer);
    correct_start(world, task->node);
}

static void
on_question(struct world *world, struct task *task)
{
    struct clock_message *message = task->data;
    uint32_t asker = message->from;
    message->from = task->node;
    message->answer.wall_ms = clock_wall_ms(world, task->node);
    message->answer.mesh_ms = clock_mesh_ms(world, task->node);
    message->answer.voted = world->nodes[task->node].clock.voted;
    send_clock(world, task->node, asker, (struct task){.run = on_answer, .data = message});
}

void
clock_tick(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    for (uint32_t i = 0; i < world->options.nodes; i++) {
        uint64_t key = mesh_clock_key(world->node_names[i]);
        if (i == number)
            continue;
        if (node->registry.node_sessions[i] == 0) {
            mesh_clock_forget(&node->clock, key);
            continue;
        }
        if (!mesh_clock_ask(&node->clock, key, world->now_ms))
            continue;
        struct clock_message *message = arena_take(&world->arena, sizeof(*message));
        *message = (struct clock_message){.from = number, .answer.asked_ms = world->now_ms};
        send_clock(world, number, i, (struct task){.run = on_question, .data = message});
    }
    correct_start(world, number);
}
