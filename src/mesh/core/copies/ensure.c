/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for a copy without a call: here or at the best place. The requesting node may have seen
 * the model's record before this one, which then waits for it; dropping the request would cost ten
 * seconds until the next (V3).
 */
#include "mesh/core/copies/ensure.h"
#include "base/check.h"
#include "mesh/core/actions.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/ledger.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/load_times.h"
#include "mesh/core/copies/pools.h"

enum { EARLY_MS_MAX = 10000 }; /* V3 asks again by then */

struct place_wish
ensure_wish(struct mesh *mesh, uint32_t number)
{
    struct core_model *model = model_at(mesh, number);
    const struct pool *pool = pool_for(mesh, model);
    mesh->tables.instances[INSTANCE_SELF].figures = pool_figures(mesh, pool);
    return (struct place_wish){
        .model = model,
        .now_ms = mesh->now_ms,
        .wall_ms = mesh->wall_ms,
        .used_ms = mesh->wall_ms,
        .churn_ms = load_churn_ms(mesh),
        .fresh_ms = mesh->config.failure_fresh_ms,
        .own = true,
        .units = pool_assumed_units(pool, model),
        .not_self = model->entry != ENTRY_NONE,
    };
}

static const char *
too_large_text(struct mesh *mesh, const struct place_wish *wish)
{
    char takes[LEDGER_TEXT_BYTES];
    char has[LEDGER_TEXT_BYTES];
    ledger_text(wish->units, takes);
    ledger_text(place_largest(&mesh->tables, wish), has);
    bool stated = wish->model->bounds.size_units != 0;
    const char *const parts[] = {place_refusal_text(PLACE_TOO_LARGE),
                                 ": before loading it is assumed to need ",
                                 takes,
                                 stated ? " (as registered)" : " (`default_size_mib`)",
                                 ", and the largest node has ",
                                 has,
                                 " for models (`memory_mib`, minus the reserve)"};
    return memory_join(&mesh->actions.arena, parts, sizeof(parts) / sizeof(parts[0]));
}

/* ModelMesh's text to the letter, with the list of labels at its end: the controller of
 * modelmesh-serving concludes from both whether a runtime of the type ever existed. */
static const char *
no_labels_text(struct mesh *mesh, const struct place_wish *wish)
{
    const struct tables *tables = &mesh->tables;
    const struct type_rule *rule = tables_rule(tables, wish->model);
    const char *parts[5 + 2 * TYPES_LABELS_MAX] = {
        place_refusal_text(PLACE_NO_LABELS), " of type ",
        names_text(&tables->type_names, wish->model->type), ": ["};
    size_t count = 4;
    for (uint32_t bit = 0; rule != NULL && bit < TYPES_LABELS_MAX; bit++) {
        if ((rule->required >> bit & 1) == 0)
            continue;
        if (count > 4)
            parts[count++] = ", ";
        parts[count++] = names_text(&tables->types.labels, bit);
    }
    parts[count++] = "]";
    return memory_join(&mesh->actions.arena, parts, count);
}

const char *
ensure_refusal_text(struct mesh *mesh, const struct place_wish *wish, enum place_refusal refusal)
{
    switch (refusal) {
    case PLACE_NO_LABELS: return no_labels_text(mesh, wish);
    case PLACE_TOO_LARGE: return too_large_text(mesh, wish);
    case PLACE_ALL_TRIED:
    case PLACE_ALL_FULL:
    case PLACE_AT_MOST: return place_refusal_text(refusal);
    }
    UNREACHABLE();
}

const char *
ensure_anywhere(struct mesh *mesh, const struct load_wish *load, int64_t used_ms)
{
    if (model_copies(&mesh->tables, model_at(mesh, load->model)) >= load->target)
        return NULL;
    struct place_wish wish = ensure_wish(mesh, load->model);
    wish.used_ms = used_ms;
    if (load->class == MESH_CLASS_CALL)
        wish.churn_ms = 0;
    uint32_t there = place_choose(&mesh->tables, &wish, &mesh->random);
    if (there == NAME_NONE && pool_is_stuck(mesh, load->model) && !wish.not_self)
        there = INSTANCE_SELF; /* R17 */
    if (there == INSTANCE_SELF) {
        enum load_refusal refusal = load_begin(mesh, load);
        if (refusal == LOAD_BEGUN)
            return NULL;
        wish.not_self = true; /* load_begin is more precise than the figures */
        there = place_choose(&mesh->tables, &wish, &mesh->random);
        if (there == NAME_NONE && refusal == LOAD_FULL)
            return place_refusal_text(PLACE_ALL_FULL);
    }
    if (there == NAME_NONE)
        return ensure_refusal_text(mesh, &wish, place_refusal(&mesh->tables, &wish));
    ensure_at(mesh, load, there);
    return NULL;
}

/* All copies are requested together, with the same target. Requested one by one, two could go to
 * one node, or the second claim could come before the first and make that void. */
