/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's runtime, which loads models. It is slow, or fails, or takes more memory than it said,
 * forgets what it has, keeps what it should give back, crashes, and rests.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "invariants.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/models.h"

enum { LOADERS_MAX = 4, SLOW_MS = 6000, UNLOAD_MS_MAX = 500, DOWN_MS_MAX = 4000 };

uint64_t
runtime_bytes(const struct world *world, uint32_t model)
{
    return world->options.model_bytes * (1 + model % 4);
}

uint64_t
runtime_reserved(struct world *world, uint32_t node, uint32_t model)
{
    struct mesh *mesh = world->nodes[node].mesh;
    uint32_t number = tables_model(&mesh->tables, world->model_names[model]);
    const struct core_entry *entry = entry_of(mesh, model_at(mesh, number));
    return (uint64_t)entry->units * LEDGER_UNIT_BYTES;
}

const char *
runtime_type(const struct world *world, uint32_t model)
{
    if (model % 4 == 3 && world->options.labelled)
        return "heavy";
    return model % 2 == 1 && world->options.pools ? "other" : "type";
}

const char *const runtime_pool_types[NODE_POOLS_MAX] = {"*", "other"};

uint32_t
runtime_pools(const struct world *world, uint32_t node)
{
    return world->options.pools && node % 2 == 1 ? 2 : 1;
}

uint32_t
runtime_pool(const struct world *world, uint32_t node, uint32_t model)
{
    return runtime_pools(world, node) > 1 &&
           strcmp(runtime_type(world, model), runtime_pool_types[1]) == 0;
}

uint32_t
runtime_concurrency(const struct world *world, uint32_t model)
{
    return model % 2 == 0 ? world->options.concurrency : 0;
}

static bool
is_poison(const struct world *world, uint32_t model)
{
    return world->options.poisoned && world->faulty && model + 1 == world->options.models;
}

/* An answer of this life of the runtime; about a load, of this one. */
static bool
is_of_now(const struct world *world, const struct task *task)
{
    return world->nodes[task->node].runtime == task->b;
}

static void
answer_in(struct world *world, uint32_t node, int64_t in_ms, struct task task)
{
    task.b = world->nodes[node].runtime;
    node_later(world, node, in_ms, task);
}

/* ---- sizes ---- */

static void
sized(struct world *world, struct task *task)
{
    if (is_of_now(world, task))
        node_step(world, task->node,
                  (struct mesh_event){
                      .kind = MESH_SIZE_PREDICTED,
                      .loaded = {.ticket = task->c, .size_bytes = runtime_bytes(world, task->a)}});
}

void
runtime_size(struct world *world, uint32_t node, const struct mesh_action *action)
{
    answer_in(
        world, node, 1 + draw(world, STREAM_RUNTIMES, 50),
        (struct task){.run = sized, .a = number_of(action->load.model), .c = action->load.ticket});
}

/* ---- loads ---- */

static uint64_t
size_now(struct world *world, uint32_t model)
{
    uint64_t bytes = runtime_bytes(world, model);
    if (!fault(world, STREAM_RUNTIMES, world->options.faults.size_lies))
        return bytes;
    return draw(world, STREAM_RUNTIMES, 2) ? bytes / 2 : bytes + bytes / 2;
}

/* Until the node is notified, the model counts as what was reserved for it (I1). */
static void
measured(struct world *world, struct task *task)
{
    if (!is_of_now(world, task))
        return;
    struct held *held = &world->nodes[task->node].held[task->a];
    uint64_t bytes = size_now(world, task->a);
    if (held->ticket == task->c)
        held->bytes = bytes;
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_SIZE_MEASURED,
                                  .loaded = {.ticket = task->c, .size_bytes = bytes}});
}

static bool
is_measured_late(struct world *world)
{
    return world->options.faults.sizes_late > 0 &&
           fault(world, STREAM_RUNTIMES, world->options.faults.sizes_late);
}

static void
loaded(struct world *world, struct task *task)
{
    if (!is_of_now(world, task))
        return;
    const struct faults *faults = &world->options.faults;
    struct held *held = &world->nodes[task->node].held[task->a];
    CHECK(held->memory == MEMORY_LOADING);
    struct mesh_event event = {.kind = MESH_LOAD_ENDED, .loaded = {.ticket = task->c}};
    bool fails = fault(world, STREAM_RUNTIMES, faults->load_fails) || is_poison(world, task->a);
    if (fails) {
        bool tried = draw(world, STREAM_RUNTIMES, 2) == 0;
        event.loaded.end = tried ? MESH_LOAD_BROKE : MESH_LOAD_NOT_ATTEMPTED;
        event.loaded.reason = "broken";
        held->memory = tried ? MEMORY_LOADED : MEMORY_NONE;
    } else {
        held->memory = MEMORY_LOADED;
        if (is_measured_late(world))
            answer_in(world, task->node, 1 + draw(world, STREAM_RUNTIMES, SLOW_MS),
                      (struct task){.run = measured, .a = task->a, .c = task->c});
        else
            event.loaded.size_bytes = held->bytes = size_now(world, task->a);
        event.loaded.max_concurrency = runtime_concurrency(world, task->a);
    }
    observe(world,
            (struct sight){.kind = SAW_LOADED, .node = task->node, .model = task->a, .ok = !fails});
    node_step(world, task->node, event);
}

