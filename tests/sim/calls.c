/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: of clients, and of nodes to each other. A connection that breaks is noticed: at once when
 * the process on the other side has ended, after a while when the network is to blame.
 */
#include <stdlib.h>

#include "base/check.h"
#include "invariants.h"

enum { SERVE_MS_MAX = 100, RESET_MS_MAX = 200, LATE_MS = 20 };

struct answer_message {
    enum mesh_end end;
    bool has_figures;
    uint32_t from;
    int64_t start_ms;
    uint32_t model;
    struct mesh_figures figures; /* of its pool */
};

struct call_message {
    struct slot slot;
    enum mesh_hop hop;
    uint64_t create_revision;
    uint32_t tried_count;
    struct mesh_tried tried[MESH_TRIED_MAX];
};

static uint32_t
slot_take(struct node *node, struct slot slot)
{
    uint32_t number = 0;
    while (number < node->slot_count && node->slots[number].origin != ORIGIN_NONE)
        number++;
    if (number == node->slot_capacity) {
        node->slot_capacity = node->slot_capacity * 2 + 16;
        node->slots = reallocarray(node->slots, node->slot_capacity, sizeof(*node->slots));
        CHECK(node->slots != NULL);
    }
    if (number == node->slot_count)
        node->slot_count++;
    node->slots[number] = slot;
    return number;
}

/* ---- ends ---- */

static void
client_is_answered(struct world *world, uint32_t number, enum mesh_end end, bool lost)
{
    struct client_call *call = &world->calls[number];
    call->end = end;
    call->lost = lost;
    call->ended_ms = world->now_ms;
    observe(world, (struct sight){.kind = SAW_ANSWER, .client_call = number});
    call->open = false;
    if (!lost)
        world->ends[end]++;
}

static void try_ended(struct world *world, struct task *task);

static struct task
answer_task(const struct slot *slot, struct answer_message *message)
{
    return (struct task){
        .run = try_ended,
        .node = slot->node,
        .life = slot->life,
        .inside = true,
        .a = slot->call,
        .b = slot->number,
        .data = message,
    };
}

/* Tells the waiter for that slot's answer that it will not come. */
static void
connection_breaks(struct world *world, const struct slot *slot, int64_t in_ms)
{
    struct answer_message *message = arena_take(&world->arena, sizeof(*message));
    message->end = MESH_END_UNREACHABLE;
    later(world, in_ms, answer_task(slot, message));
}

static void
reply(struct world *world, const struct slot *slot, uint32_t from, enum mesh_end end)
{
    struct answer_message *message = arena_take(&world->arena, sizeof(*message));
    *message = (struct answer_message){
        .end = end,
        .has_figures = true,
        .from = from,
        .start_ms = world->nodes[from].start_ms,
        .figures = mesh_figures_for(world->nodes[from].mesh, world->model_names[slot->model]),
        .model = slot->model,
    };
    if (!send(world, from, slot->node, answer_task(slot, message)))
        connection_breaks(world, slot, KEEPALIVE_MS);
}

static void
slot_end(struct world *world, uint32_t node, uint32_t number, enum mesh_end end)
{
    CHECK(number < world->nodes[node].slot_count);
    struct slot slot = world->nodes[node].slots[number];
    world->nodes[node].slots[number] = (struct slot){0};
    if (slot.origin == ORIGIN_PEER)
        reply(world, &slot, node, end);
    else
        client_is_answered(world, slot.client_call, end, false);
}

void
calls_die(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    for (uint32_t i = 0; i < node->slot_count; i++) {
        struct slot slot = node->slots[i];
        node->slots[i] = (struct slot){0};
        if (slot.origin == ORIGIN_PEER)
            connection_breaks(world, &slot, 1 + draw(world, STREAM_NETWORK, RESET_MS_MAX));
        else if (slot.origin == ORIGIN_CLIENT)
            client_is_answered(world, slot.client_call, MESH_END_UNREACHABLE, true);
    }
}

/* A try at another node has ended; this node's slot may be long gone. */
static void
try_ended(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    const struct answer_message *message = task->data;
    struct slot *slot = &node->slots[task->a];
    bool awaited = task->a < node->slot_count && slot->origin != ORIGIN_NONE && slot->away &&
                   slot->attempt == task->b;
    if (awaited)
        slot->away = false;
    if (message->has_figures)
        node_step(
            world, task->node,
            (struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                                .figures = {world->node_names[message->from], message->start_ms,
                                            message->figures, world->model_names[message->model]}});
    if (awaited && message->end == MESH_END_OK)
        slot_end(world, task->node, task->a, MESH_END_OK);
    node_step(
        world, task->node,
        (struct mesh_event){.kind = MESH_TRY_ENDED,
                            .tried = {.call = task->a, .number = task->b, .end = message->end}});
}

/* ---- serving ---- */

/* A vmodel's call: which model it has come to. */
static void
model_is(struct world *world, struct slot *slot, const struct mesh_action *action)
{
    slot->model = number_of(action->attempt.model);
    if (slot->origin == ORIGIN_CLIENT)
        world->calls[slot->client_call].model = slot->model;
}

