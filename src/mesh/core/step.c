/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step: the event changes the tables, then the resulting work is done: calls are routed, models
 * reconciled, loads started.
 */
#include <stdlib.h>

#include "base/check.h"
#include "mesh/core/models.h"
#include "mesh/core/calls/call.h"
#include "mesh/core/calls/room_queue.h"
#include "mesh/core/calls/elsewhere.h"
#include "mesh/core/calls/vmodel_route.h"
#include "mesh/core/calls/unknown.h"
#include "mesh/core/copies/copies.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/copies/migrate.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"
#include "mesh/core/orders/orders.h"
#include "mesh/core/upkeep/bounds.h"
#include "mesh/core/upkeep/preload.h"
#include "mesh/core/upkeep/drain.h"
#include "mesh/core/upkeep/janitor.h"
#include "mesh/core/upkeep/promote.h"
#include "mesh/core/upkeep/reaper.h"

enum {
    FAILURE_FRESH_MS = 15 * 60000,
    GONE_MS = 10 * 60000,
    RATE_FOR_MORE = 2000,
    BUSY_PERCENT = 90,
    CLOCK_SET_MS = 1000, /* a larger jump means that the wall clock was set */
};

struct mesh *
mesh_create(const struct mesh_config *config)
{
    CHECK(config->instances_max > 0 && config->instances_max <= MESH_INSTANCES_MAX);
    CHECK(config->models_max <= BIDDER_NUMBER_MAX && config->vmodels_max <= BIDDER_NUMBER_MAX &&
          config->orders_max <= BIDDER_NUMBER_MAX && config->calls_max <= BIDDER_NUMBER_MAX);
    struct mesh *mesh = calloc(1, sizeof(*mesh));
    CHECK(mesh != NULL);
    mesh->config = *config;
    mesh->config.instance = NULL; /* it is the name of instance 0 */
    if (config->failure_fresh_ms == 0)
        mesh->config.failure_fresh_ms = FAILURE_FRESH_MS;
    if (config->gone_ms == 0)
        mesh->config.gone_ms = GONE_MS;
    if (config->rate_for_more == 0)
        mesh->config.rate_for_more = RATE_FOR_MORE;
    if (config->busy_percent == 0)
        mesh->config.busy_percent = BUSY_PERCENT;
    pools_init(mesh, config);
    mesh->upkeep.reap_at = UINT32_MAX;
    mesh->random = config->seed;
    mesh->entries.first_free = ENTRY_NONE;
    mesh->calls.routing = CALL_NONE;
    mesh->calls.parked = CALL_NONE;
    mesh->room_queue.first = CALL_NONE;
    mesh->room_queue.last = CALL_NONE;
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++)
        mesh->questions.at[i] = (struct core_question){.model = NAME_NONE, .vmodel = NAME_NONE};
    tables_init(&mesh->tables, config);
    vmodels_init(&mesh->vmodels, config);
    return mesh;
}

void
mesh_destroy(struct mesh *mesh)
{
    orders_fini(&mesh->orders);
    vmodels_fini(&mesh->vmodels);
    tables_fini(&mesh->tables);
    pools_fini(mesh);
    heap_fini(&mesh->calls.deadlines);
    heap_fini(&mesh->reconcile.retries);
    heap_fini(&mesh->reconcile.graves);
    heap_fini(&mesh->entries.order);
    heap_fini(&mesh->preload.unloaded);
    heap_fini(&mesh->preload.queue);
    bump_fini(&mesh->actions.arena);
    free(mesh->entries.at);
    free(mesh->entries.victims);
    free(mesh->calls.at);
    free(mesh->reconcile.unreconciled);
    free(mesh->actions.at);
    free(mesh);
}

/* ---- records ---- */

/* A record newer than what the transaction compared has decided it (T3, T4). */
static void
on_record(struct mesh *mesh, uint32_t number)
{
    struct core_model *model = model_at(mesh, number);
    if (model->revision > model->txn_compare)
        model->txn = 0;
    heap_remove(&mesh->reconcile.retries, number);
    reconcile_later(mesh, number);
    orders_on_model(mesh, number);
    promote_on_model(mesh, number);
    vmodel_route_on_model(mesh, number);
    room_queue_on_model(mesh, number);
    ensure_on_model(mesh, number);
    drain_on_model(mesh, number);
    bounds_on_model(mesh, number);
}

