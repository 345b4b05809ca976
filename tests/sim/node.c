/* SPDX-License-Identifier: Apache-2.0 */
/* A node of the world: a real mesh core, and an edge around it that carries out what it decides. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "world.h"

enum { HOPS_MAX = 2, DEADLINE_MS = 30000, LEASE_MS = 10000 };

static uint32_t
slot_take(struct node *node)
{
    for (uint32_t i = 0; i < SLOTS_MAX; i++)
        if (node->slots[i].origin == ORIGIN_NONE)
            return i;
    UNREACHABLE();
}

/* ---- answers ---- */

static void try_ended(struct world *world, struct task *task);

static void
figures_arrive(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                                  .figures = {node_name(task->a), (int64_t)task->c,
                                              *(struct mesh_figures *)task->data}});
}

static void
send_figures(struct world *world, uint32_t from, const struct slot *slot)
{
    struct mesh_figures *figures = malloc(sizeof(*figures));
    CHECK(figures != NULL);
    *figures = mesh_figures(world->nodes[from].mesh);
    later(world, 1,
          (struct task){.run = figures_arrive,
                        .node = slot->node,
                        .life = slot->life,
                        .a = from,
                        .c = (uint64_t)world->keys[from].start_ms,
                        .data = figures});
}

static void
reply(struct world *world, const struct slot *slot, uint32_t from, enum mesh_end end)
{
    const struct node *to = &world->nodes[slot->node];
    if (to->mesh == NULL || to->life != slot->life)
        return;
    if (world->link_broken_until_ms[from][slot->node] > world->now_ms)
        end = MESH_END_UNREACHABLE;
    if (world->nodes[from].mesh != NULL && end != MESH_END_UNREACHABLE)
        send_figures(world, from, slot);
    later(world, 1 + draw(world, 20),
          (struct task){.run = try_ended,
                        .node = slot->node,
                        .life = slot->life,
                        .a = slot->call,
                        .b = slot->number,
                        .c = end});
}

/* I6: a slot is free after this, and only a used one can be ended. */
static void
slot_end(struct world *world, uint32_t node, uint32_t number, enum mesh_end end)
{
    struct slot slot = world->nodes[node].slots[number];
    CHECK(slot.origin != ORIGIN_NONE);
    world->nodes[node].slots[number] = (struct slot){0};
    if (slot.origin == ORIGIN_PEER) {
        reply(world, &slot, node, end);
        return;
    }
    CHECK(end != MESH_END_NOT_HERE && end != MESH_END_REFUSED); /* between nodes only */
    if (end == MESH_END_OK)
        check_served(world, &slot);
    else if (end != MESH_END_DEADLINE)
        count_failed(world, &slot);
    world->answered++;
    world->ends[end]++;
}

static void
try_ended(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    const struct slot *slot = &node->slots[task->a];
    if (task->c == MESH_END_OK && slot->origin != ORIGIN_NONE && slot->attempt == task->b)
        slot_end(world, task->node, task->a, MESH_END_OK);
    node_step(world, task->node,
              (struct mesh_event){
                  .kind = MESH_TRY_ENDED,
                  .tried = {.call = task->a, .number = task->b, .end = (enum mesh_end)task->c}});
}

static void
served(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    struct slot *slot = &node->slots[task->a];
    struct held *held = &node->held[slot->model];
    CHECK(held->memory == MEMORY_LOADED && held->in_flight > 0); /* I4 */
    CHECK(held->version == task->c);                             /* I19 */
    held->in_flight--;
    slot->serving = false;
    struct mesh_event event = {.kind = MESH_TRY_ENDED,
                               .tried = {.call = task->a,
                                         .number = task->b,
                                         .end = MESH_END_OK,
                                         .took_us = 1 + draw(world, 200000)}};
    if (world->faulty && held->in_flight == 0 &&
        mesh_state(node->mesh, model_name(slot->model)) == MESH_STATE_LOADED &&
        happens(world, world->faults.forgets)) {
        *held = (struct held){0};
        event.tried.vanished = true;
        event.tried.end = MESH_END_NOT_HERE;
        node_step(world, task->node, event);
        return;
    }
    slot_end(world, task->node, task->a, MESH_END_OK);
    node_step(world, task->node, event);
}

/* ---- what the core says ---- */

