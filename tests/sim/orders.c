/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that register and unregister models and move vmodels, and what must hold of that: I13,
 * I14, each order ends once, and what a vmodel's call was answered by was its active model.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "world.h"

enum { LAG_MS = 20000 }; /* a mirror, at most */

/* ---- clients ---- */

/* Of the model that is there, or a new one; wrong ones, sometimes. Lasts until the next. */
static const char *
path_of(struct world *world, uint32_t model)
{
    static char path[32];
    const struct record *record = &world->records[model];
    uint64_t version = record->exists && draw(world, 8) > 0 ? record->version : ++world->versions;
    snprintf(path, sizeof(path), "v%llu", (unsigned long long)version);
    return path;
}

void
orders_client(struct world *world)
{
    uint32_t node = draw(world, world->node_count);
    if (world->nodes[node].mesh == NULL)
        return;
    uint32_t what = draw(world, world->vmodel_count > 0 ? 10 : 4);
    bool rarely = draw(world, 8) == 0;
    uint32_t model = draw(world, world->model_count);
    struct mesh_order said = {.model = model_name(model)};
    if (what >= 4)
        said.vmodel = vmodel_name(draw(world, world->vmodel_count));
    said.load_now = draw(world, 2);
    said.sync = draw(world, 2);
    switch (what) {
    case 0:
    case 1:
        said.kind = MESH_REGISTER;
        said.type = "type";
        said.path = path_of(world, model);
        break;
    case 2: said.kind = MESH_UNREGISTER; break;
    case 3: said.kind = rarely ? MESH_MODEL_STATUS : MESH_ENSURE_LOADED; break;
    case 4: said.kind = rarely ? MESH_DELETE_VMODEL : MESH_VMODEL_STATUS; break;
    default:
        said.kind = MESH_SET_VMODEL;
        said.type = draw(world, 2) ? "type" : NULL;
        said.path = said.type != NULL ? path_of(world, model) : NULL;
        said.auto_delete = draw(world, 2);
        said.force = world->faults.forced && rarely;
        break;
    }
    node_order(world, node, said);
}

void
orders_replied(struct world *world, uint32_t node, const struct mesh_action *action)
{
    struct given *given = &world->nodes[node].orders[action->reply.order];
    CHECK(given->is);
    *given = (struct given){0};
    world->replied++;
    world->outcomes[action->reply.outcome]++;
    trace(world, (uint64_t)action->reply.outcome << 8 | (uint64_t)action->reply.model.state);
}

/* The node has died; their clients know. */
void
orders_forgotten(struct world *world, uint32_t node)
{
    for (uint32_t i = 0; i < ORDERS_MAX; i++)
        world->ordered -= world->nodes[node].orders[i].is;
}

/* ---- I14: references count vmodels, exactly, and nothing that is referred to is missing ---- */

void
check_references(const struct world *world)
{
    uint32_t references[MODELS_MAX] = {0};
    if (world->history > 0)
        return; /* etcd was emptied, and who writes it anew, may write what was before */
    for (uint32_t i = 0; i < world->vmodel_count; i++) {
        const struct vrecord *vmodel = &world->vrecords[i];
        if (!vmodel->exists)
            continue;
        references[vmodel->active]++;
        references[vmodel->target] += vmodel->target != vmodel->active;
    }
    for (uint32_t i = 0; i < world->model_count; i++) {
        CHECK(!world->records[i].exists || world->records[i].references == references[i]);
        CHECK(world->records[i].exists || references[i] == 0);
    }
}

/* ---- I13: a vmodel is not moved to what is loaded on fewer nodes ---- */

static uint32_t
loaded_alive(const struct world *world, uint32_t model)
{
    const struct record *record = &world->records[model];
    uint32_t count = 0;
    for (uint32_t i = 0; record->exists && i < record->count; i++) {
        const struct place_kept *place = &record->places[i];
        const struct instance_key *key = &world->keys[place->node];
        count +=
            place->kind == MESH_PLACE_LOADED && key->exists && place->since_ms >= key->start_ms;
    }
    return count;
}