static void
on_vmodel(struct mesh *mesh, uint32_t number)
{
    orders_on_vmodel(mesh, number);
    promote_on_vmodel(mesh, number);
    vmodel_route_on_vmodel(mesh, number);
}

/* T6: a record that the mirror has passed and does not have was deleted; a late answer does not
 * restore it. */
static bool
is_passed(const struct mesh *mesh, bool known, uint64_t revision)
{
    return mesh->mirror.whole && !known && revision <= mesh->mirror.seen;
}

static void
on_vmodel_put(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = names_find(&mesh->vmodels.names, event->vmodel.id);
    bool known = number != NAME_NONE && mesh->vmodels.at[number].known;
    if (is_passed(mesh, known, event->vmodel.revision))
        return;
    uint32_t active = known ? mesh->vmodels.at[number].active : NAME_NONE;
    if (!vmodels_put(&mesh->vmodels, &mesh->tables, &event->vmodel, &number))
        return;
    mesh->vmodels.transitions += active != NAME_NONE && mesh->vmodels.at[number].active != active;
    on_vmodel(mesh, number);
}

static void
on_vmodel_gone(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = names_find(&mesh->vmodels.names, event->gone.id);
    if (number != NAME_NONE && vmodel_is_lost(&mesh->vmodels.at[number]))
        return; /* W1 */
    if (vmodels_drop(&mesh->vmodels, &mesh->tables, event->gone.id, event->gone.revision, &number))
        on_vmodel(mesh, number);
}

static void
on_txn_ended(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end)
{
    switch ((enum bidder)((uint32_t)txn >> BIDDER_SHIFT)) {
    case BIDDER_MODEL: reconcile_on_txn(mesh, txn, end); break;
    case BIDDER_ORDER: orders_on_txn(mesh, txn, end); break;
    case BIDDER_VMODEL: promote_on_txn(mesh, txn); break;
    case BIDDER_CALL: unknown_on_txn(mesh, txn, end); break;
    }
}

static void
on_model_gone(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_model(&mesh->tables, event->gone.id);
    if (number != NAME_NONE && model_is_lost(model_at(mesh, number)))
        return; /* W1: not deleted; a transaction found it absent */
    if (!tables_drop_model(&mesh->tables, event->gone.id, event->gone.revision, &number))
        return;
    on_record(mesh, number);
    heap_set(&mesh->reconcile.graves, number, (int64_t)event->gone.revision);
}

static void
on_model_put(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_model(&mesh->tables, event->model.id);
    registry_rebuild_on_contact(mesh);
    bool known = number != NAME_NONE && mesh->tables.models[number].known;
    if (is_passed(mesh, known, event->model.revision))
        return;
    enum lost lost = registry_rebuild_judge(mesh, &event->model);
    if (!tables_put_model(&mesh->tables, &event->model, &number))
        return;
    if (lost != LOST_NOT)
        registry_rebuild_ends(mesh, number, lost);
    heap_remove(&mesh->reconcile.graves, number);
    on_record(mesh, number);
}

/* T6: deletions that the mirror has passed need not be remembered. */
static void
dig_up(struct mesh *mesh, uint64_t revision)
{
    while (heap_first(&mesh->reconcile.graves) != HEAP_NONE &&
           heap_first_key(&mesh->reconcile.graves) <= (int64_t)revision) {
        uint32_t number = heap_first(&mesh->reconcile.graves);
        heap_remove(&mesh->reconcile.graves, number);
        tables_forget_model(&mesh->tables, number);
    }
}

static void
on_whole(struct mesh *mesh, uint64_t revision)
{
    bool was = mesh->mirror.whole;
    mesh->mirror.whole = true;
    mesh->mirror.seen = revision;
    registry_rebuild_on_contact(mesh);
    dig_up(mesh, revision);
    vmodels_dig_up(&mesh->vmodels, revision);
    if (!was)
        reconcile_all(mesh);
}

static void
on_session(struct mesh *mesh, uint64_t revision)
{
    bool is_new = revision != mesh->mirror.session;
    mesh->mirror.session = revision;
    if (revision != 0)
        registry_rebuild_on_contact(mesh);
    if (is_new && revision != 0)
        reconcile_all(mesh);
}