/* It hangs: the edge has given it up, and has the runtime end it. */
static void
given_up(struct world *world, struct task *task)
{
    if (!is_of_now(world, task))
        return;
    world->nodes[task->node].held[task->a].memory = MEMORY_LOADED;
    observe(world, (struct sight){.kind = SAW_LOADED, .node = task->node, .model = task->a});
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_LOAD_ENDED,
                                  .loaded = {.ticket = task->c,
                                             .end = MESH_LOAD_BROKE,
                                             .reason = "the runtime did not answer"}});
}

void
runtime_hang(struct world *world, uint32_t node, int64_t for_ms)
{
    world->nodes[node].hangs_until_ms = world->now_ms + for_ms;
}

void
runtime_load(struct world *world, uint32_t number, const struct mesh_action *action)
{
    struct node *node = &world->nodes[number];
    uint32_t model = number_of(action->load.model);
    struct held *held = &node->held[model];
    uint64_t version = strtoull(action->load.path + 1, NULL, 10);
    observe(world,
            (struct sight){.kind = SAW_LOAD, .node = number, .model = model, .number = version});
    *held = (struct held){.memory = MEMORY_LOADING,
                          .bytes = runtime_reserved(world, number, model),
                          .ticket = action->load.ticket,
                          .version = version};
    world->loads++;
    int64_t in_ms = 20 + draw(world, STREAM_RUNTIMES, world->options.load_ms);
    if (fault(world, STREAM_RUNTIMES, world->options.faults.load_slow))
        in_ms += SLOW_MS;
    bool hangs = world->now_ms < node->hangs_until_ms;
    if (hangs)
        in_ms = LOAD_GIVEN_UP_MS;
    answer_in(
        world, number, in_ms,
        (struct task){.run = hangs ? given_up : loaded, .a = model, .c = action->load.ticket});
}

static void
unloaded(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (!is_of_now(world, task))
        return;
    struct held *held = &node->held[task->a];
    CHECK(held->memory == MEMORY_UNLOADING);
    bool keeps = fault(world, STREAM_RUNTIMES, world->options.faults.keeps);
    if (keeps)
        node->kept_bytes[runtime_pool(world, task->node, task->a)] += held->bytes;
    *held = (struct held){0};
    observe(world, (struct sight){.kind = SAW_UNLOADED, .node = task->node, .model = task->a});
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_UNLOAD_ENDED,
                                  .loaded = {.ticket = task->c, .freed = !keeps}});
}

void
runtime_unload(struct world *world, uint32_t number, const struct mesh_action *action)
{
    struct node *node = &world->nodes[number];
    uint32_t model = number_of(action->load.model);
    observe(world, (struct sight){.kind = SAW_UNLOAD, .node = number, .model = model});
    node->held[model].memory = MEMORY_UNLOADING;
    world->unloads++;
    answer_in(world, number, 5 + draw(world, STREAM_RUNTIMES, UNLOAD_MS_MAX),
              (struct task){.run = unloaded, .a = model, .c = action->load.ticket});
}

/* ---- its life ---- */

static void
notify_rest(struct world *world, uint32_t node, bool rests)
{
    for (uint32_t i = 0; i < runtime_pools(world, node); i++)
        node_step(world, node, (struct mesh_event){.kind = MESH_RUNTIME_RESTS, .rest = {i, rests}});
}

void
runtime_start(struct world *world, uint32_t node)
{
    for (uint32_t i = 0; i < runtime_pools(world, node); i++)
        node_step(world, node,
                  (struct mesh_event){
                      .kind = MESH_RUNTIME,
                      .runtime = {.capacity_bytes = world->options.capacity_bytes,
                                  .default_bytes = world->options.model_bytes,
                                  .loaders = 1 + draw(world, STREAM_RUNTIMES, LOADERS_MAX),
                                  .load_timeout_ms = LOAD_TIMEOUT_MS,
                                  .pool = i}});
    if (world->options.faults.rests > 0)
        notify_rest(world, node, false);
}

static void
starts_again(struct world *world, struct task *task)
{
    if (is_of_now(world, task))
        runtime_start(world, task->node);
}

static void
lose(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    node->runtime++;
    memset(node->kept_bytes, 0, sizeof(node->kept_bytes));
    observe(world, (struct sight){.kind = SAW_TROUBLE, .node = number});
    for (uint32_t i = 0; i < world->options.models; i++) {
        bool had = node->held[i].memory != MEMORY_NONE;
        node->held[i] = (struct held){0};
        if (had)
            observe(world, (struct sight){.kind = SAW_LOST, .node = number, .model = i});
    }
    for (uint32_t i = 0; i < runtime_pools(world, number); i++)
        node_step(world, number,
                  (struct mesh_event){.kind = MESH_RUNTIME_LOST, .lost = {.pool = i}});
}

void
runtime_crash(struct world *world, uint32_t number)
{
    lose(world, number);
    answer_in(world, number, 100 + draw(world, STREAM_RUNTIMES, DOWN_MS_MAX),
              (struct task){.run = starts_again});
}

static bool
is_busy(const struct world *world, uint32_t number)
{
    const struct mesh *mesh = world->nodes[number].mesh;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        const struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state != MESH_STATE_NONE &&
            (entry->state != MESH_STATE_LOADED || entry->in_flight + entry->waiting > 0))
            return true;
    }
    return false;
}

/* R14: calls wait for it from now on. */
void
runtime_rest(struct world *world, uint32_t number)
{
    if (is_busy(world, number))
        return;
    notify_rest(world, number, true);
    lose(world, number);
    answer_in(world, number, 100 + draw(world, STREAM_RESTS, DOWN_MS_MAX),
              (struct task){.run = starts_again});
}