static void
served(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    struct slot *slot = &node->slots[task->a];
    struct held *held = &node->held[slot->model];
    slot->serving = false;
    struct mesh_event event = {.kind = MESH_TRY_ENDED,
                               .tried = {.call = task->a,
                                         .number = task->b,
                                         .end = MESH_END_OK,
                                         .took_us = 1 + draw(world, STREAM_RUNTIMES, 100000)}};
    if (node->runtime != task->c) {
        event.tried.end = MESH_END_UNREACHABLE;
        node_step(world, task->node, event);
        return;
    }
    CHECK(held->in_flight > 0);
    held->in_flight--;
    bool loaded = held->memory == MEMORY_LOADED && held->in_flight == 0 &&
                  mesh_state(node->mesh, world->model_names[slot->model]) == MESH_STATE_LOADED;
    if (loaded && fault(world, STREAM_RUNTIMES, world->options.faults.forgets)) {
        *held = (struct held){0};
        observe(world, (struct sight){.kind = SAW_LOST, .node = task->node, .model = slot->model});
        event.tried.vanished = true;
        event.tried.end = MESH_END_NOT_HERE;
        node_step(world, task->node, event);
        return;
    }
    slot_end(world, task->node, task->a, MESH_END_OK);
    node_step(world, task->node, event);
}

void
call_do_serve(struct world *world, uint32_t number, const struct mesh_action *action)
{
    struct node *node = &world->nodes[number];
    struct slot *slot = &node->slots[action->attempt.call];
    slot->serving = true;
    slot->attempt = action->attempt.number;
    model_is(world, slot, action);
    observe(world, (struct sight){.kind = SAW_SERVE,
                                  .node = number,
                                  .model = slot->model,
                                  .client_call = slot->client_call,
                                  .number = action->attempt.create_revision,
                                  .deadline_ms = slot->deadline_ms});
    node->held[slot->model].in_flight++;
    node_later(world, number, 1 + draw(world, STREAM_RUNTIMES, SERVE_MS_MAX),
               (struct task){.run = served,
                             .a = action->attempt.call,
                             .b = action->attempt.number,
                             .c = node->runtime});
}

/* ---- forwarding ---- */

static void
call_arrives(struct world *world, struct task *task)
{
    const struct call_message *message = task->data;
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL) {
        connection_breaks(world, &message->slot, 1 + draw(world, STREAM_NETWORK, RESET_MS_MAX));
        return;
    }
    uint32_t number = slot_take(node, message->slot);
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_CALL,
                                  .call = {.call = number,
                                           .model = world->model_names[message->slot.model],
                                           .hop = message->hop,
                                           .deadline_ms = message->slot.deadline_ms,
                                           .create_revision = message->create_revision,
                                           .tried = message->tried,
                                           .tried_count = message->tried_count}});
}

/* A stopped node does not answer keepalives; and no try lasts longer than its deadline. */
static void
is_it_alive(struct world *world, struct task *task)
{
    const struct slot *slot = &world->nodes[task->node].slots[task->a];
    if (task->a >= world->nodes[task->node].slot_count || !slot->away || slot->attempt != task->b)
        return;
    bool late = world->now_ms >= slot->deadline_ms + LATE_MS;
    if (!late && node_is_up(world, slot->there)) {
        int64_t left_ms = slot->deadline_ms + LATE_MS - world->now_ms;
        later(world, left_ms < KEEPALIVE_MS ? left_ms : KEEPALIVE_MS, *task);
        return;
    }
    struct answer_message *message = arena_take(&world->arena, sizeof(*message));
    message->end = late ? MESH_END_DEADLINE : MESH_END_UNREACHABLE;
    task->data = message;
    try_ended(world, task);
}

void
call_do_forward(struct world *world, uint32_t number, const struct mesh_action *action)
{
    struct node *node = &world->nodes[number];
    struct slot *slot = &node->slots[action->attempt.call];
    uint32_t there = number_of(action->attempt.instance);
    model_is(world, slot, action);
    observe(world, (struct sight){.kind = SAW_FORWARD,
                                  .node = number,
                                  .other = there,
                                  .model = slot->model,
                                  .client_call = slot->client_call,
                                  .hop = action->attempt.hop,
                                  .number = slot->depth + 1,
                                  .deadline_ms = action->attempt.deadline_ms,
                                  .former_ms = slot->deadline_ms});
    slot->attempt = action->attempt.number;
    slot->away = true;
    slot->there = there;
    struct call_message *message = arena_take(&world->arena, sizeof(*message));
    *message = (struct call_message){
        .slot = {.origin = ORIGIN_PEER,
                 .depth = slot->depth + 1,
                 .model = slot->model,
                 .vmodel = VMODEL_NONE,
                 .deadline_ms = action->attempt.deadline_ms,
                 .client_call = slot->client_call,
                 .node = number,
                 .life = node->life,
                 .call = action->attempt.call,
                 .number = action->attempt.number},
        .hop = action->attempt.hop,
        .create_revision = action->attempt.create_revision,
        .tried_count = action->attempt.tried_count,
    };
    for (uint32_t i = 0; i < message->tried_count; i++) {
        message->tried[i] = action->attempt.tried[i];
        message->tried[i].instance = world->node_names[number_of(message->tried[i].instance)];
    }
    if (!send(world, number, there,
              (struct task){.run = call_arrives,
                            .node = there,
                            .life = LIFE_ANY,
                            .inside = true,
                            .data = message}))
        connection_breaks(world, &message->slot, KEEPALIVE_MS);
    node_later(
        world, number, KEEPALIVE_MS,
        (struct task){.run = is_it_alive, .a = action->attempt.call, .b = action->attempt.number});
}