static void
do_serve(struct world *world, uint32_t number, const struct mesh_action *action)
{
    struct node *node = &world->nodes[number];
    struct held *held = &node->held[number_of(action->attempt.model)];
    uint32_t model = number_of(action->attempt.model);
    CHECK(held->memory == MEMORY_LOADED);
    CHECK(held->version == node->told[model]); /* I19 */
    held->in_flight++;
    node->slots[action->attempt.call].model = number_of(action->attempt.model);
    uint32_t most = model_concurrency(world, model);
    CHECK(most == 0 || held->in_flight <= most); /* S6 */
    node->slots[action->attempt.call].serving = true;
    later(world, 1 + draw(world, 200),
          (struct task){.run = served,
                        .node = number,
                        .life = node->life,
                        .a = action->attempt.call,
                        .b = action->attempt.number,
                        .c = held->version});
}

struct call_message {
    struct slot slot;
    enum mesh_hop hop;
    int64_t deadline_ms;
    uint64_t create_revision;
    uint32_t tried_count;
    struct mesh_tried tried[MESH_TRIED_MAX];
};

static void
call_arrives(struct world *world, struct task *task)
{
    struct call_message *message = task->data;
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL ||
        world->link_broken_until_ms[message->slot.node][task->node] > world->now_ms) {
        reply(world, &message->slot, task->node, MESH_END_UNREACHABLE);
        return;
    }
    uint32_t number = slot_take(node);
    node->slots[number] = message->slot;
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_CALL,
                                  .call = {.call = number,
                                           .model = model_name(message->slot.model),
                                           .hop = message->hop,
                                           .deadline_ms = message->deadline_ms,
                                           .create_revision = message->create_revision,
                                           .tried = message->tried,
                                           .tried_count = message->tried_count}});
}

static void
do_forward(struct world *world, uint32_t number, const struct mesh_action *action)
{
    struct node *node = &world->nodes[number];
    struct slot *slot = &node->slots[action->attempt.call];
    slot->attempt = action->attempt.number;
    if (slot->model != number_of(action->attempt.model))
        slot->loads = 0; /* another model of its vmodel */
    slot->model = number_of(action->attempt.model);
    uint32_t there = number_of(action->attempt.instance);
    CHECK(there != number && slot->depth < HOPS_MAX); /* I8 */
    if (action->attempt.hop == MESH_HOP_LOAD) {
        CHECK((slot->loads & 1u << there) == 0 || slot->vmodel != NOBODY); /* I8: nobody twice */
        slot->loads |= 1u << there;
    }
    struct call_message *message = calloc(1, sizeof(*message));
    CHECK(message != NULL);
    *message = (struct call_message){
        .slot = {.origin = ORIGIN_PEER,
                 .depth = slot->depth + 1,
                 .model = slot->model,
                 .vmodel = NOBODY,
                 .node = number,
                 .life = node->life,
                 .call = action->attempt.call,
                 .number = action->attempt.number},
        .hop = action->attempt.hop,
        .deadline_ms = action->attempt.deadline_ms,
        .create_revision = action->attempt.create_revision,
        .tried_count = action->attempt.tried_count,
    };
    for (uint32_t i = 0; i < message->tried_count; i++) {
        message->tried[i] = action->attempt.tried[i];
        message->tried[i].instance = node_name(number_of(message->tried[i].instance));
        if (message->tried[i].list != MESH_LIST_HIT && action->attempt.hop == MESH_HOP_LOAD)
            CHECK(number_of(message->tried[i].instance) != there);
    }
    later(world, 1 + draw(world, 20),
          (struct task){.run = call_arrives, .node = there, .data = message});
}

static uint64_t
memory_used(const struct node *node)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < MODELS_MAX; i++)
        used += node->held[i].memory != MEMORY_NONE ? node->held[i].bytes : 0;
    return used;
}

static void
sized(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh != NULL && node->life == task->life)
        node_step(world, task->node,
                  (struct mesh_event){.kind = MESH_SIZE_PREDICTED,
                                      .loaded = {.ticket = task->c, .size_bytes = task->a}});
}

static void
loaded(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    struct held *held = &node->held[task->a];
    CHECK(held->memory == MEMORY_LOADING);
    struct mesh_event event = {.kind = MESH_LOAD_ENDED, .loaded = {.ticket = task->c}};
    if (world->faulty && happens(world, world->faults.load_fails)) {
        bool tried = draw(world, 2) == 0;
        event.loaded.end = tried ? MESH_LOAD_BROKE : MESH_LOAD_NOT_ATTEMPTED;
        event.loaded.reason = "broken";
        held->memory = tried ? MEMORY_LOADED : MEMORY_NONE;
    } else {
        held->memory = MEMORY_LOADED;
        if (world->faulty && happens(world, world->faults.size_lies)) {
            held->bytes += held->bytes / 2;
            node->excess += held->bytes / 3;
        }
        event.loaded.size_bytes = held->bytes;
        event.loaded.max_concurrency = model_concurrency(world, task->a);
    }
    node_step(world, task->node, event);
}

