/* SPDX-License-Identifier: Apache-2.0 */
/* The world's time, its chances, and its beginning and end. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "base/check.h"
#include "invariants.h"

uint32_t
draw(struct world *world, enum stream stream, uint32_t below)
{
    return (uint32_t)(random_draw(&world->random[stream]) % below);
}

bool
happens(struct world *world, enum stream stream, uint32_t per_mille)
{
    return per_mille > 0 && draw(world, stream, 1000) < per_mille;
}

bool
fault(struct world *world, enum stream stream, uint32_t per_mille)
{
    bool is = world->faulty && happens(world, stream, per_mille);
    world->faults_done += is;
    return is;
}

void
trace(struct world *world, uint64_t what)
{
    uint64_t state = world->trace ^ what ^ (uint64_t)world->now_ms << 20;
    world->trace = random_draw(&state);
}

uint32_t
number_of(const char *name)
{
    return (uint32_t)strtoul(name + strcspn(name, "0123456789"), NULL, 10);
}

/* ---- time ---- */

static bool
sooner(const struct task *a, const struct task *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static void
swap(struct task *a, struct task *b)
{
    struct task kept = *a;
    *a = *b;
    *b = kept;
}

void
later(struct world *world, int64_t in_ms, struct task task)
{
    if (world->task_count == world->task_capacity) {
        world->task_capacity = world->task_capacity * 2 + 64;
        world->tasks = reallocarray(world->tasks, world->task_capacity, sizeof(*world->tasks));
        CHECK(world->tasks != NULL);
    }
    task.at_ms = world->now_ms + in_ms;
    task.order = world->task_order++;
    uint32_t at = world->task_count++;
    world->tasks[at] = task;
    for (; at > 0 && sooner(&world->tasks[at], &world->tasks[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&world->tasks[at], &world->tasks[(at - 1) / 2]);
}

void
node_later(struct world *world, uint32_t node, int64_t in_ms, struct task task)
{
    task.node = node;
    task.life = world->nodes[node].life;
    task.inside = true;
    later(world, in_ms, task);
}

static struct task
take(struct world *world)
{
    struct task first = world->tasks[0];
    world->tasks[0] = world->tasks[--world->task_count];
    for (uint32_t at = 0;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2; child++)
            if (child < world->task_count && sooner(&world->tasks[child], &world->tasks[least]))
                least = child;
        if (least == at)
            return first;
        swap(&world->tasks[at], &world->tasks[least]);
        at = least;
    }
}

static void
perform(struct world *world, struct task *task)
{
    const struct node *node = &world->nodes[task->node];
    if (task->life != LIFE_ANY && (node->mesh == NULL || node->life != task->life))
        return;
    if (task->inside && node->mesh != NULL && node->paused_until_ms > world->now_ms)
        later(world, node->paused_until_ms - world->now_ms, *task);
    else
        task->run(world, task);
}

void
world_run(struct world *world, int64_t for_ms)
{
    int64_t until_ms = world->now_ms + for_ms;
    while (world->task_count > 0 && world->tasks[0].at_ms <= until_ms) {
        struct task task = take(world);
        world->now_ms = task.at_ms;
        perform(world, &task);
    }
    world->now_ms = until_ms;
}

/* ---- beginning and end ---- */

static void
name_all(struct world *world)
{
    const struct options *options = &world->options;
    world->node_names = arena_take(&world->arena, options->nodes * sizeof(*world->node_names));
    world->model_names = arena_take(&world->arena, options->models * sizeof(*world->model_names));
    world->vmodel_names =
        arena_take(&world->arena, options->vmodels * sizeof(*world->vmodel_names));
    for (uint32_t i = 0; i < options->vmodels; i++)
        snprintf(world->vmodel_names[i], sizeof(world->vmodel_names[i]), "v%u", i % 100000);
    for (uint32_t i = 0; i < options->nodes; i++)
        snprintf(world->node_names[i], sizeof(world->node_names[i]), "mesh-n%u", i % 100000);
    for (uint32_t i = 0; i < options->models; i++)
        snprintf(world->model_names[i], sizeof(world->model_names[i]), "m%u", i % 100000);
}

static void
etcd_second(struct world *world, struct task *task)
{
    int64_t before = fake_etcd_revision(world->etcd);
    fake_etcd_advance(world->etcd, world->now_ms);
    if (fake_etcd_revision(world->etcd) != before)
        registry_announce(world);
    later(world, 500, *task);
}

void
world_init(struct world *world, uint64_t seed)
{
    world_init_as(world, seed, NULL);
}

void
world_init_as(struct world *world, uint64_t seed, void (*adjust)(struct world *world))
{
    *world = (struct world){.seed = seed, .faulty = true};
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        world->random[i] = seed * STREAMS_SEEDED + i;
        world->random[i] = random_draw(&world->random[i]);
    }
    options_draw(world);
    if (adjust != NULL)
        adjust(world);
    const struct options *options = &world->options;
    world->constrained = options->labelled;
    world->etcd = fake_etcd_create();
    world->nodes = arena_take(&world->arena, options->nodes * sizeof(*world->nodes));
    size_t ports = options->nodes + 1;
    world->cut_until_ms = arena_take(&world->arena, ports * ports * sizeof(*world->cut_until_ms));
    name_all(world);
    invariants_init(world);
    for (uint32_t i = 0; i < options->models; i++)
        registry_register(world, i);
    for (uint32_t i = 0; i < options->nodes; i++) {
        uint32_t skew = draw(world, STREAM_OPTIONS, 20000);
        world->nodes[i].skew_ms = options->skewed ? (int64_t)skew - 10000 : 0;
        if (i < options->wrong_clocks)
            world->nodes[i].skew_ms += clock_draw_skew(world);
        node_start(world, i);
    }
    later(world, 500, (struct task){.run = etcd_second, .life = LIFE_ANY});
    clients_start(world);
    chaos_start(world);
}

void
world_fini(struct world *world)
{
    for (uint32_t i = 0; i < world->options.nodes; i++) {
        if (world->nodes[i].mesh != NULL)
            mesh_destroy(world->nodes[i].mesh);
        free(world->nodes[i].slots);
    }
    fake_etcd_destroy(world->etcd);
    free(world->tasks);
    free(world->calls);
    arena_fini(&world->arena);
}
