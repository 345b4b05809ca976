/* SPDX-License-Identifier: Apache-2.0 */
/* The world's time, its chances, and what is checked when all is well again. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "base/check.h"

enum {
    REST_SECONDS = 60,
    FORGOTTEN_MS = 30000,
    ROOMY = 200,
    LINK_MS_MAX = 20000,
    DOWN_MS_MAX = 30000
};

uint32_t
draw(struct world *world, uint32_t below)
{
    return (uint32_t)(random_draw(&world->random) % below);
}

bool
happens(struct world *world, uint32_t per_mille)
{
    return draw(world, 1000) < per_mille;
}

void
trace(struct world *world, uint64_t what)
{
    uint64_t state = world->trace ^ what ^ (uint64_t)world->now_ms << 20;
    world->trace = random_draw(&state);
}

int64_t
wall_of(const struct world *world, uint32_t node)
{
    return INT64_C(1700000000000) + world->now_ms + world->nodes[node].skew_ms;
}

const char *
node_name(uint32_t node)
{
    static char names[NODES_MAX][8];
    snprintf(names[node], sizeof(names[node]), "n%u", node % NODES_MAX);
    return names[node];
}

const char *
model_name(uint32_t model)
{
    static char names[MODELS_MAX][8];
    if (model == NOBODY)
        return "";
    snprintf(names[model], sizeof(names[model]), "m%u", model % MODELS_MAX);
    return names[model];
}

const char *
vmodel_name(uint32_t vmodel)
{
    static char names[VMODELS_MAX][8];
    snprintf(names[vmodel], sizeof(names[vmodel]), "x%u", vmodel % VMODELS_MAX);
    return names[vmodel];
}

uint32_t
number_of(const char *name)
{
    return name == NULL || name[0] == '\0' ? NOBODY : (uint32_t)strtoul(name + 1, NULL, 10);
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

void
world_run(struct world *world, int64_t for_ms)
{
    int64_t until_ms = world->now_ms + for_ms;
    while (world->task_count > 0 && world->tasks[0].at_ms <= until_ms) {
        struct task task = take(world);
        world->now_ms = task.at_ms;
        void *data = task.data;
        task.run(world, &task);
        free(data);
    }
    world->now_ms = until_ms;
}

/* ---- chance ---- */

static void
start_again(struct world *world, struct task *task)
{
    if (world->nodes[task->node].mesh == NULL)
        node_start(world, task->node);
}

static void
hears(struct world *world, struct task *task)
{
    const struct node *node = &world->nodes[task->node];
    if (node->mesh != NULL && node->life == task->life)
        node_hear(world, task->node, world->constrained); /* as it is by now */
}

/* Each node hears of it in its time. */
static void
constrain(struct world *world, bool constrained)
{
    world->constrained = constrained;
    for (uint32_t i = 0; i < world->node_count; i++)
        later(world, draw(world, 3000),
              (struct task){.run = hears, .node = i, .life = world->nodes[i].life});
}

/* Somebody is left who can load, when that one drains, too. */
static bool
some_stay(const struct world *world, uint32_t but)
{
    bool stay = false;
    for (uint32_t i = 0; i < world->node_count; i++)
        stay |= i != but && world->keys[i].exists && !world->keys[i].draining;
    return stay;
}

static void
misfortune(struct world *world, struct task *task)
{
    if (!world->faulty)
        return;
    uint32_t node = draw(world, world->node_count);
    if (happens(world, world->faults.kills) && world->nodes[node].mesh != NULL) {
        node_kill(world, node);
        later(world, draw(world, DOWN_MS_MAX), (struct task){.run = start_again, .node = node});
    }
    node = draw(world, world->node_count);
    if (happens(world, world->faults.leases) && world->nodes[node].mesh != NULL)
        node_lose_lease(world, node);
    node = draw(world, world->node_count);
    if (happens(world, world->faults.drains) && world->nodes[node].mesh != NULL &&
        (world->node_count < 4 || some_stay(world, node)))
        node_drain(world, node);
    if (happens(world, world->faults.links))
        world
            ->link_broken_until_ms[draw(world, world->node_count)][draw(world, world->node_count)] =
            world->now_ms + draw(world, LINK_MS_MAX);
    if (happens(world, world->faults.replacements)) {
        uint32_t model = draw(world, world->model_count);
        struct record anew = world->records[model];
        if (anew.exists)
            etcd_put_model(world, model, (struct record){.exists = false});
        etcd_register(world, model, &anew);
    }
    if (happens(world, world->faults.orders))
        orders_client(world);
    if (happens(world, world->faults.constraints))
        constrain(world, !world->constrained);
    if (happens(world, world->faults.emptied))
        etcd_empty(world);
    uint32_t model = draw(world, world->model_count);
    if (world->history > 0 && !world->records[model].exists && world->faults.orders == 0 &&
        world->now_ms - world->emptied_ms > FORGOTTEN_MS)
        etcd_register(world, model, NULL); /* nobody who knew it has lived on */
    later(world, 1000, *task);
}