static void
do_load(struct world *world, uint32_t number, const struct mesh_action *action)
{
    struct node *node = &world->nodes[number];
    uint32_t model = number_of(action->load.model);
    struct held *held = &node->held[model];
    CHECK(held->memory == MEMORY_NONE); /* I2 */
    uint64_t version = strtoull(action->load.path + 1, NULL, 10);
    CHECK(node->claimed[model] == version); /* I3 */
    bool allowed = !node->constrained || number % 2 == 0;
    CHECK(allowed || world->now_ms - node->heard_ms <= 1000); /* H3: within a tick */
    *held = (struct held){.memory = MEMORY_LOADING,
                          .bytes = world->model_bytes * (1 + model % 4),
                          .version = version};
    CHECK(memory_used(node) <= world->capacity + node->excess); /* I1 */
    world->loads++;
    later(world, 20 + draw(world, 3000),
          (struct task){.run = loaded,
                        .node = number,
                        .life = node->life,
                        .a = model,
                        .c = action->load.ticket});
}

static void
unloaded(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    CHECK(node->held[task->a].memory == MEMORY_UNLOADING);
    node->held[task->a] = (struct held){0};
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_UNLOAD_ENDED,
                                  .loaded = {.ticket = task->c, .freed = true}});
}

static void
do_unload(struct world *world, uint32_t number, const struct mesh_action *action)
{
    struct node *node = &world->nodes[number];
    uint32_t model = number_of(action->load.model);
    struct held *held = &node->held[model];
    CHECK(held->memory == MEMORY_LOADED && held->in_flight == 0); /* I2, I4 */
    const struct record *record = &world->records[model];
    bool same = record->exists && record->version == held->version;
    CHECK(!same || !is_registered(place_of(record, number)) || world->faults.txn_late > 0 ||
          world->history > 0); /* I5; who writes a lost record anew says what was */
    held->memory = MEMORY_UNLOADING;
    world->unloads++;
    later(world, 5 + draw(world, 1000),
          (struct task){.run = unloaded,
                        .node = number,
                        .life = node->life,
                        .a = model,
                        .c = action->load.ticket});
}

static void do_ensure(struct world *world, const struct mesh_action *action);

static void
replaced(struct world *world, struct task *task)
{
    const struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    node_kill(world, task->node);
    node_start(world, task->node);
}

/* I18: nothing is there any more; then the process ends, and its successor comes. */
static void
do_drained(struct world *world, uint32_t number)
{
    const struct node *node = &world->nodes[number];
    for (uint32_t i = 0; i < MODELS_MAX; i++)
        CHECK(node->held[i].memory == MEMORY_NONE);
    world->drained++;
    later(world, 2000, (struct task){.run = replaced, .node = number, .life = node->life});
}

static void
carry_out(struct world *world, uint32_t node, const struct mesh_action *action)
{
    trace(world, (uint64_t)node << 32 | (uint64_t)action->kind);
    switch (action->kind) {
    case MESH_DO_TXN: etcd_txn(world, node, &action->txn); break;
    case MESH_DO_SERVE: do_serve(world, node, action); break;
    case MESH_DO_FORWARD: do_forward(world, node, action); break;
    case MESH_DO_ANSWER: slot_end(world, node, action->answer.call, action->answer.end); break;
    case MESH_DO_REPLY: orders_replied(world, node, action); break;
    case MESH_DO_ENSURE: do_ensure(world, action); break;
    case MESH_DO_SIZE:
        later(world, 1 + draw(world, 100),
              (struct task){
                  .run = sized,
                  .node = node,
                  .life = world->nodes[node].life,
                  .a = (uint32_t)(world->model_bytes * (1 + number_of(action->load.model) % 4)),
                  .c = action->load.ticket});
        break;
    case MESH_DO_LOAD: do_load(world, node, action); break;
    case MESH_DO_UNLOAD: do_unload(world, node, action); break;
    case MESH_DO_DRAINED: do_drained(world, node); break;
    }
}

