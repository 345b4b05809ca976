/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step: the event changes the tables, then everything is worked off that the change has called
 * for: calls to be routed, models to be settled, loads to be started.
 */
#include <stdlib.h>

#include "base/check.h"
#include "mesh/core/promote.h"
#include "mesh/core/state.h"

enum {
    FAILURE_FRESH_MS = 15 * 60000,
    GONE_MS = 10 * 60000,
    RATE_FOR_MORE = 2000,
    BUSY_PERCENT = 90,
    CLOCK_SET_MS = 1000, /* so far off at once, and the wall clock was set */
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
    mesh->config.instance = NULL; /* it is instance 0's name */
    if (config->failure_fresh_ms == 0)
        mesh->config.failure_fresh_ms = FAILURE_FRESH_MS;
    if (config->gone_ms == 0)
        mesh->config.gone_ms = GONE_MS;
    if (config->rate_for_more == 0)
        mesh->config.rate_for_more = RATE_FOR_MORE;
    if (config->busy_percent == 0)
        mesh->config.busy_percent = BUSY_PERCENT;
    mesh->pool_count = config->pool_of == NULL ? 1 : MESH_POOLS_MAX;
    mesh->reap_at = UINT32_MAX;
    mesh->random = config->seed;
    mesh->entry_free = ENTRY_NONE;
    mesh->routing = CALL_NONE;
    mesh->parked = CALL_NONE;
    mesh->crowd = CALL_NONE;
    mesh->crowd_last = CALL_NONE;
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++)
        mesh->questions[i] = (struct question){.model = NAME_NONE, .vmodel = NAME_NONE};
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
    heap_fini(&mesh->deadlines);
    heap_fini(&mesh->retries);
    heap_fini(&mesh->graves);
    heap_fini(&mesh->order);
    heap_fini(&mesh->unloaded);
    heap_fini(&mesh->ahead);
    memory_arena_fini(&mesh->arena);
    free(mesh->entries);
    free(mesh->victims);
    free(mesh->calls);
    free(mesh->unsettled);
    free(mesh->actions);
    free(mesh);
}

struct mesh_action *
act(struct mesh *mesh, enum mesh_action_kind kind)
{
    memory_grow((void **)&mesh->actions, &mesh->action_capacity, mesh->action_count + 1,
                sizeof(*mesh->actions));
    struct mesh_action *action = &mesh->actions[mesh->action_count++];
    *action = (struct mesh_action){.kind = kind};
    return action;
}

/* ---- records ---- */

/* A record newer than what the transaction compared has settled it (T3, T4). */
static void
on_record(struct mesh *mesh, uint32_t number)
{
    struct model *model = model_at(mesh, number);
    if (model->revision > model->txn_compare)
        model->txn = 0;
    heap_remove(&mesh->retries, number);
    settle_later(mesh, number);
    orders_on_model(mesh, number);
    promote_on_model(mesh, number);
    follow_on_model(mesh, number);
    crowd_on_model(mesh, number);
    ensure_on_model(mesh, number);
    drain_on_model(mesh, number);
}

static void
on_vmodel(struct mesh *mesh, uint32_t number)
{
    orders_on_vmodel(mesh, number);
    promote_on_vmodel(mesh, number);
    follow_on_vmodel(mesh, number);
}

/* T6: what the mirror has passed, and is not there, has gone since: a record that comes with a late
 * answer does not bring it back. */
static bool
is_passed(const struct mesh *mesh, bool known, uint64_t revision)
{
    return mesh->whole && !known && revision <= mesh->seen;
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
    mesh->transitions += active != NAME_NONE && mesh->vmodels.at[number].active != active;
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
    case BIDDER_MODEL: settle_on_txn(mesh, txn, end); break;
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
        return; /* W1: nobody has deleted it; a transaction has found that it is not there */
    if (!tables_drop_model(&mesh->tables, event->gone.id, event->gone.revision, &number))
        return;
    on_record(mesh, number);
    heap_set(&mesh->graves, number, (int64_t)event->gone.revision);
}

static void
on_model_put(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_model(&mesh->tables, event->model.id);
    lost_on_contact(mesh);
    bool known = number != NAME_NONE && mesh->tables.models[number].known;
    if (is_passed(mesh, known, event->model.revision))
        return;
    enum lost lost = lost_judge(mesh, &event->model);
    if (!tables_put_model(&mesh->tables, &event->model, &number))
        return;
    if (lost != LOST_NOT)
        lost_ends(mesh, number, lost);
    heap_remove(&mesh->graves, number);
    on_record(mesh, number);
}

/* T6: what the mirror has passed cannot come back. */
static void
dig_up(struct mesh *mesh, uint64_t revision)
{
    while (heap_first(&mesh->graves) != HEAP_NONE &&
           heap_first_key(&mesh->graves) <= (int64_t)revision) {
        uint32_t number = heap_first(&mesh->graves);
        heap_remove(&mesh->graves, number);
        tables_forget_model(&mesh->tables, number);
    }
}

