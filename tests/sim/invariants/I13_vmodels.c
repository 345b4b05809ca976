/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I13. A vmodel is not moved to what is loaded on fewer nodes than what it leaves (as far as nodes
 * are there that have not failed to load it); its calls are answered by what is its active model,
 * or was until a while ago, or as long as the node that has the call is cut off from etcd; and when
 * nobody orders any more, transitions end, unless minima take all memory.
 */
#include "../invariants.h"
#include "mesh/core/state.h"

enum { LAG_MS = 20000 }; /* of a mirror, at most */

struct was_active {
    struct was_active *former;
    int64_t from_ms;
    uint32_t model; /* NODE_NONE: none */
};

/* Of each node; unrest is that of all, kept in the first. */
struct of_one {
    int64_t unrest_ms;
    int64_t reported_ms; /* the registry told it something */
    int64_t again_ms;    /* it did so after a silence longer than LAG_MS */
};

/* Of each vmodel. */
struct history {
    struct was_active *last;
};

static struct history *
history_of(struct world *world, uint32_t vmodel)
{
    struct history *all = of_model(world, &I13_vmodels, 0);
    return &all[vmodel];
}

static uint32_t
model_named(const char *name)
{
    return name == NULL || name[0] == '\0' ? NODE_NONE : number_of(name);
}

/* Nodes that are there, and stay, and have not failed to load it. */
static uint32_t
count_able(struct world *world, const struct mesh_model *record)
{
    uint32_t able = 0;
    for (uint32_t n = 0; n < world->options.nodes; n++) {
        struct mesh_instance key;
        const struct mesh_place *place = place_of(record, n);
        able += key_now(world, n, &key) && !key.draining &&
                (place == NULL || place->kind != MESH_PLACE_FAILED);
    }
    return able;
}

static uint32_t
count_loaded(struct world *world, uint32_t model, uint32_t *able)
{
    struct mesh_place places[64];
    struct mesh_model record = {0};
    (void)record_now(world, model, places, &record);
    uint32_t loaded = 0;
    for (uint32_t i = 0; i < record.place_count; i++)
        loaded += places[i].kind == MESH_PLACE_LOADED && place_is_alive(world, &places[i]);
    *able = count_able(world, &record);
    return loaded;
}

/* Where nothing has happened to any node for a while, the leader saw what there is. */
static bool
is_steady(struct world *world)
{
    const struct of_one *first = of_node(world, &I13_vmodels, 0);
    return !world->options.faults.forced && !world->options.labelled && world->emptied == 0 &&
           world->now_ms - first->unrest_ms > LAG_MS;
}

static void
on_vmodel(struct world *world, const struct sight *sight)
{
    uint32_t was = model_named(sight->vmodel_before->active);
    uint32_t is = model_named(sight->vmodel_after->active);
    if (was == is)
        return;
    struct history *history = history_of(world, (uint32_t)sight->number);
    struct was_active *active = arena_take(&world->arena, sizeof(*active));
    *active = (struct was_active){.former = history->last, .from_ms = world->now_ms, .model = is};
    history->last = active;
    if (was == NODE_NONE || is == NODE_NONE)
        return;
    world->switches++;
    if (!is_steady(world))
        return;
    uint32_t could;
    uint32_t has = count_loaded(world, was, &could);
    uint32_t gets = count_loaded(world, is, &could);
    struct mesh_place places[64];
    struct mesh_model record = {0};
    (void)record_now(world, is, places, &record);
    if (record.bounds.copies_max != 0 && record.bounds.copies_max < could)
        could = record.bounds.copies_max; /* B3 */
    if (gets < has && gets < could)
        broken(world, &I13_vmodels, "v%llu moves from m%u on %u nodes to m%u on %u of %u",
               (unsigned long long)sight->number, was, has, is, gets, could);
}

/* A node that etcd does not reach goes by what it was told, however long ago: it serves what it
 * has. If etcd has reached it again during the call, the model was chosen before. */
static bool
knows_no_better(struct world *world, const struct client_call *call)
{
    struct mesh *mesh = world->nodes[call->entry].mesh;
    uint32_t number = names_find(&mesh->vmodels.names, world->vmodel_names[call->vmodel]);
    const struct of_one *one = of_node(world, &I13_vmodels, call->entry);
    if (one->again_ms >= call->began_ms)
        return true;
    if (mesh->mirror.session != 0)
        return false;
    if (one->reported_ms >= call->began_ms)
        return true;
    if (number == NAME_NONE)
        return false;
    const struct vmodel *vmodel = &mesh->vmodels.at[number];
    return vmodel->known && vmodel->active != NAME_NONE &&
           number_of(names_text(&mesh->tables.model_names, vmodel->active)) == call->model;
}

static void
on_answer(struct world *world, const struct client_call *call)
{
    if (call->vmodel == VMODEL_NONE || call->lost || call->end != MESH_END_OK || world->emptied > 0)
        return;
    const struct was_active *at = history_of(world, call->vmodel)->last;
    int64_t until_ms = INT64_MAX;
    while (at != NULL && until_ms > call->began_ms - LAG_MS) {
        if (at->model == call->model)
            return;
        until_ms = at->from_ms;
        at = at->former;
    }
    if (knows_no_better(world, call))
        return;
    broken(world, &I13_vmodels, "a call of v%u is answered by m%u, which was not active",
           call->vmodel, call->model);
}

static void
on_end(struct world *world)
{
    for (uint32_t v = 0; v < world->options.vmodels; v++) {
        struct mesh_vmodel vmodel;
        if (vmodel_now(world, v, &vmodel) && model_differs(vmodel.active, vmodel.target) &&
            world->options.bounds != BOUNDS_MANY)
            broken(world, &I13_vmodels, "v%u is still on its way from %s to %s, failed %d", v,
                   vmodel.active, vmodel.target, vmodel.failed);
    }
}

static void
on_mirror(struct of_one *one, int64_t now_ms)
{
    if (now_ms - one->reported_ms > LAG_MS)
        one->again_ms = now_ms;
    one->reported_ms = now_ms;
}

static void
see(struct world *world, const struct sight *sight)
{
    struct of_one *first = of_node(world, &I13_vmodels, 0);
    switch (sight->kind) {
    case SAW_VMODEL: on_vmodel(world, sight); break;
    case SAW_ANSWER: on_answer(world, &world->calls[sight->client_call]); break;
    case SAW_END: on_end(world); break;
    case SAW_MIRROR: on_mirror(of_node(world, &I13_vmodels, sight->node), world->now_ms); break;
    default: first->unrest_ms = world->now_ms; break; /* somebody came, went or was disturbed */
    }
}

const struct invariant I13_vmodels = {
    .name = "I13 vmodels",
    .sees = SEES(VMODEL) | SEES(ANSWER) | SEES(END) | SEES(BIRTH) | SEES(DEATH) | SEES(DRAIN) |
            SEES(TROUBLE) | SEES(MIRROR),
    .node_bytes = sizeof(struct of_one),
    .model_bytes = 16 * sizeof(struct history), /* of the first model: all vmodels' */
    .see = see,
};
