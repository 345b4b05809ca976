/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How copies get to other nodes: rules D2 to D4 for a node that drains, H3 for copies that may not
 * be here any more, E6 for those that were evicted while others have room. A copy goes when the
 * record shows another one that is loaded, and will stay.
 */
#include "mesh/core/state.h"

enum {
    RECENT_MS = 3600000,
    ASK_AGAIN_MS = 10000, /* the node that was asked loads it */
    ASK_SOON_MS = 2000,   /* nobody does: it was refused, or has failed */
    CALLED_MS = 2000,     /* D4: a call that long ago may be followed by another one */
    ASKS_PER_NODE = 2,
    FREE_SHARE = 20,
    BARE_MS_MAX = 5000, /* D4: a runtime that has ended may be back so soon */
};

struct others {
    uint32_t leaving; /* copies that count, and will not stay; this node's among them */
    bool loaded;      /* one that stays is loaded */
    bool loading;     /* one that stays is not, yet */
};

static struct others
look_around(const struct mesh *mesh, const struct model *model)
{
    const struct type_rule *rule = tables_rule(&mesh->tables, model);
    const struct place *places = model_places(model);
    struct others others = {0};
    for (uint32_t i = 0; i < model->place_count; i++) {
        const struct place *place = &places[i];
        const struct instance *instance = &mesh->tables.instances[place->instance];
        if (!place_is_copy(&mesh->tables, place))
            continue;
        if (place->instance == INSTANCE_SELF || instance->draining ||
            !types_allow(rule, instance->labels))
            others.leaving++;
        else if (place->kind == MESH_PLACE_LOADED)
            others.loaded = true;
        else
            others.loading = true;
    }
    return others;
}

/* D4: it stays, and nothing that lasts keeps the model from it. One that is full now may have room
 * in a moment, one whose runtime has just ended may have it back. */
static bool
may_take(const struct mesh *mesh, const struct entry *entry, const struct type_rule *rule,
         uint32_t number)
{
    const struct instance *instance = &mesh->tables.instances[number];
    if (number == INSTANCE_SELF || instance->session == 0 || instance->draining ||
        !types_allow(rule, instance->labels))
        return false;
    uint64_t capacity = instance->figures.capacity_units;
    if ((capacity != 0 && capacity < entry->units) ||
        (instance_is_bare(instance) && mesh->now_ms - instance->bare_ms >= BARE_MS_MAX))
        return false;
    const struct place *place = model_place(&mesh->tables.models[entry->model], (uint16_t)number);
    return place == NULL || place->kind != MESH_PLACE_FAILED ||
           !failure_is_fresh(place->since_ms, mesh->wall_ms, mesh->config.failure_fresh_ms);
}

/* All of a drain are asked for one by one: it begins with who could take the last one. */
static bool
somebody_may_take(struct mesh *mesh, const struct entry *entry)
{
    const struct type_rule *rule = tables_rule(&mesh->tables, model_at(mesh, entry->model));
    uint32_t count = mesh->tables.instance_names.used;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = (mesh->taker + i) % count;
        if (may_take(mesh, entry, rule, number)) {
            mesh->taker = number;
            return true;
        }
    }
    return false;
}

static bool
is_recent(const struct mesh *mesh, const struct entry *entry)
{
    return entry->used_ms > mesh->wall_ms - RECENT_MS;
}

/* D4, for a node that drains; H3: copies that may not be here stay until somebody takes them. */
static bool
may_be_taken(struct mesh *mesh, const struct entry *entry)
{
    return !mesh->draining ||
           (model_fresh_failures(mesh, model_at(mesh, entry->model)) < MESH_FAILURES_MAX &&
            somebody_may_take(mesh, entry));
}

/* No transaction that was to withdraw it has happened, or may: none has compared the record as it
 * is now (T4). Its memory may be promised by now; then it leaves. */
bool
move_stays(struct mesh *mesh, struct entry *entry)
{
    const struct model *model = model_at(mesh, entry->model);
    if (!entry->yields || !entry_serves(entry) || model->txn_compare == model->revision ||
        ledger_free(&pool_of(mesh, entry)->ledger) < entry->units)
        return false;
    if (look_around(mesh, model).loaded)
        return false;
    if (mesh->draining &&
        !(may_be_taken(mesh, entry) ? is_recent(mesh, entry) : mesh->keeps_unmovable))
        return false;
    entry->yields = false;
    entry->asked_ms = 0; /* another node is asked again at once */
    entry_set(mesh, entry, MESH_STATE_LOADED);
    calls_serve(mesh, entry); /* R12: some may have waited until it is gone */
    settle_later(mesh, entry->model);
    return true;
}