static void
on_instance_put(struct mesh *mesh, const struct mesh_event *event)
{
    const struct instance before = mesh->tables.instances[INSTANCE_SELF];
    if (!tables_put_instance(&mesh->tables, &event->instance, mesh->now_ms))
        return;
    const struct instance *own = &mesh->tables.instances[INSTANCE_SELF];
    if (own->session != before.session)
        reconcile_all(mesh); /* this node's places count (again) */
    mesh->room_queue.due = true;
    mesh->entries.misplaced |= own->labels != before.labels;
}

static void
on_figures(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_instance(&mesh->tables, event->figures.instance);
    if (number == NAME_NONE || mesh->tables.instances[number].start_ms > event->figures.start_ms)
        return; /* of an earlier process; a start may be corrected to an earlier time */
    uint32_t model = event->figures.model == NULL
                         ? NAME_NONE
                         : tables_model(&mesh->tables, event->figures.model);
    tables_notify_reply(&mesh->tables.instances[number],
                        model == NAME_NONE ? NULL : model_at(mesh, model), &event->figures.figures,
                        mesh->now_ms);
    mesh->room_queue.due = true;
}

static void
on_unreachable(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_instance(&mesh->tables, event->unreachable.instance);
    if (number == NAME_NONE)
        return;
    mesh->tables.instances[number].unreachable_until_ms = mesh->now_ms + UNREACHABLE_MS;
    promote_on_unreachable(mesh);
}

static void
on_runtime(struct mesh *mesh, const struct mesh_event *event)
{
    CHECK(event->runtime.pool < mesh->pools.count);
    pool_open(mesh, event);
    mesh->room_queue.due = true;
    reconcile_all(mesh);
}

static void
on_used(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_model(&mesh->tables, event->used.model);
    struct core_entry *entry = number == NAME_NONE ? NULL : entry_of(mesh, model_at(mesh, number));
    if (entry == NULL)
        return;
    copies_use(mesh, entry, event->used.count);
    if (event->used.took_us > 0)
        copies_time(entry, event->used.count, event->used.took_us);
    load_touch(mesh, entry, event->used.used_ms);
}

/* ---- the step ---- */

static void
tick(struct mesh *mesh)
{
    reconcile_tick(mesh);
    orders_tick(mesh);
    promote_tick(mesh);
    unknown_tick(mesh);
    elsewhere_tick(mesh);
    call_tick(mesh);
    ensure_tick(mesh);
    tables_notify_old(&mesh->tables, mesh->now_ms, mesh->wall_ms);
    load_tick(mesh);
    copies_tick(mesh);
    janitor_tick(mesh);
    bounds_tick(mesh);
    preload_tick(mesh);
    reaper_tick(mesh);
    migrate_tick(mesh);
    drain_tick(mesh);
    registry_rebuild_tick(mesh);
}

static void
on_event(struct mesh *mesh, const struct mesh_event *event)
{
    switch (event->kind) {
    case MESH_TICK: tick(mesh); break;
    case MESH_RUNTIME: on_runtime(mesh, event); break;
    case MESH_RUNTIME_LOST:
        CHECK(event->lost.pool < mesh->pools.count);
        load_on_runtime_lost(mesh, event->lost.pool);
        break;
    case MESH_RUNTIME_RESTS:
        CHECK(event->rest.pool < mesh->pools.count);
        mesh->pools.at[event->rest.pool].rests = event->rest.rests;
        mesh->room_queue.due = true;
        break;
    case MESH_SESSION: on_session(mesh, event->session.revision); break;
    case MESH_WHOLE: on_whole(mesh, event->whole.revision); break;
    case MESH_EMPTIED: registry_rebuild_on_emptied(mesh); break;
    case MESH_MODEL_PUT: on_model_put(mesh, event); break;
    case MESH_MODEL_GONE: on_model_gone(mesh, event); break;
    case MESH_VMODEL_PUT: on_vmodel_put(mesh, event); break;
    case MESH_VMODEL_GONE: on_vmodel_gone(mesh, event); break;
    case MESH_INSTANCE_PUT: on_instance_put(mesh, event); break;
    case MESH_INSTANCE_GONE:
        tables_drop_instance(&mesh->tables, event->gone.id, event->gone.revision, mesh->now_ms);
        break;
    case MESH_INSTANCE_FIGURES: on_figures(mesh, event); break;
    case MESH_UNREACHABLE: on_unreachable(mesh, event); break;
    case MESH_TXN_ENDED: on_txn_ended(mesh, event->txn.txn, event->txn.end); break;
    case MESH_CALL: call_on_call(mesh, event); break;
    case MESH_CALL_CANCELLED: call_on_cancelled(mesh, event->call.call); break;
    case MESH_TRY_ENDED: call_on_try(mesh, event); break;
    case MESH_ORDER: orders_on_order(mesh, &event->order); break;
    case MESH_ORDER_CANCELLED: orders_on_cancelled(mesh, event->order.order); break;
    case MESH_ENSURE: ensure_on_ensure(mesh, event); break;
    case MESH_SIZE_PREDICTED:
        load_on_size(mesh, event->loaded.ticket, event->loaded.size_bytes);
        break;
    case MESH_LOAD_ENDED: load_on_load(mesh, event); break;
    case MESH_SIZE_MEASURED:
        load_on_measured(mesh, event->loaded.ticket, event->loaded.size_bytes);
        break;
    case MESH_UNLOAD_ENDED: load_on_unload(mesh, event); break;
    case MESH_TYPES:
        if (types_set(&mesh->tables.types, event->types.rules, event->types.rule_count)) {
            tables_relabel(&mesh->tables);
            mesh->entries.misplaced = true;
            mesh->room_queue.due = true;
        }
        break;
    case MESH_RATE:
        mesh->config.rate_for_more =
            event->rate.for_more == 0 ? RATE_FOR_MORE : event->rate.for_more;
        break;
    case MESH_USED: on_used(mesh, event); break;
    case MESH_LEADER: mesh->leader = event->leader.is_leader; break;
    case MESH_DRAIN: drain_begin(mesh); break;
    }
}