static void
on_whole(struct mesh *mesh, uint64_t revision)
{
    bool was = mesh->whole;
    mesh->whole = true;
    mesh->seen = revision;
    lost_on_contact(mesh);
    dig_up(mesh, revision);
    vmodels_dig_up(&mesh->vmodels, revision);
    if (!was)
        settle_all(mesh);
}

static void
on_session(struct mesh *mesh, uint64_t revision)
{
    bool is_new = revision != mesh->session;
    mesh->session = revision;
    if (revision != 0)
        lost_on_contact(mesh);
    if (is_new && revision != 0)
        settle_all(mesh);
}

static void
on_instance_put(struct mesh *mesh, const struct mesh_event *event)
{
    const struct instance before = mesh->tables.instances[INSTANCE_SELF];
    if (!tables_put_instance(&mesh->tables, &event->instance, mesh->now_ms))
        return;
    const struct instance *own = &mesh->tables.instances[INSTANCE_SELF];
    if (own->session != before.session)
        settle_all(mesh); /* this node's places count (again) */
    mesh->crowd_due = true;
    mesh->misplaced |= own->labels != before.labels;
}

static void
on_figures(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_instance(&mesh->tables, event->figures.instance);
    if (number == NAME_NONE || mesh->tables.instances[number].start_ms > event->figures.start_ms)
        return; /* of a process that is no more; a start may be corrected to an earlier one */
    tables_tell_figures(&mesh->tables.instances[number], &event->figures.figures, mesh->now_ms);
    mesh->crowd_due = true;
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
    CHECK(event->runtime.pool < mesh->pool_count);
    pool_open(mesh, event);
    mesh->crowd_due = true;
    settle_all(mesh);
}

static void
on_used(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = tables_model(&mesh->tables, event->used.model);
    struct entry *entry = number == NAME_NONE ? NULL : entry_of(mesh, model_at(mesh, number));
    if (entry == NULL)
        return;
    copies_use(mesh, entry, event->used.count);
    if (event->used.took_us > 0)
        copies_time(entry, event->used.count, event->used.took_us);
    load_touch(mesh, entry, event->used.used_ms);
}

/* ---- the step ---- */

static void
on_event(struct mesh *mesh, const struct mesh_event *event)
{
    switch (event->kind) {
    case MESH_TICK:
        settle_tick(mesh);
        orders_tick(mesh);
        promote_tick(mesh);
        unknown_tick(mesh);
        elsewhere_tick(mesh);
        call_tick(mesh);
        ensure_tick(mesh);
        tables_tell_old(&mesh->tables, mesh->now_ms, mesh->wall_ms);
        load_tick(mesh);
        copies_tick(mesh);
        janitor_tick(mesh);
        ahead_tick(mesh);
        reaper_tick(mesh);
        move_tick(mesh);
        drain_tick(mesh);
        lost_tick(mesh);
        break;
    case MESH_RUNTIME: on_runtime(mesh, event); break;
    case MESH_RUNTIME_LOST:
        CHECK(event->lost.pool < mesh->pool_count);
        load_on_runtime_lost(mesh, event->lost.pool);
        break;
    case MESH_SESSION: on_session(mesh, event->session.revision); break;
    case MESH_WHOLE: on_whole(mesh, event->whole.revision); break;
    case MESH_EMPTIED: lost_on_emptied(mesh); break;
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
    case MESH_UNLOAD_ENDED: load_on_unload(mesh, event->loaded.ticket, event->loaded.freed); break;
    case MESH_TYPES:
        if (types_set(&mesh->tables.types, event->types.rules, event->types.rule_count)) {
            tables_relabel(&mesh->tables);
            mesh->misplaced = true;
            mesh->crowd_due = true;
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
    if (mesh->unsettled_count > 0) {
        settle(mesh, mesh->unsettled[--mesh->unsettled_count]);
        return true;
    }
    if (mesh->routing == CALL_NONE)
        return orders_work_off(mesh);
    uint32_t number = mesh->routing;
    mesh->routing = mesh->calls[number].next;
    call_route(mesh, number);
    return true;
}

/* A wall clock that was set leaves every age here as it was: the stamps of entries go with it. One
 * that is late by less stands still instead. */
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
    mesh->action_count = 0;
    memory_arena_reset(&mesh->arena);
    on_event(mesh, event);
    do {
        while (work_off_one(mesh))
            ;
        crowd_look(mesh);
        while (work_off_one(mesh))
            ;
    } while (load_run_queue(mesh));
    return (struct mesh_actions){.at = mesh->actions, .count = mesh->action_count};
}

/* ---- looking at it ---- */

enum mesh_state
mesh_state(const struct mesh *mesh, const char *id)
{
    uint32_t number = tables_model(&mesh->tables, id);
    if (number == NAME_NONE || mesh->tables.models[number].entry == ENTRY_NONE)
        return MESH_STATE_NONE;
    return (enum mesh_state)mesh->entries[mesh->tables.models[number].entry].state;
}

const char *
mesh_resolve(const struct mesh *mesh, const char *id)
{
    uint32_t number = names_find(&mesh->vmodels.names, id);
    uint32_t model = number == NAME_NONE ? NAME_NONE : vmodel_model(&mesh->vmodels.at[number]);
    return model == NAME_NONE ? NULL : names_text(&mesh->tables.model_names, model);
}

static void
check_calls(const struct mesh *mesh, const struct entry *entry)
{
    uint32_t waiting = 0;
    uint32_t last = CALL_NONE;
    for (uint32_t i = entry->first_call; i != CALL_NONE; i = mesh->calls[i].next) {
        CHECK(mesh->calls[i].state == CALL_WAITING);
        CHECK(mesh->calls[i].entry == (uint32_t)(entry - mesh->entries));
        waiting++;
        last = i;
    }
    CHECK(waiting == entry->waiting && last == entry->last_call);
    if (entry->concurrency > 0) /* S6 */
        CHECK(entry->in_flight <= entry->concurrency);
    if (entry->state == MESH_STATE_LOADED && entry_serves(entry) && waiting > 0)
        CHECK(entry->concurrency > 0 && entry->in_flight == entry->concurrency);
}

static uint32_t
check_list(const struct mesh *mesh, uint32_t first, enum call_state state)
{
    uint32_t count = 0;
    for (uint32_t call = first; call != CALL_NONE; call = mesh->calls[call].next) {
        CHECK(mesh->calls[call].state == state);
        count++;
    }
    return count;
}

static void
check_lists(const struct mesh *mesh)
{
    uint32_t asking = 0;
    uint32_t crowded = 0;
    for (uint32_t i = 0; i < mesh->call_capacity; i++) {
        asking += mesh->calls[i].state == CALL_ASKING;
        crowded += mesh->calls[i].state == CALL_CROWDED;
    }
    CHECK(asking == mesh->asking && crowded == check_list(mesh, mesh->crowd, CALL_CROWDED));
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++) {
        const struct question *question = &mesh->questions[i];
        if (question->model == NAME_NONE && question->vmodel == NAME_NONE)
            continue;
        asking -= check_list(mesh, question->asked, CALL_ASKING) +
                  check_list(mesh, question->later, CALL_ASKING);
        CHECK(question->txn != 0 || (question->asked == CALL_NONE && question->later == CALL_NONE));
    }
    CHECK(asking == 0);
    uint64_t arrival = 0;
    uint32_t last = CALL_NONE;
    for (uint32_t call = mesh->crowd; call != CALL_NONE; call = mesh->calls[call].next) {
        CHECK(mesh->calls[call].arrival > arrival); /* R14 */
        arrival = mesh->calls[call].arrival;
        last = call;
    }
    CHECK(last == mesh->crowd_last);
}

