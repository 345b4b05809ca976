/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I18. A node that drains begins no load. It withdraws nothing that others have yet to load, if one
 * that stays may hold it; nor, if none may, what was called within two seconds. When it says that
 * it is done, nothing is left.
 */
#include "../invariants.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/models.h"

enum { CALLED_MS = 2000 };

struct drains_seen {
    bool drains;
    int64_t since_ms;
};

/* As far as a node knows that drains: `number` stays, and may hold the models held here.
 * One whose figures say that it has no runtime is passed over, however long it has been so; so is
 * one whose failure was fresh when it was decided. */
static bool
may_come_to(const struct world *world, uint32_t node, uint32_t number, uint32_t model,
            const struct core_model *record)
{
    const struct node *from = &world->nodes[node];
    struct mesh *mesh = from->mesh;
    uint32_t known = tables_instance(&mesh->tables, world->node_names[number]);
    if (number == node || known == NAME_NONE)
        return false;
    const struct instance *instance = &mesh->tables.instances[known];
    const struct mesh_figures *figures = &instance->figures;
    uint64_t bytes = figures->capacity_units * LEDGER_UNIT_BYTES;
    bool has_runtime = figures->free_units + figures->copies + figures->loading > 0;
    const struct core_place *place = model_place(record, (uint16_t)known);
    int64_t decided_ms = mesh->wall_ms - (mesh->now_ms - entry_of(mesh, record)->began_ms);
    bool failed = place != NULL && place->kind == MESH_PLACE_FAILED &&
                  place->since_ms > decided_ms - FRESH_MS;
    return instance->session != 0 && !instance->draining && has_runtime &&
           bytes >= from->held[model].bytes &&
           (!from->constrained || node_may_hold(world, number, model)) && !failed;
}

/* Of each node and model. */
struct withdrawal {
    uint64_t compare; /* of the last one's transaction */
};

/* It was decided in the drain: what the transaction compares, and is known now, is what it must be
 * right by, though it may have been decided by an older record. One that compares what the one
 * before did is the same again: that may have happened, though nobody has heard of it (T4). That it
 * was right then counts, though it may have been used since: what leaves serves until it is gone.
 */
static void
on_withdrawal(struct world *world, uint32_t node, int64_t since_ms,
              const struct mesh_action *action)
{
    struct mesh *mesh = world->nodes[node].mesh;
    if (action->kind != MESH_DO_TXN || action->txn.absent != NULL ||
        action->txn.writes[0].record != MESH_RECORD_MODEL)
        return;
    const char *id = action->txn.writes[0].model.id;
    struct withdrawal *last = of_pair(world, &I18_drain, node, number_of(id));
    uint64_t former = last->compare;
    const struct core_model *model = model_at(mesh, tables_model(&mesh->tables, id));
    const struct core_entry *entry = entry_of(mesh, model);
    const struct core_place *own = model_place(model, INSTANCE_SELF);
    if (entry == NULL || entry->state != MESH_STATE_WITHDRAWING || entry->failed ||
        !entry->resident || entry->began_ms < since_ms || own == NULL ||
        own->kind != MESH_PLACE_LOADED)
        return;
    last->compare = action->txn.writes[0].compare;
    if (last->compare == former || entry->used_ms <= mesh->wall_ms - RECENT_MS)
        return;
    uint32_t failed = 0;
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++) {
        if (places[i].kind == MESH_PLACE_LOADED && &places[i] != own)
            return;
        failed += places[i].kind == MESH_PLACE_FAILED;
    }
    if (entry->began_ms == mesh->now_ms && entry->used_ms > mesh->wall_ms - CALLED_MS)
        broken(world, &I18_drain, "n%u drains, and withdraws %s, which is called", node, id);
    bool somebody = false;
    for (uint32_t i = 0; i < world->options.nodes; i++)
        somebody |= may_come_to(world, node, i, number_of(id), model);
    if (somebody && failed < MESH_FAILURES_MAX)
        broken(world, &I18_drain, "n%u drains, and withdraws %s, which no other node has", node,
               id);
}

static void
see(struct world *world, const struct sight *sight)
{
    struct drains_seen *drains = of_node(world, &I18_drain, sight->node);
    const struct node *node = &world->nodes[sight->node];
    switch (sight->kind) {
    case SAW_BIRTH:
        drains->drains = false;
        for (uint32_t i = 0; i < world->options.models; i++)
            *(struct withdrawal *)of_pair(world, &I18_drain, sight->node, i) =
                (struct withdrawal){0};
        break;
    case SAW_DRAIN:
        *drains = (struct drains_seen){.drains = true, .since_ms = world->now_ms};
        break;
    case SAW_STEP:
        /* Where memory is short of what was promised, something has to go all the same. */
        if (drains->drains && world->options.faults.size_lies + world->options.faults.keeps == 0)
            for (uint32_t i = 0; i < sight->actions->count; i++)
                on_withdrawal(world, sight->node, drains->since_ms, &sight->actions->at[i]);
        break;
    case SAW_LOAD:
        if (drains->drains)
            broken(world, &I18_drain, "n%u drains, and loads m%u", sight->node, sight->model);
        break;
    default:
        for (uint32_t i = 0; i < world->options.models; i++)
            if (node->held[i].memory != MEMORY_NONE || node->held[i].in_flight > 0)
                broken(world, &I18_drain, "n%u says that it has drained, and has m%u", sight->node,
                       i);
        break;
    }
}

const struct invariant I18_drain = {
    .name = "I18 drain",
    .sees = SEES(BIRTH) | SEES(DRAIN) | SEES(STEP) | SEES(LOAD) | SEES(DRAINED),
    .pair_bytes = sizeof(struct withdrawal),
    .node_bytes = sizeof(struct drains_seen),
    .see = see,
};