static bool
work_off_one(struct mesh *mesh)
{
    if (mesh->reconcile.unreconciled_count > 0) {
        reconcile(mesh, mesh->reconcile.unreconciled[--mesh->reconcile.unreconciled_count]);
        return true;
    }
    if (mesh->calls.routing == CALL_NONE)
        return orders_work_off(mesh);
    uint32_t number = mesh->calls.routing;
    mesh->calls.routing = mesh->calls.at[number].next;
    call_route(mesh, number);
    return true;
}

/* After the wall clock was set, entries' stamps are shifted so that every age stays the same. If it
 * is late by less, it stands still instead. */
static void
set_clocks(struct mesh *mesh, const struct mesh_event *event)
{
    int64_t former_ms = mesh->wall_ms;
    int64_t wall_ms = stamp_judge(event->wall_ms);
    int64_t passed_ms = event->now_ms > mesh->now_ms ? event->now_ms - mesh->now_ms : 0;
    int64_t by_ms = wall_ms - former_ms - passed_ms;
    bool is_set = former_ms != 0 && (by_ms > CLOCK_SET_MS || by_ms < -CLOCK_SET_MS);
    mesh->now_ms += passed_ms;
    if (wall_ms > former_ms || is_set)
        mesh->wall_ms = wall_ms;
    if (wall_ms > mesh->wall_most_ms)
        mesh->wall_most_ms = wall_ms;
    if (is_set)
        load_on_clock_set(mesh, by_ms);
}

struct mesh_actions
mesh_step(struct mesh *mesh, const struct mesh_event *event)
{
    set_clocks(mesh, event);
    mesh->actions.count = 0;
    bump_reset(&mesh->actions.arena);
    on_event(mesh, event);
    do {
        while (work_off_one(mesh))
            ;
        room_queue_look(mesh);
        while (work_off_one(mesh))
            ;
    } while (load_run_queue(mesh));
    CHECK(mesh->reconcile.unreconciled_count == 0 && mesh->calls.routing == CALL_NONE &&
          mesh->orders.due_count == 0); /* nothing waits for another event */
    return (struct mesh_actions){.at = mesh->actions.at, .count = mesh->actions.count};
}

/* ---- looking at it ---- */

enum mesh_state
mesh_state(const struct mesh *mesh, const char *id)
{
    uint32_t number = tables_model(&mesh->tables, id);
    if (number == NAME_NONE || mesh->tables.models[number].entry == ENTRY_NONE)
        return MESH_STATE_NONE;
    return (enum mesh_state)mesh->entries.at[mesh->tables.models[number].entry].state;
}

const char *
mesh_resolve(const struct mesh *mesh, const char *id)
{
    uint32_t number = names_find(&mesh->vmodels.names, id);
    uint32_t model = number == NAME_NONE ? NAME_NONE : vmodel_model(&mesh->vmodels.at[number]);
    return model == NAME_NONE ? NULL : names_text(&mesh->tables.model_names, model);
}