void
node_step(struct world *world, uint32_t node, struct mesh_event event)
{
    struct mesh *mesh = world->nodes[node].mesh;
    event.now_ms = world->now_ms;
    event.wall_ms = wall_of(world, node);
    struct mesh_actions actions = mesh_step(mesh, &event);
    mesh_check(mesh);
    for (uint32_t i = 0; i < actions.count; i++)
        carry_out(world, node, &actions.at[i]);
}

void
node_ensure(struct world *world, uint32_t node, uint32_t model, uint32_t target)
{
    node_step(world, node,
              (struct mesh_event){.kind = MESH_ENSURE,
                                  .ensure = {.model = model_name(model),
                                             .class = MESH_CLASS_COPY,
                                             .where = MESH_HERE,
                                             .target = target}});
}

static void
ensure_arrives(struct world *world, struct task *task)
{
    if (world->nodes[task->node].mesh != NULL)
        node_ensure(world, task->node, task->a, task->b);
}

static void
do_ensure(struct world *world, const struct mesh_action *action)
{
    later(world, 1 + draw(world, 20),
          (struct task){.run = ensure_arrives,
                        .node = number_of(action->ensure.instance),
                        .a = number_of(action->ensure.model),
                        .b = action->ensure.target});
}

/* ---- life ---- */

static void
tick(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    bool first = true; /* of those with a key; sometimes one more believes that it leads */
    for (uint32_t i = 0; i < task->node; i++)
        first = first && !world->keys[i].exists;
    bool leads = first || (world->faulty && happens(world, 100));
    node_step(world, task->node, (struct mesh_event){.kind = MESH_LEADER, .leader = {leads}});
    node_step(world, task->node, (struct mesh_event){.kind = MESH_TICK});
    later(world, 1000, *task);
}

static void
publish(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    if (world->keys[task->node].exists && etcd_is_seen_by(world, task->node)) {
        world->keys[task->node].figures = mesh_figures(node->mesh);
        etcd_put_key(world, task->node);
    }
    later(world, 5000, *task);
}

uint32_t
model_concurrency(const struct world *world, uint32_t model)
{
    return model % 2 == 0 ? world->concurrency : 0;
}

void
node_hear(struct world *world, uint32_t number, bool constrained)
{
    struct node *node = &world->nodes[number];
    static const char *const even[] = {"even"};
    const struct mesh_type_rule rule = {.type = "type", .required = even, .required_count = 1};
    node->constrained = constrained;
    node->heard_ms = world->now_ms;
    node_step(world, number,
              (struct mesh_event){.kind = MESH_TYPES,
                                  .types = {.rules = &rule, .rule_count = constrained ? 1 : 0}});
}

void
node_register(struct world *world, uint32_t number)
{
    etcd_put_key(world, number);
    node_step(world, number,
              (struct mesh_event){.kind = MESH_SESSION, .session = {world->keys[number].session}});
}

void
node_start(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    etcd_drop_key(world, number);
    memset(node->slots, 0, sizeof(node->slots));
    memset(node->orders, 0, sizeof(node->orders));
    memset(node->held, 0, sizeof(node->held));
    memset(node->claimed, 0, sizeof(node->claimed));
    memset(node->told_at, 0, sizeof(node->told_at));
    node->excess = 0;
    node->life++;
    node->watching = false;
    node->constrained = false;
    node->mesh = mesh_create(&(struct mesh_config){.instance = node_name(number),
                                                   .seed = world->random ^ number,
                                                   .models_max = MODELS_MAX,
                                                   .instances_max = NODES_MAX + 1,
                                                   .calls_max = SLOTS_MAX,
                                                   .vmodels_max = VMODELS_MAX,
                                                   .orders_max = ORDERS_MAX,
                                                   .failure_fresh_ms = 60000,
                                                   .gone_ms = 60000,
                                                   .rate_for_more = world->rate_for_more});
    world->keys[number].start_ms = wall_of(world, number);
    world->keys[number].figures = (struct mesh_figures){0};
    world->keys[number].draining = false;
    world->keys[number].version = world->upgrades ? 1 + node->life / 2 : 1;
    node_step(world, number,
              (struct mesh_event){.kind = MESH_RUNTIME,
                                  .runtime = {.capacity_bytes = world->capacity,
                                              .default_bytes = world->model_bytes,
                                              .loaders = 1 + draw(world, 4),
                                              .load_timeout_ms = 9000}});
    if (world->constrained)
        node_hear(world, number, true);
    etcd_list(world, number);
    node_register(world, number);
    struct task task = {.node = number, .life = node->life};
    task.run = tick;
    later(world, draw(world, 1000), task);
    task.run = publish;
    later(world, 100, task);
}