static void
check_pool(const struct mesh *mesh, uint32_t number)
{
    const struct pool *pool = &mesh->pools[number];
    uint64_t committed = 0;
    uint64_t claimed = 0;
    uint64_t resident = pool->ledger.lost;
    uint64_t evictable = 0;
    uint32_t loading = 0;
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        const struct entry *entry = &mesh->entries[i];
        bool belongs = entry->state != MESH_STATE_NONE && entry->pool == number;
        CHECK(heap_has(&pool->queue, i) == (belongs && entry->state == MESH_STATE_QUEUED));
        CHECK(belongs || !(heap_has(&pool->lru, i) || heap_has(&pool->young, i)));
        if (!belongs)
            continue;
        bool commits = entry->state <= MESH_STATE_LOADED;
        committed += commits ? entry->units : 0;
        bool claims = entry->state == MESH_STATE_CLAIMING || entry->state == MESH_STATE_QUEUED;
        claimed += claims ? entry->units : 0;
        resident += entry->resident ? entry->units : 0;
        evictable += heap_has(&pool->lru, i) ? entry->units : 0;
        loading += entry->state == MESH_STATE_LOADING;
    }
    CHECK(committed == pool->ledger.committed && resident == pool->ledger.resident);
    CHECK(claimed == pool->ledger.claimed);
    CHECK(evictable == pool->evictable_units && loading == pool->loading);
    CHECK(pool->loading <= pool->loaders || !pool->runtime);
}

void
mesh_check(const struct mesh *mesh)
{
    uint32_t loaded = 0;
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        const struct entry *entry = &mesh->entries[i];
        if (entry->state == MESH_STATE_NONE)
            continue;
        CHECK(mesh->tables.models[entry->model].entry == i);
        loaded += entry->state == MESH_STATE_LOADED;
        check_calls(mesh, entry);
    }
    CHECK(loaded == mesh->loaded);
    for (uint32_t i = 0; i < mesh->pool_count; i++)
        check_pool(mesh, i);
    check_lists(mesh);
    for (uint32_t call = mesh->parked; call != CALL_NONE; call = mesh->calls[call].next)
        CHECK(mesh->calls[call].state == CALL_PARKED && mesh->calls[call].vmodel != NAME_NONE);
    for (uint32_t i = 0; i < mesh->orders.under_way_count; i++) {
        const struct order *order = &mesh->orders.at[mesh->orders.under_way[i]];
        CHECK(order->stage != ORDER_FREE && order->at == i && !order->due);
    }
}
