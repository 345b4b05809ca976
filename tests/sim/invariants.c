/* SPDX-License-Identifier: Apache-2.0 */
#include "invariants.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec.h"
#include "mesh/core/state.h"

static const struct invariant *const ALL[] = {
    &I01_capacity,
    &I02_one_activity,
    &I03_claims,
    &I04_no_unload_under_call,
    &I05_withdraw_first,
    &I06_one_end,
    &I07_no_call_lost,
    &I08_forwarding_ends,
    &I09_deadlines_shrink,
    &I10_mirror,
    &I11_no_lost_update,
    &I12_fence,
    &I13_vmodels,
    &I14_references,
    &I15_oldest_first,
    &I16_churn,
    &I17_failures,
    &I18_drain,
    &I19_right_answer,
    &L1_convergence,
    &L2_no_orphans,
    &L3_demand,
    &L4_rest,
    &L5_one_leader,
    &B3_maximum,
    &B4_minimum,
    &B5_needed_copies,
    &H1_labels,
    &M1_one_time,
    &S6_permits,
    &R14_room,
    &W1_nothing_forgotten,
};

/* An invariant's own memory. */
struct memory_of {
    unsigned char *pairs;
    unsigned char *nodes;
    unsigned char *models;
};

struct invariants {
    struct memory_of of[ARRAY_COUNT(ALL)];
};

void
invariants_init(struct world *world)
{
    size_t nodes = world->options.nodes;
    size_t models = world->options.models;
    world->invariants = arena_take(&world->arena, sizeof(*world->invariants));
    for (size_t i = 0; i < ARRAY_COUNT(ALL); i++)
        world->invariants->of[i] = (struct memory_of){
            .pairs = arena_take(&world->arena, ALL[i]->pair_bytes * nodes * models),
            .nodes = arena_take(&world->arena, ALL[i]->node_bytes * nodes),
            .models = arena_take(&world->arena, ALL[i]->model_bytes * models),
        };
}

void
observe(struct world *world, struct sight sight)
{
    for (size_t i = 0; i < ARRAY_COUNT(ALL); i++)
        if ((ALL[i]->sees & UINT32_C(1) << sight.kind) != 0)
            ALL[i]->see(world, &sight);
}

static struct memory_of *
memory_of(struct world *world, const struct invariant *invariant)
{
    for (size_t i = 0; i < ARRAY_COUNT(ALL); i++)
        if (ALL[i] == invariant)
            return &world->invariants->of[i];
    UNREACHABLE();
}

void *
of_pair(struct world *world, const struct invariant *invariant, uint32_t node, uint32_t model)
{
    size_t at = (size_t)node * world->options.models + model;
    return memory_of(world, invariant)->pairs + at * invariant->pair_bytes;
}

void *
of_node(struct world *world, const struct invariant *invariant, uint32_t node)
{
    return memory_of(world, invariant)->nodes + node * invariant->node_bytes;
}

void *
of_model(struct world *world, const struct invariant *invariant, uint32_t model)
{
    return memory_of(world, invariant)->models + model * invariant->model_bytes;
}

/* For debugging. */
static void
print_nodes(const struct world *world)
{
    for (uint32_t i = 0; i < world->options.nodes && i < 16; i++) {
        const struct node *node = &world->nodes[i];
        if (node->mesh == NULL)
            continue;
        struct mesh_figures figures = mesh_figures(node->mesh);
        const struct pool *pool = &node->mesh->pools.at[0];
        fprintf(stderr,
                "n%u: session %llu, revision %lld, draining %d, paused until %lld ms, runtime life "
                "%u, %llu units free of %llu, %u may go, %u are young, %u load, %u queue\n",
                i, (unsigned long long)node->registry.session, (long long)node->registry.revision,
                node->draining, (long long)node->paused_until_ms, node->runtime,
                (unsigned long long)figures.free_units, (unsigned long long)figures.capacity_units,
                pool->lru.count, pool->young.count, pool->loading, pool->queue.count);
    }
}

noreturn void
broken(const struct world *world, const struct invariant *invariant, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "\nbroken: %s: at %lld ms: ", invariant->name, (long long)world->now_ms);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    print_nodes(world);
    options_print(world);
    abort();
}

/* ---- what etcd has ---- */

bool
record_then(struct world *world, uint32_t model, uint64_t revision, struct mesh_place *places,
            struct mesh_model *record)
{
    char key[24];
    struct etcd_kv kv;
    snprintf(key, sizeof(key), "m/%s", world->model_names[model]);
    if (!fake_etcd_look(world->etcd, etcd_text(key), (int64_t)revision, &kv))
        return false;
    codec_read_model(&kv, world->model_names[model], places, record);
    return true;
}

bool
record_now(struct world *world, uint32_t model, struct mesh_place *places,
           struct mesh_model *record)
{
    return record_then(world, model, INT64_MAX, places, record);
}

bool
key_now(struct world *world, uint32_t node, struct mesh_instance *instance)
{
    char key[24];
    struct etcd_kv kv;
    snprintf(key, sizeof(key), "i/%s", world->node_names[node]);
    if (!fake_etcd_look(world->etcd, etcd_text(key), INT64_MAX, &kv))
        return false;
    codec_read_instance(&kv, world->node_names[node], instance);
    return true;
}

bool
vmodel_now(struct world *world, uint32_t number, struct mesh_vmodel *vmodel)
{
    char key[24];
    struct etcd_kv kv;
    snprintf(key, sizeof(key), "v/%s", world->vmodel_names[number]);
    if (!fake_etcd_look(world->etcd, etcd_text(key), INT64_MAX, &kv))
        return false;
    codec_read_vmodel(&kv, world->vmodel_names[number], vmodel);
    return true;
}

bool
model_differs(const char *a, const char *b)
{
    return strcmp(a == NULL ? "" : a, b == NULL ? "" : b) != 0;
}

const struct mesh_place *
place_of(const struct mesh_model *record, uint32_t node)
{
    for (uint32_t i = 0; i < record->place_count; i++)
        if (number_of(record->places[i].instance) == node)
            return &record->places[i];
    return NULL;
}

bool
is_registered(const struct mesh_place *place)
{
    return place != NULL && place->kind != MESH_PLACE_FAILED;
}

bool
place_is_alive(struct world *world, const struct mesh_place *place)
{
    struct mesh_instance instance;
    return key_now(world, number_of(place->instance), &instance) &&
           place->since_ms >= instance.start_ms;
}

bool
node_may_hold(const struct world *world, uint32_t node, uint32_t model)
{
    bool requires = world->options.labelled && model % 4 == 3;
    return !requires || node % LABELLED_EVERY == 0;
}