/* D4: calls for it are under way, or may still come. */
static bool
is_called(const struct mesh *mesh, const struct entry *entry)
{
    return entry->in_flight > 0 || entry->waiting > 0 || entry->used_ms > mesh->wall_ms - CALLED_MS;
}

enum moved {
    MOVED_NOT, /* it leaves, or stays as long as anything does */
    MOVED_LATER,
    MOVED_ASKED, /* one ask is out to another node */
};

static enum moved
leave(struct mesh *mesh, struct entry *entry, bool yields)
{
    entry->yields = yields || mesh->draining;
    entry_leave(mesh, entry);
    return MOVED_NOT;
}

static enum moved
move_away(struct mesh *mesh, struct entry *entry, bool may_ask)
{
    struct others others = look_around(mesh, model_at(mesh, entry->model));
    if (others.loaded)
        return leave(mesh, entry, true);
    if (!may_be_taken(mesh, entry)) {
        if (!mesh->keeps_unmovable)
            return leave(mesh, entry, false);
        mesh->unmovable_called |= is_called(mesh, entry);
        return MOVED_NOT;
    }
    if (!is_recent(mesh, entry))
        return leave(mesh, entry, false);
    int64_t again_ms = others.loading ? ASK_AGAIN_MS : ASK_SOON_MS;
    if (entry->asked_ms != 0 && mesh->now_ms - entry->asked_ms < again_ms)
        return entry->asked ? MOVED_ASKED : MOVED_LATER;
    if (!may_ask)
        return MOVED_LATER;
    entry->asked_ms = mesh->now_ms;
    const struct load_wish wish = {
        .model = entry->model,
        .used_ms = entry->used_ms,
        .class = MESH_CLASS_MIGRATION,
        .target = others.leaving + 1,
        .units = entry->units,
    };
    entry->asked = ensure_anywhere(mesh, &wish, entry->used_ms) == NULL;
    return entry->asked ? MOVED_ASKED : MOVED_LATER;
}

bool
move_in_order(struct mesh *mesh)
{
    uint32_t asks = ASKS_PER_NODE * mesh->tables.live;
    bool some_wait = false;
    while (heap_first(&mesh->order) != HEAP_NONE) {
        uint32_t number = heap_first(&mesh->order);
        heap_remove(&mesh->order, number);
        enum moved moved = move_away(mesh, &mesh->entries[number], asks > 0);
        some_wait |= moved != MOVED_NOT;
        if (moved == MOVED_ASKED && asks > 0)
            asks--;
    }
    return some_wait;
}

void
move_tick(struct mesh *mesh)
{
    if (!mesh->misplaced || !mesh->whole || mesh->draining)
        return;
    mesh->misplaced = false;
    uint64_t labels = mesh->tables.instances[INSTANCE_SELF].labels;
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        struct entry *entry = &mesh->entries[i];
        if (entry->state == MESH_STATE_NONE || entry->state > MESH_STATE_LOADED ||
            !model_at(mesh, entry->model)->known ||
            types_allow(tables_rule(&mesh->tables, model_at(mesh, entry->model)), labels))
            continue;
        mesh->misplaced = true; /* look again */
        if (entry->state < MESH_STATE_LOADING)
            entry_leave(mesh, entry);
        else if (entry->state == MESH_STATE_LOADED)
            heap_set(&mesh->order, i, -entry->used_ms);
    }
    (void)move_in_order(mesh);
}

void
move_evicted(struct mesh *mesh, struct entry *entry)
{
    const struct model *model = model_at(mesh, entry->model);
    bool offered = entry->offered;
    entry->offered = false;
    if (!offered || mesh->draining || model_copies(&mesh->tables, model) > 0 ||
        model_fresh_failures(mesh, model) >= MESH_FAILURES_MAX)
        return;
    struct tables_room all = tables_room(&mesh->tables, tables_rule(&mesh->tables, model));
    if (all.free_units < all.capacity_units / FREE_SHARE)
        return;
    const struct load_wish load = {
        .model = entry->model,
        .used_ms = entry->used_ms,
        .class = MESH_CLASS_ADVANCE,
        .target = 1,
        .units = entry->units,
    };
    struct place_wish wish = ensure_wish(mesh, entry->model);
    wish.used_ms = entry->used_ms;
    wish.roomy = true;
    ensure_at(mesh, &load, place_choose(&mesh->tables, &wish, &mesh->random));
}