bool
ensure_copies(struct mesh *mesh, const struct load_wish *load, int64_t used_ms,
              struct nodes_asked *asked)
{
    struct tried tried[MESH_TRIED_MAX];
    struct place_wish wish = ensure_wish(mesh, load->model);
    uint32_t copies = model_copies(&mesh->tables, wish.model);
    wish.used_ms = used_ms;
    wish.urgent = load->class == MESH_CLASS_MIGRATION;
    wish.reachable = wish.urgent;
    wish.tried = tried;
    for (; wish.tried_count < asked->count; wish.tried_count++)
        tried[wish.tried_count] =
            (struct tried){.instance = asked->instances[wish.tried_count], .list = MESH_LIST_LOAD};
    while (copies < load->target && asked->count < MESH_TRIED_MAX) {
        uint32_t there = place_choose(&mesh->tables, &wish, &mesh->random);
        if (there == NAME_NONE)
            return false;
        tried[wish.tried_count++] =
            (struct tried){.instance = (uint16_t)there, .list = MESH_LIST_LOAD};
        asked->instances[asked->count++] = (uint16_t)there;
        if (there == INSTANCE_SELF && load_begin(mesh, load) != LOAD_BEGUN)
            continue; /* load_begin is more precise than the figures */
        if (there != INSTANCE_SELF)
            ensure_at(mesh, load, there);
        copies++;
    }
    return copies >= load->target;
}

void
ensure_in_turn(struct mesh *mesh, const struct load_wish *load, struct nodes_asked *asked)
{
    const uint8_t before = asked->count;
    if (ensure_copies(mesh, load, mesh->wall_ms, asked))
        return;
    bool nobody_new = asked->count == before;
    asked->count = 0;
    if (nobody_new && before > 0)
        (void)ensure_copies(mesh, load, mesh->wall_ms, asked);
}

void
ensure_at(struct mesh *mesh, const struct load_wish *load, uint32_t there)
{
    if (there == INSTANCE_SELF)
        (void)load_begin(mesh, load);
    if (there == INSTANCE_SELF || there == NAME_NONE)
        return;
    struct core_model *model = model_at(mesh, load->model);
    mesh->tables.instances[there].pending_units +=
        load->units != 0 ? load->units : pool_assumed_units(pool_for(mesh, model), model); /* P5 */
    struct mesh_action *action = act(mesh, MESH_DO_ENSURE);
    action->ensure.instance = names_text(&mesh->tables.instance_names, there);
    action->ensure.model = names_text(&mesh->tables.model_names, load->model);
    action->ensure.used_ms =
        load->used_ms < mesh->wall_ms ? load->used_ms : 0; /* now, by the receiver's clock */
    action->ensure.class = load->class;
    action->ensure.target = load->target;
    action->ensure.size_bytes = (uint64_t)load->units * LEDGER_UNIT_BYTES;
}

static void
begin(struct mesh *mesh, const struct load_wish *load, enum mesh_where where)
{
    struct core_entry *entry = entry_of(mesh, model_at(mesh, load->model));
    if (entry != NULL)
        load_touch(mesh, entry, load->used_ms);
    if (where == MESH_HERE)
        (void)load_begin(mesh, load); /* the requester watches the record and repeats */
    else
        (void)ensure_anywhere(mesh, load, load->used_ms);
}

/* ---- before there is a record ---- */

static struct early *
early_of(struct mesh *mesh, uint32_t model)
{
    for (uint32_t i = 0; i < mesh->early.count; i++)
        if (mesh->early.at[i].load.model == model)
            return &mesh->early.at[i];
    return NULL;
}

static void
keep_early(struct mesh *mesh, const struct load_wish *load, const struct mesh_event *event)
{
    uint32_t number = tables_hold_model(&mesh->tables, event->ensure.model);
    if (number == NAME_NONE)
        return;
    struct early *early = early_of(mesh, number);
    if (early == NULL && mesh->early.count < EARLY_MAX)
        early = &mesh->early.at[mesh->early.count++];
    else /* it has a reference already, or the request is repeated when there may be room */
        names_release(&mesh->tables.model_names, number);
    if (early == NULL)
        return;
    *early = (struct early){.load = *load, .came_ms = mesh->now_ms, .where = event->ensure.where};
    early->load.model = number;
}

static struct early
take_early(struct mesh *mesh, struct early *early)
{
    struct early taken = *early;
    *early = mesh->early.at[--mesh->early.count];
    names_release(&mesh->tables.model_names, taken.load.model);
    return taken;
}

void
ensure_on_model(struct mesh *mesh, uint32_t model)
{
    struct early *early = early_of(mesh, model);
    if (early == NULL || !model_at(mesh, model)->known)
        return;
    struct early taken = take_early(mesh, early);
    begin(mesh, &taken.load, taken.where);
}

void
ensure_tick(struct mesh *mesh)
{
    for (uint32_t i = mesh->early.count; i-- > 0;)
        if (mesh->now_ms - mesh->early.at[i].came_ms >= EARLY_MS_MAX)
            (void)take_early(mesh, &mesh->early.at[i]);
}

void
ensure_on_ensure(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_model(&mesh->tables, event->ensure.model);
    if (!mesh->mirror.whole)
        return;
    const struct load_wish load = {
        .model = number,
        .used_ms = event->ensure.used_ms == 0 ? mesh->wall_ms : event->ensure.used_ms,
        .class = event->ensure.class,
        .target = event->ensure.target == 0 ? 1 : event->ensure.target,
        .units = event->ensure.size_bytes == 0 ? 0 : ledger_units(event->ensure.size_bytes),
    };
    if (number != NAME_NONE && model_at(mesh, number)->known)
        begin(mesh, &load, event->ensure.where);
    else
        keep_early(mesh, &load, event);
}
