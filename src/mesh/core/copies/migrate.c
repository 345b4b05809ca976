/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that move to other nodes: rules D2 to D4 when the node drains, H3 for copies that may not
 * stay, E6 for evicted models. A copy leaves when the record shows a loaded one that stays.
 */
#include "mesh/core/copies/migrate.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/copy_calls.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/ledger.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"

enum {
    RECENT_MS = 3600000,
    ASK_AGAIN_MS = 10000, /* the asked node is loading it */
    ASK_SOON_MS = 2000,   /* no node loads it: the request was refused or the load failed */
    CALLED_MS = 2000,     /* D4: a call within this time may be followed by another */
    ASKS_PER_NODE = 2,
    FREE_SHARE = 20,
};

struct others {
    uint32_t leaving; /* living copies that will not stay, including this one */
    bool loaded;      /* a staying copy is loaded */
    bool loading;     /* a staying copy is loading */
};

static struct others
look_around(const struct mesh *mesh, const struct core_model *model)
{
    const struct type_rule *rule = tables_rule(&mesh->tables, model);
    const struct core_place *places = model_places(model);
    struct others others = {0};
    for (uint32_t i = 0; i < model->place_count; i++) {
        const struct core_place *place = &places[i];
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

/* D4: the node stays and has no lasting reason against the model. Being full or having just lost
 * its runtime may pass. */
static bool
may_take(const struct mesh *mesh, const struct core_entry *entry, const struct type_rule *rule,
         uint32_t number)
{
    const struct instance *instance = &mesh->tables.instances[number];
    if (number == INSTANCE_SELF || instance->session == 0 || instance->draining ||
        !types_allow(rule, instance->labels))
        return false;
    const struct core_model *model = &mesh->tables.models[entry->model];
    uint64_t capacity = figures_for(instance, model)->capacity_units;
    if ((capacity != 0 && capacity < entry->units) ||
        bare_since_ms(instance, model) <= mesh->now_ms - RETURN_MS)
        return false;
    const struct core_place *place = model_place(model, (uint16_t)number);
    return place == NULL || place->kind != MESH_PLACE_FAILED ||
           !failure_is_fresh(place->since_ms, mesh->wall_ms, mesh->config.failure_fresh_ms);
}

/* A drain asks for one model after another: the search starts with the node found last. */
static bool
somebody_may_take(struct mesh *mesh, const struct core_entry *entry)
{
    const struct type_rule *rule = tables_rule(&mesh->tables, model_at(mesh, entry->model));
    uint32_t count = mesh->tables.instance_names.used;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = (mesh->drain.taker + i) % count;
        if (may_take(mesh, entry, rule, number)) {
            mesh->drain.taker = number;
            return true;
        }
    }
    return false;
}

static bool
is_recent(const struct mesh *mesh, const struct core_entry *entry)
{
    return entry->used_ms > mesh->wall_ms - RECENT_MS ||
           mesh->tables.models[entry->model].bounds.copies_min > 0;
}

/* D4, when draining; H3: copies that may not stay remain until another node takes them. */
static bool
may_be_taken(struct mesh *mesh, const struct core_entry *entry)
{
    return !mesh->drain.active ||
           (model_fresh_failures(mesh, model_at(mesh, entry->model)) < MESH_FAILURES_MAX &&
            somebody_may_take(mesh, entry));
}

/* D3: no withdrawal has happened or can happen, because none has compared the current record (T4).
 * If its memory is promised by now, the entry leaves. */
bool
migrate_stays(struct mesh *mesh, struct core_entry *entry)
{
    const struct core_model *model = model_at(mesh, entry->model);
    if (!entry->yields || !entry_serves(entry) || model->txn_compare == model->revision ||
        ledger_free(&pool_of(mesh, entry)->ledger) < entry->units)
        return false;
    if (look_around(mesh, model).loaded)
        return false;
    if (mesh->drain.active &&
        !(may_be_taken(mesh, entry) ? is_recent(mesh, entry) : mesh->drain.keeps_unmovable))
        return false;
    entry->yields = false;
    entry->asked_ms = 0; /* asks another node at once */
    entry_set(mesh, entry, MESH_STATE_LOADED);
    calls_serve(mesh, entry); /* R12: calls may have waited for its end */
    reconcile_later(mesh, entry->model);
    return true;
}

/* D4: calls are under way or may still come. */
static bool
is_called(const struct mesh *mesh, const struct core_entry *entry)
{
    return entry->in_flight > 0 || entry->waiting > 0 || entry->used_ms > mesh->wall_ms - CALLED_MS;
}

enum migrate_result {
    MIGRATE_NOT, /* leaves, or stays to the end */
    MIGRATE_LATER,
    MIGRATE_ASKED, /* a request to another node is out */
};

static enum migrate_result
leave(struct mesh *mesh, struct core_entry *entry, bool yields)
{
    entry->yields = yields || mesh->drain.active;
    entry_leave(mesh, entry);
    return MIGRATE_NOT;
}

static enum migrate_result
migrate_away(struct mesh *mesh, struct core_entry *entry, bool may_ask)
{
    struct others others = look_around(mesh, model_at(mesh, entry->model));
    if (others.loaded)
        return leave(mesh, entry, true);
    if (!may_be_taken(mesh, entry)) {
        if (!mesh->drain.keeps_unmovable)
            return leave(mesh, entry, false);
        mesh->drain.unmovable_called |= is_called(mesh, entry);
        return MIGRATE_NOT;
    }
    if (!is_recent(mesh, entry))
        return leave(mesh, entry, false);
    int64_t again_ms = others.loading ? ASK_AGAIN_MS : ASK_SOON_MS;
    if (entry->asked_ms != 0 && mesh->now_ms - entry->asked_ms < again_ms)
        return entry->asked ? MIGRATE_ASKED : MIGRATE_LATER;
    if (!may_ask)
        return MIGRATE_LATER;
    entry->asked_ms = mesh->now_ms;
    const struct load_wish wish = {
        .model = entry->model,
        .used_ms = entry->used_ms,
        .class = MESH_CLASS_MIGRATION,
        .target = others.leaving + 1,
        .units = entry->units,
    };
    entry->asked = ensure_anywhere(mesh, &wish, entry->used_ms) == NULL;
    return entry->asked ? MIGRATE_ASKED : MIGRATE_LATER;
}

bool
migrate_in_order(struct mesh *mesh)
{
    uint32_t asks = ASKS_PER_NODE * mesh->tables.live;
    bool some_wait = false;
    while (heap_first(&mesh->entries.order) != HEAP_NONE) {
        uint32_t number = heap_first(&mesh->entries.order);
        heap_remove(&mesh->entries.order, number);
        enum migrate_result moved = migrate_away(mesh, &mesh->entries.at[number], asks > 0);
        some_wait |= moved != MIGRATE_NOT;
        if (moved == MIGRATE_ASKED && asks > 0)
            asks--;
    }
    return some_wait;
}

void
migrate_tick(struct mesh *mesh)
{
    if (!mesh->entries.misplaced || !mesh->mirror.whole || mesh->drain.active)
        return;
    mesh->entries.misplaced = false;
    uint64_t labels = mesh->tables.instances[INSTANCE_SELF].labels;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_NONE || entry->state > MESH_STATE_LOADED ||
            !model_at(mesh, entry->model)->known ||
            types_allow(tables_rule(&mesh->tables, model_at(mesh, entry->model)), labels))
            continue;
        mesh->entries.misplaced = true; /* look again */
        if (entry->state < MESH_STATE_LOADING)
            entry_leave(mesh, entry);
        else if (entry->state == MESH_STATE_LOADED)
            heap_set(&mesh->entries.order, i, -entry->used_ms);
    }
    (void)migrate_in_order(mesh);
}

void
migrate_evicted(struct mesh *mesh, struct core_entry *entry)
{
    const struct core_model *model = model_at(mesh, entry->model);
    bool offered = entry->offered;
    entry->offered = false;
    if (!offered || mesh->drain.active || model_copies(&mesh->tables, model) > 0 ||
        model_fresh_failures(mesh, model) >= MESH_FAILURES_MAX)
        return;
    struct tables_room all = tables_room(&mesh->tables, model);
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