static uint32_t
never_failed(const struct world *world, uint32_t model)
{
    const struct record *record = &world->records[model];
    uint32_t count = world->node_count;
    for (uint32_t i = 0; record->exists && i < record->count; i++)
        count -= record->places[i].kind == MESH_PLACE_FAILED;
    return count;
}

void
check_switch(struct world *world, uint32_t number, const struct vrecord *after)
{
    const struct vrecord *before = &world->vrecords[number];
    uint32_t active = after->exists ? after->active : NOBODY;
    uint32_t was = before->exists ? before->active : NOBODY;
    if (active == was)
        return;
    world->switches += active != NOBODY && was != NOBODY;
    uint32_t *count = &world->history_counts[number];
    world->histories[number] =
        reallocarray(world->histories[number], *count + 1, sizeof(struct was_active));
    CHECK(world->histories[number] != NULL);
    world->histories[number][(*count)++] =
        (struct was_active){.from_ms = world->now_ms, .model = active};
    const struct faults *faults = &world->faults;
    bool steady =
        faults->kills + faults->leases + faults->drains + faults->constraints + faults->emptied ==
            0 &&
        !faults->forced;
    if (!steady || was == NOBODY || active == NOBODY)
        return;
    uint32_t wanted = loaded_alive(world, was);
    if (wanted > never_failed(world, active))
        wanted = never_failed(world, active);
    CHECK(loaded_alive(world, active) >= wanted || world->now_ms < LAG_MS);
}

/* ---- I13: who answers is active, as of a while ago at most ---- */

void
check_served(const struct world *world, const struct slot *slot)
{
    if (slot->vmodel == NOBODY)
        return;
    const struct was_active *history = world->histories[slot->vmodel];
    uint32_t count = world->history_counts[slot->vmodel];
    bool was = world->history > 0;
    for (uint32_t i = 0; i < count; i++)
        was |= history[i].model == slot->model &&
               (i + 1 == count || history[i + 1].from_ms > slot->called_ms - LAG_MS);
    CHECK(was);
}

/* I7 for vmodels: one that has been there all the time is answered, whatever becomes of its models
 * meanwhile. */
void
count_failed(struct world *world, const struct slot *slot)
{
    if (slot->vmodel == NOBODY)
        return;
    const struct was_active *history = world->histories[slot->vmodel];
    uint32_t count = world->history_counts[slot->vmodel];
    int64_t since_ms = slot->called_ms; /* R13: whether the mirror has seen it, or not */
    bool there = count > 0 && history[0].from_ms < since_ms;
    for (uint32_t i = 0; i < count; i++)
        there &= history[i].model != NOBODY || (i + 1 < count && history[i + 1].from_ms < since_ms);
    world->vmodels_failed += there;
}

/* ---- when all is well ---- */

void
orders_converge(struct world *world)
{
    for (uint32_t i = 0; i < world->vmodel_count; i++) { /* L: transitions end */
        const struct vrecord *vmodel = &world->vrecords[i];
        bool moves = vmodel->exists && vmodel->active != vmodel->target;
        if (moves)
            report(world, vmodel->target);
        CHECK(!moves);
    }
    for (uint32_t i = 0; i < world->model_count; i++) {
        if (world->records[i].exists)
            continue;
        uint64_t ok = world->outcomes[MESH_OUTCOME_OK];
        node_order(world, 0,
                   (struct mesh_order){.kind = MESH_REGISTER,
                                       .model = model_name(i),
                                       .type = "type",
                                       .path = path_of(world, i),
                                       .load_now = draw(world, 2)});
        world_run(world, 40000);
        CHECK(world->outcomes[MESH_OUTCOME_OK] == ok + 1 && world->records[i].exists);
    }
    check_references(world);
}