/* Half of the calls are for a quarter of the models. */
static void
client(struct world *world, struct task *task)
{
    uint32_t node = draw(world, world->node_count);
    uint32_t below = draw(world, 2) ? (world->model_count + 3) / 4 : world->model_count;
    if (world->nodes[node].mesh != NULL && happens(world, 100))
        node_ensure(world, node, draw(world, below), 1);
    else if (world->nodes[node].mesh != NULL && world->vmodel_count > 0 && draw(world, 2))
        node_call(world, node, NOBODY, draw(world, world->vmodel_count));
    else if (world->nodes[node].mesh != NULL)
        node_call(world, node, draw(world, below), NOBODY);
    if (world->faulty)
        later(world, 1 + draw(world, 300), *task);
}

static uint32_t
rate(struct world *world, uint32_t most)
{
    return draw(world, 2) ? draw(world, most) : 0;
}

void
world_init(struct world *world, uint64_t seed)
{
    world->random = seed;
    world->faulty = true;
    world->node_count = 1 + draw(world, NODES_MAX);
    world->model_count = 1 + draw(world, MODELS_MAX);
    world->model_bytes = UINT64_C(8192) * (1 + draw(world, 20));
    world->rate_for_more = draw(world, 2) ? 60 : 1000000;
    world->capacity = world->model_bytes * (draw(world, 4) == 0 ? ROOMY : 10 + draw(world, 40));
    world->faults = (struct faults){
        .txn_lost = rate(world, 100),
        .txn_unheard = rate(world, 100),
        .txn_late = rate(world, 100),
        .load_fails = rate(world, 200),
        .size_lies = rate(world, 200),
        .kills = rate(world, 60),
        .leases = rate(world, 60),
        .links = rate(world, 200),
        .forgets = rate(world, 20),
        .cancels = rate(world, 300),
        .drains = rate(world, 60),
        .replacements = rate(world, 100),
        .constraints = rate(world, 60),
        .emptied = draw(world, 4) == 0 ? draw(world, 40) : 0,
        .orders = rate(world, 1000),
        .forced = draw(world, 2) == 0,
    };
    world->vmodel_count = world->faults.orders == 0 ? 0 : draw(world, VMODELS_MAX + 1);
    world->concurrency = draw(world, 2) ? 1 + draw(world, 4) : 0;
    world->upgrades = draw(world, 2) == 0;
    bool skewed = draw(world, 2) == 0;
    for (uint32_t i = 0; i < world->model_count; i++)
        etcd_register(world, i, NULL);
    for (uint32_t i = 0; i < world->node_count; i++) {
        world->nodes[i].skew_ms = skewed ? (int64_t)draw(world, 20000) - 10000 : 0;
        node_start(world, i);
    }
    later(world, 1000, (struct task){.run = misfortune});
    later(world, 0, (struct task){.run = client});
}

void
world_fini(struct world *world)
{
    for (uint32_t i = 0; i < world->node_count; i++)
        if (world->nodes[i].mesh != NULL)
            mesh_destroy(world->nodes[i].mesh);
    for (uint32_t i = 0; i < world->task_count; i++)
        free(world->tasks[i].data);
    for (uint32_t i = 0; i < VMODELS_MAX; i++)
        free(world->histories[i]);
    free(world->tasks);
    free(world->changes);
}

/* ---- when all is well ---- */

void
report(const struct world *world, uint32_t model)
{
    const struct record *record = &world->records[model];
    fprintf(stderr, "\nat %lld ms, %u nodes, %u models, called %llu, answered %llu; m%u:",
            (long long)world->now_ms, world->node_count, world->model_count,
            (unsigned long long)world->called, (unsigned long long)world->answered, model);
    for (uint32_t i = 0; i < record->count; i++)
        fprintf(stderr, " n%u kind %d since %lld", record->places[i].node,
                (int)record->places[i].kind, (long long)record->places[i].since_ms);
    fprintf(stderr, "\nends:");
    for (int i = 0; i <= MESH_END_DEADLINE; i++)
        fprintf(stderr, " %llu", (unsigned long long)world->ends[i]);
    for (uint32_t n = 0; n < world->node_count; n++) {
        const struct node *node = &world->nodes[n];
        if (node->mesh == NULL)
            continue;
        struct mesh_figures figures = mesh_figures(node->mesh);
        fprintf(stderr, "\nn%u: state %d, %llu free of %llu units, oldest %lld ms, full %d", n,
                (int)mesh_state(node->mesh, model_name(model)),
                (unsigned long long)figures.free_units, (unsigned long long)figures.capacity_units,
                (long long)(wall_of(world, n) - figures.oldest_ms), figures.full);
        for (uint32_t i = 0; i < SLOTS_MAX; i++)
            if (node->slots[i].origin != ORIGIN_NONE)
                fprintf(stderr, "\n  call %u from %d for m%u", i, (int)node->slots[i].origin,
                        node->slots[i].model);
    }
    fprintf(stderr, "\n");
}