void
call_do_answer(struct world *world, uint32_t node, const struct mesh_action *action)
{
    slot_end(world, node, action->answer.call, action->answer.end);
}

/* ---- copies wanted without a call ---- */

struct ensure_message {
    uint32_t model;
    int64_t used_ms;
    enum mesh_class class;
    uint32_t target;
    uint64_t size_bytes;
};

static void
ensure_arrives(struct world *world, struct task *task)
{
    const struct ensure_message *message = task->data;
    if (world->nodes[task->node].mesh == NULL)
        return;
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_ENSURE,
                                  .ensure = {.model = world->model_names[message->model],
                                             .used_ms = message->used_ms,
                                             .class = message->class,
                                             .where = MESH_HERE,
                                             .target = message->target,
                                             .size_bytes = message->size_bytes}});
}

static void
ensure_is_lost(struct world *world, struct task *task)
{
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_UNREACHABLE,
                                  .unreachable = {.instance = world->node_names[task->a]}});
}

void
call_do_ensure(struct world *world, uint32_t node, const struct mesh_action *action)
{
    uint32_t there = number_of(action->ensure.instance);
    struct ensure_message *message = arena_take(&world->arena, sizeof(*message));
    *message = (struct ensure_message){
        .model = number_of(action->ensure.model),
        .used_ms = action->ensure.used_ms,
        .class = action->ensure.class,
        .target = action->ensure.target,
        .size_bytes = action->ensure.size_bytes,
    };
    bool sent = send(world, node, there,
                     (struct task){.run = ensure_arrives,
                                   .node = there,
                                   .life = LIFE_ANY,
                                   .inside = true,
                                   .data = message});
    if (!sent) /* the asking node looks at the record, and asks again */
        node_later(world, node, KEEPALIVE_MS, (struct task){.run = ensure_is_lost, .a = there});
}

/* ---- clients ---- */

static void
cancelled(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    struct slot *slot = &node->slots[task->a];
    if (task->a >= node->slot_count || slot->origin != ORIGIN_CLIENT ||
        slot->client_call != task->b || slot->serving)
        return;
    *slot = (struct slot){0};
    client_is_answered(world, task->b, MESH_END_DEADLINE, true);
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_CALL_CANCELLED, .call = {.call = task->a}});
}

static uint32_t
begin(struct world *world, uint32_t number, const struct client_call *given)
{
    struct node *node = &world->nodes[number];
    if (world->call_count == world->call_capacity) {
        world->call_capacity = world->call_capacity * 2 + 256;
        world->calls = reallocarray(world->calls, world->call_capacity, sizeof(*world->calls));
        CHECK(world->calls != NULL);
    }
    uint32_t call = world->call_count++;
    world->calls[call] = *given;
    world->calls[call].entry = number;
    world->calls[call].began_ms = world->now_ms;
    world->calls[call].open = true;
    observe(world, (struct sight){.kind = SAW_CALL, .client_call = call});
    uint32_t slot = slot_take(node, (struct slot){.origin = ORIGIN_CLIENT,
                                                  .model = given->model,
                                                  .vmodel = given->vmodel,
                                                  .deadline_ms = given->deadline_ms,
                                                  .client_call = call});
    if (fault(world, STREAM_CLIENTS, world->options.faults.cancels))
        node_later(world, number, 1 + draw(world, STREAM_CLIENTS, 500),
                   (struct task){.run = cancelled, .a = slot, .b = call});
    bool balances = draw(world, STREAM_CLIENTS, 2);
    bool is_vmodel = given->vmodel != VMODEL_NONE;
    node_step(world, number,
              (struct mesh_event){
                  .kind = MESH_CALL,
                  .call = {.call = slot,
                           .model = is_vmodel ? NULL : world->model_names[given->model],
                           .vmodel = is_vmodel ? world->vmodel_names[given->vmodel] : NULL,
                           .balance = balances ? MESH_BALANCE_CALLER : MESH_BALANCE_NONE,
                           .deadline_ms = given->deadline_ms}});
    return call;
}

uint32_t
call_begin(struct world *world, uint32_t node, uint32_t model, int64_t deadline_ms)
{
    return begin(
        world, node,
        &(struct client_call){.model = model, .vmodel = VMODEL_NONE, .deadline_ms = deadline_ms});
}

uint32_t
call_begin_vmodel(struct world *world, uint32_t node, uint32_t vmodel, int64_t deadline_ms)
{
    return begin(world, node, &(struct client_call){.vmodel = vmodel, .deadline_ms = deadline_ms});
}