static void
grace_ends(struct world *world, struct task *task)
{
    replaced(world, task);
}

void
node_drain(struct world *world, uint32_t number)
{
    struct instance_key *key = &world->keys[number];
    if (!key->exists || key->draining)
        return;
    key->draining = true;
    etcd_put_key(world, number);
    node_step(world, number, (struct mesh_event){.kind = MESH_DRAIN});
    later(world, 60000,
          (struct task){.run = grace_ends, .node = number, .life = world->nodes[number].life});
}

static void
lease_ends(struct world *world, struct task *task)
{
    const struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL && node->life == task->life)
        etcd_drop_key(world, task->node);
}

void
node_kill(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    mesh_destroy(node->mesh);
    node->mesh = NULL;
    orders_forgotten(world, number);
    for (uint32_t i = 0; i < SLOTS_MAX; i++) {
        struct slot slot = node->slots[i];
        node->slots[i] = (struct slot){0};
        if (slot.origin == ORIGIN_PEER)
            reply(world, &slot, number, MESH_END_UNREACHABLE);
        else if (slot.origin == ORIGIN_CLIENT)
            world->called--; /* its client knows: the connection is gone */
    }
    later(world, LEASE_MS, (struct task){.run = lease_ends, .node = number, .life = node->life});
}

static void
comes_back(struct world *world, struct task *task)
{
    const struct node *node = &world->nodes[task->node];
    if (node->mesh != NULL && node->life == task->life && !world->keys[task->node].exists) {
        if (!etcd_is_seen_by(world, task->node))
            return; /* its key comes back otherwise */
        world->keys[task->node].start_ms = (int64_t)task->c;
        node_register(world, task->node);
    }
}

void
node_lose_lease(struct world *world, uint32_t number)
{
    if (!world->keys[number].exists || !etcd_is_seen_by(world, number))
        return;
    int64_t start_ms = world->keys[number].start_ms;
    etcd_drop_key(world, number);
    if (draw(world, 2) == 0) /* else it does not know yet; the fence does */
        node_step(world, number, (struct mesh_event){.kind = MESH_SESSION});
    later(world, 100 + draw(world, draw(world, 2) ? 20000 : 120000),
          (struct task){.run = comes_back,
                        .node = number,
                        .life = world->nodes[number].life,
                        .c = (uint64_t)start_ms});
}

static void
cancel(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    struct slot *slot = &node->slots[task->a];
    if (node->mesh == NULL || slot->origin != ORIGIN_CLIENT || slot->serial != task->b ||
        slot->serving)
        return;
    *slot = (struct slot){0};
    world->called--;
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_CALL_CANCELLED, .call = {.call = task->a}});
}

void
node_order(struct world *world, uint32_t number, struct mesh_order said)
{
    struct node *node = &world->nodes[number];
    for (said.order = 0; node->orders[said.order].is; said.order++)
        CHECK(said.order < ORDERS_MAX - 1);
    node->orders[said.order] = (struct given){.is = true,
                                              .kind = said.kind,
                                              .model = number_of(said.model),
                                              .vmodel = number_of(said.vmodel)};
    said.deadline_ms = world->now_ms + DEADLINE_MS;
    world->ordered++;
    node_step(world, number, (struct mesh_event){.kind = MESH_ORDER, .order = said});
}

void
node_call(struct world *world, uint32_t number, uint32_t model, uint32_t vmodel)
{
    struct node *node = &world->nodes[number];
    uint32_t call = slot_take(node);
    node->slots[call] = (struct slot){.origin = ORIGIN_CLIENT,
                                      .model = model,
                                      .vmodel = vmodel,
                                      .called_ms = world->now_ms,
                                      .serial = ++world->serials};
    world->called++;
    if (world->faulty && happens(world, world->faults.cancels))
        later(world, draw(world, 500),
              (struct task){.run = cancel, .node = number, .a = call, .b = world->serials});
    node_step(world, number,
              (struct mesh_event){
                  .kind = MESH_CALL,
                  .call = {.call = call,
                           .model = model == NOBODY ? NULL : model_name(model),
                           .vmodel = vmodel == NOBODY ? NULL : vmodel_name(vmodel),
                           .balance = draw(world, 2) ? MESH_BALANCE_CALLER : MESH_BALANCE_NONE,
                           .deadline_ms = world->now_ms + DEADLINE_MS}});
}