static bool
is_at_rest(const struct world *world)
{
    for (uint32_t n = 0; n < world->node_count; n++)
        for (uint32_t m = 0; m < world->model_count; m++) {
            const struct node *node = &world->nodes[n];
            enum mesh_state state =
                node->mesh == NULL ? MESH_STATE_NONE : mesh_state(node->mesh, model_name(m));
            const struct place_kept *place = place_of(&world->records[m], n);
            if ((state != MESH_STATE_NONE && state != MESH_STATE_LOADED) ||
                (node->mesh != NULL && is_registered(place) && place->kind != MESH_PLACE_LOADED))
                return false;
        }
    return true;
}

/* I5, L2: what the records say is what the runtimes hold; loads in advance (G3) have to end first.
 */
static void
check_truth(struct world *world)
{
    for (int i = 0; i < REST_SECONDS && !is_at_rest(world); i++)
        world_run(world, 1000);
    CHECK(is_at_rest(world));
    for (uint32_t m = 0; m < world->model_count; m++) {
        const struct record *record = &world->records[m];
        for (uint32_t n = 0; n < world->node_count; n++) {
            const struct held *held = &world->nodes[n].held[m];
            const struct place_kept *place = place_of(record, n);
            bool says = is_registered(place);
            if (says != (held->memory == MEMORY_LOADED))
                report(world, m);
            CHECK(!says || world->nodes[n].mesh != NULL); /* L2 */
            CHECK(says == (held->memory == MEMORY_LOADED));
            CHECK(!says || place->kind == MESH_PLACE_LOADED);
            CHECK(!says || held->version == record->version);
            CHECK(record->exists || !says);
            CHECK(held->in_flight == 0);
        }
    }
}

/* I7: with room for all, and nothing but transactions and nodes that drain, or an etcd that is
 * emptied, no call may fail but for want of time. (A node that begins with an empty etcd knows of
 * no model until the others have written them anew.) */
static void
check_answers(const struct world *world)
{
    const struct faults *faults = &world->faults;
    bool calm = faults->load_fails + faults->kills + faults->leases + faults->links +
                    faults->replacements + faults->constraints ==
                0;
    bool enough = faults->drains == 0 || (world->node_count >= 4 && faults->emptied == 0);
    if (!calm || !enough || world->capacity < world->model_bytes * ROOMY)
        return;
    CHECK(world->vmodels_failed == 0);
    if (faults->orders == 0) /* else they unregister models */
        CHECK(world->answered == world->ends[MESH_END_OK] +
                                     world->ends[MESH_END_DEADLINE] + /* one loader, a long queue */
                                     world->ends[MESH_END_OVERLOADED] * (world->concurrency > 0));
}

void
world_converge(struct world *world)
{
    world->faulty = false;
    constrain(world, false);
    for (uint32_t i = 0; i < NODES_MAX; i++)
        for (uint32_t j = 0; j < NODES_MAX; j++)
            world->link_broken_until_ms[i][j] = 0;
    world_run(world, DOWN_MS_MAX + LINK_MS_MAX + 120000);
    for (uint32_t i = 0; i < world->node_count; i++)
        CHECK(world->nodes[i].mesh != NULL && world->keys[i].exists && !world->keys[i].draining);
    if (world->called != world->answered)
        report(world, 0);
    CHECK(world->called == world->answered); /* I6 */
    CHECK(world->ordered == world->replied);
    check_answers(world);
    uint32_t lost = world->node_count - 1;
    if (lost > 0 && draw(world, 3) == 0) { /* for good */
        node_kill(world, lost);
        memset(world->nodes[lost].held, 0, sizeof(world->nodes[lost].held));
    }
    world_run(world, 150000); /* failures expire, the lost one's places go */
    orders_converge(world);
    check_truth(world);
    for (uint32_t i = 0; i < world->model_count; i++) { /* L3, one after the other: all fit */
        uint64_t ok = world->ends[MESH_END_OK];
        uint32_t node = draw(world, world->node_count);
        node_call(world, world->nodes[node].mesh != NULL ? node : 0, i, NOBODY);
        world_run(world, 40000);
        if (world->ends[MESH_END_OK] != ok + 1)
            report(world, i);
        CHECK(world->ends[MESH_END_OK] == ok + 1);
    }
    for (uint32_t i = 0; i < world->vmodel_count; i++) {
        uint64_t ok = world->ends[MESH_END_OK];
        node_call(world, 0, NOBODY, i);
        world_run(world, 40000);
        CHECK(world->ends[MESH_END_OK] == ok + world->vrecords[i].exists);
    }
    world_run(world, 20000);
    check_truth(world);
}
