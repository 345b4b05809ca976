/* SPDX-License-Identifier: Apache-2.0 */
/* This node's entries: admission (A), eviction (E) and the load queue (Q). */
#include "mesh/core/copies/load.h"
#include "base/check.h"
#include "mesh/core/actions.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/copy_calls.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/ledger.h"
#include "mesh/core/copies/load_times.h"
#include "mesh/core/copies/minimum.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"

enum {
    CLASS_SHIFT = 56,
    CONCURRENCY_MAX = 1 << 20,
    STAMPS_AHEAD_MS = 60000,
};

/* Allowed transitions. */
#define TO(state) (1u << MESH_STATE_##state)
static const uint32_t EDGES[] = {
    [MESH_STATE_NONE] = TO(CLAIMING),
    [MESH_STATE_CLAIMING] = TO(QUEUED) | TO(WITHDRAWING) | TO(NONE),
    [MESH_STATE_QUEUED] = TO(LOADING) | TO(WITHDRAWING) | TO(NONE),
    [MESH_STATE_LOADING] = TO(LOADED) | TO(WITHDRAWING) | TO(EMPTYING),
    [MESH_STATE_LOADED] = TO(WITHDRAWING) | TO(EMPTYING),
    [MESH_STATE_WITHDRAWING] = TO(EMPTYING) | TO(NONE) | TO(LOADED), /* migrate_stays */
    [MESH_STATE_EMPTYING] = TO(UNLOADING) | TO(NONE),
    [MESH_STATE_UNLOADING] = TO(NONE),
};

static bool
commits(enum mesh_state state)
{
    return state >= MESH_STATE_CLAIMING && state <= MESH_STATE_LOADED;
}

static bool
claims(enum mesh_state state)
{
    return state == MESH_STATE_CLAIMING || state == MESH_STATE_QUEUED;
}

/* ---- in which heaps an entry is ---- */

/* Q1, Q2 as one number: the class, then the longest wait or the latest use. */
int64_t
load_queue_key(const struct core_entry *entry)
{
    const int64_t most = (INT64_C(1) << CLASS_SHIFT) - 1;
    int64_t time_ms = entry->class == MESH_CLASS_CALL ? entry->waited_ms : entry->used_ms;
    if (time_ms > most)
        time_ms = most;
    if (entry->class != MESH_CLASS_CALL)
        time_ms = most - time_ms;
    return (int64_t)entry->class << CLASS_SHIFT | time_ms;
}

/* E3: calls were already waiting for room in this pool when the entry was claimed. */
static bool
is_overdue(struct mesh *mesh, const struct core_entry *entry)
{
    for (uint32_t i = mesh->room_queue.first; i != CALL_NONE; i = mesh->calls.at[i].next)
        if (pool_number(mesh, model_at(mesh, mesh->calls.at[i].model)) == entry->pool)
            return mesh->calls.at[i].queued_ms < entry->claimed_ms;
    return false;
}

static bool
is_guarded(struct mesh *mesh, const struct core_entry *entry)
{
    return (entry->called || entry->waiting > 0) &&
           entry->began_ms + load_guard_ms(mesh) > mesh->now_ms && !is_overdue(mesh, entry);
}

static void
lru_remove(struct mesh *mesh, uint32_t number)
{
    struct pool *pool = pool_of(mesh, &mesh->entries.at[number]);
    if (heap_has(&pool->lru, number))
        pool->evictable_units -= mesh->entries.at[number].units;
    if (heap_has(&pool->held, number))
        pool->held_units -= mesh->entries.at[number].units;
    heap_remove(&pool->lru, number);
    heap_remove(&pool->young, number);
    heap_remove(&pool->held, number);
}

static void
lru_place(struct mesh *mesh, const struct core_entry *entry)
{
    uint32_t number = entry_number(mesh, entry);
    struct pool *pool = pool_of(mesh, entry);
    lru_remove(mesh, number);
    if (entry->state != MESH_STATE_LOADED)
        return;
    if (minimum_needs(mesh, entry)) {
        heap_set(&pool->held, number, entry->used_ms);
        pool->held_units += entry->units;
        return;
    }
    if (is_guarded(mesh, entry)) {
        heap_set(&pool->young, number, entry->began_ms);
        return;
    }
    heap_set(&pool->lru, number, entry->used_ms);
    pool->evictable_units += entry->units;
}

void
load_weigh(struct mesh *mesh, struct core_entry *entry)
{
    bool was_held = heap_has(&pool_of(mesh, entry)->held, entry_number(mesh, entry));
    if (was_held == minimum_needs(mesh, entry))
        return;
    lru_place(mesh, entry);
    mesh->room_queue.due |= was_held;
}

static void
grow_up(struct mesh *mesh, struct pool *pool)
{
    const int64_t old_ms = mesh->now_ms - load_guard_ms(mesh);
    while (heap_first_key(&pool->young) <= old_ms) {
        uint32_t number = heap_first(&pool->young);
        heap_remove(&pool->young, number);
        heap_set(&pool->lru, number, mesh->entries.at[number].used_ms);
        pool->evictable_units += mesh->entries.at[number].units;
        mesh->room_queue.due = true;
    }
}

void
load_grow_up(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pools.count; i++)
        grow_up(mesh, &mesh->pools.at[i]);
}

/* F2: no call waited, so this node looks for another one. */
static void
try_elsewhere(struct mesh *mesh, struct load_wish wish, uint64_t create_revision)
{
    const struct core_model *model = model_at(mesh, wish.model);
    if (model->known && model->create_revision == create_revision && !mesh->drain.active &&
        model_fresh_failures(mesh, model) < MESH_FAILURES_MAX)
        (void)ensure_anywhere(mesh, &wish, wish.used_ms);
}

static void
release(struct mesh *mesh, struct core_entry *entry)
{
    uint32_t model = entry->model;
    const struct load_wish again = {.model = model,
                                    .used_ms = entry->used_ms,
                                    .class = entry->class,
                                    .target = entry->target,
                                    .units = entry->units};
    bool further =
        entry->failed && (entry->class == MESH_CLASS_COPY || entry->class == MESH_CLASS_MIGRATION);
    uint64_t create_revision = entry->create_revision;
    CHECK(entry->in_flight == 0);
    calls_reroute(mesh, entry, MESH_END_OK); /* R12 */
    CHECK(entry->waiting == 0);
    if (entry->resident)
        pool_of(mesh, entry)->ledger.resident -= entry->units;
    ledger_check(&pool_of(mesh, entry)->ledger);
    if (entry->reason != NAME_NONE)
        names_release(&mesh->tables.reasons, entry->reason);
    model_at(mesh, model)->entry = ENTRY_NONE;
    *entry = (struct core_entry){.next_free = mesh->entries.first_free};
    mesh->entries.first_free = entry_number(mesh, entry);
    reconcile_later(mesh, model);
    if (further)
        try_elsewhere(mesh, again, create_revision);
    if (!heap_has(&mesh->reconcile.graves, model))
        tables_forget_model(&mesh->tables, model); /* if its record is gone */
    names_release(&mesh->tables.model_names, model);
}

void
entry_set(struct mesh *mesh, struct core_entry *entry, enum mesh_state state)
{
    struct pool *pool = pool_of(mesh, entry);
    CHECK(EDGES[entry->state] & 1u << state);
    if (commits(entry->state))
        pool->ledger.committed -= entry->units;
    if (commits(state))
        pool->ledger.committed += entry->units;
    else
        mesh->room_queue.due = true;
    if (claims(entry->state))
        pool->ledger.claimed -= entry->units;
    if (claims(state))
        pool->ledger.claimed += entry->units;
    mesh->entries.loaded -= entry->state == MESH_STATE_LOADED;
    mesh->entries.loaded += state == MESH_STATE_LOADED;
    if (entry->state == MESH_STATE_LOADING) {
        CHECK(pool->loading > 0);
        pool->loading--;
        pool->stuck = false;
        mesh->room_queue.due = true;
    }
    if (state == MESH_STATE_LOADING) {
        pool->loading++;
        CHECK(pool->loading <= pool->loaders); /* Q5 */
        entry->resident = true;
        pool->ledger.resident += entry->units;
        CHECK(pool->ledger.resident <= pool->ledger.capacity); /* K3 */
    }
    ledger_check(&pool->ledger);
    entry->state = (uint8_t)state;
    entry->began_ms = mesh->now_ms;
    lru_place(mesh, entry);
    if (state == MESH_STATE_QUEUED)
        heap_set(&pool->queue, entry_number(mesh, entry), load_queue_key(entry));
    else
        heap_remove(&pool->queue, entry_number(mesh, entry));
    if (state == MESH_STATE_EMPTYING) {
        act_on_model(mesh, MESH_DO_CLOSE, entry);
        calls_reroute(mesh, entry, MESH_END_OK); /* S6: waiting calls will get no permit */
    }
    if (state == MESH_STATE_NONE)
        release(mesh, entry);
}

static void
resize(struct mesh *mesh, struct core_entry *entry, uint32_t units)
{
    uint32_t number = entry_number(mesh, entry);
    struct pool *pool = pool_of(mesh, entry);
    if (commits(entry->state))
        pool->ledger.committed = pool->ledger.committed - entry->units + units;
    if (claims(entry->state))
        pool->ledger.claimed = pool->ledger.claimed - entry->units + units;
    if (entry->resident)
        pool->ledger.resident = pool->ledger.resident - entry->units + units;
    if (heap_has(&pool->lru, number))
        pool->evictable_units = pool->evictable_units - entry->units + units;
    if (heap_has(&pool->held, number))
        pool->held_units = pool->held_units - entry->units + units;
    entry->units = units;
    ledger_check(&pool->ledger);
}

static void
set_used(struct mesh *mesh, struct core_entry *entry, int64_t used_ms)
{
    entry->used_ms = used_ms;
    uint32_t number = entry_number(mesh, entry);
    struct pool *pool = pool_of(mesh, entry);
    if (heap_has(&pool->lru, number))
        heap_set(&pool->lru, number, used_ms);
    if (heap_has(&pool->held, number))
        heap_set(&pool->held, number, used_ms);
    if (heap_has(&pool->queue, number))
        heap_set(&pool->queue, number, load_queue_key(entry));
}

void
load_touch(struct mesh *mesh, struct core_entry *entry, int64_t used_ms)
{
    if (used_ms > mesh->wall_ms)
        used_ms = mesh->wall_ms; /* E1 */
    if (used_ms > entry->used_ms)
        set_used(mesh, entry, used_ms);
}

/* Least stamp of a place: the start of this process that other nodes know, otherwise the place
 * would count as its predecessor's. Until the mirror shows that start, the maximum of all stamps so
 * far, which are used up. */
static int64_t
stamp_least(const struct mesh *mesh)
{
    const struct instance *self = &mesh->tables.instances[INSTANCE_SELF];
    bool is_reported = mesh->mirror.session != 0 && self->session == mesh->mirror.session;
    int64_t start_ms = self->start_ms;
    if (!is_reported)
        start_ms = mesh->wall_most_ms > mesh->entries.most_since_ms
                       ? mesh->wall_most_ms
                       : mesh->entries.most_since_ms + 1;
    return start_ms > mesh->wall_ms ? start_ms : mesh->wall_ms;
}

/* Stamps of places are unique, so they continue from the last one unless that is far ahead. */
void
load_on_clock_set(struct mesh *mesh, int64_t by_ms)
{
    if (mesh->entries.last_since_ms > stamp_least(mesh) + STAMPS_AHEAD_MS)
        mesh->entries.last_since_ms = 0;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_NONE)
            continue;
        int64_t used_ms = stamp_judge(entry->used_ms + by_ms);
        set_used(mesh, entry, used_ms < mesh->wall_ms ? used_ms : mesh->wall_ms);
    }
}

void
load_called(struct mesh *mesh, struct core_entry *entry)
{
    if (entry->called)
        return;
    entry->called = true;
    if (entry->state == MESH_STATE_LOADED)
        lru_place(mesh, entry);
}

void
load_lift(struct mesh *mesh, struct core_entry *entry, enum mesh_class class)
{
    if (class >= entry->class)
        return;
    entry->class = (uint8_t) class;
    entry->waited_ms = mesh->now_ms;
    if (entry->state == MESH_STATE_QUEUED)
        heap_set(&pool_of(mesh, entry)->queue, entry_number(mesh, entry), load_queue_key(entry));
}

/* ---- room ---- */

enum room { ROOM_FOR_OLDER, ROOM_AT_ANY_COST };

/* E4: a load with a waiting caller counts as used now. */
static int64_t
stamp_of(const struct mesh *mesh, enum mesh_class class, int64_t used_ms)
{
    return class == MESH_CLASS_CALL ? mesh->wall_ms : used_ms;
}

/* E2, E3, B5. */
static struct heap *
heap_of_next(struct pool *pool, const struct core_entry *newcomer, enum room room)
{
    bool guarded_too = room == ROOM_AT_ANY_COST || newcomer->class == MESH_CLASS_MIGRATION;
    if (heap_first(&pool->lru) != HEAP_NONE || !guarded_too)
        return &pool->lru;
    bool held_too = room == ROOM_AT_ANY_COST && heap_first(&pool->young) == HEAP_NONE;
    return held_too ? &pool->held : &pool->young;
}

/* E2, E4, E5: evicts enough victims for a newcomer that is about to load, or none. ROOM_AT_ANY_COST
 * (K4): evicts everything found, even if it is not enough, including a newcomer loaded in advance
 * if it is the oldest candidate. */
static bool
make_room(struct mesh *mesh, struct pool *pool, struct core_entry *newcomer, enum room room)
{
    uint64_t excess = room == ROOM_FOR_OLDER ? ledger_excess_with(&pool->ledger, newcomer->units)
                                             : ledger_excess_admitted(&pool->ledger);
    uint64_t found = 0;
    uint32_t count = 0;
    load_grow_up(mesh);
    while (found < excess) {
        struct heap *heap = heap_of_next(pool, newcomer, room);
        uint32_t number = heap_first(heap);
        if (number == HEAP_NONE)
            break;
        struct core_entry *victim = &mesh->entries.at[number];
        if (room == ROOM_FOR_OLDER &&
            victim->used_ms >= stamp_of(mesh, newcomer->class, newcomer->used_ms))
            break;
        lru_remove(mesh, number);
        if (victim == newcomer && (heap != &pool->lru || victim->class != MESH_CLASS_ADVANCE))
            continue;
        if (heap != &pool->held && minimum_needs(mesh, victim)) {
            lru_place(mesh, victim); /* another copy has gone since */
            continue;
        }
        scratch_grow((void **)&mesh->entries.victims, &mesh->entries.victim_capacity, count + 1,
                     sizeof(*mesh->entries.victims));
        mesh->entries.victims[count++] = number;
        found += victim->units;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct core_entry *victim = &mesh->entries.at[mesh->entries.victims[i]];
        if (found >= excess || room == ROOM_AT_ANY_COST) {
            victim->offered = mesh->now_ms - victim->began_ms > 2 * pool->load_timeout_ms; /* E6 */
            victim->evicted = true;
            entry_leave(mesh, victim);
        } else {
            lru_place(mesh, victim);
        }
    }
    if (newcomer != NULL)
        lru_place(mesh, newcomer);
    return found >= excess;
}

/* ---- admission ---- */

static bool
has_fresh_failure(const struct mesh *mesh, const struct core_model *model)
{
    const struct core_place *place = model_place(model, INSTANCE_SELF);
    return place != NULL && place->kind == MESH_PLACE_FAILED &&
           failure_is_fresh(place->since_ms, mesh->wall_ms, mesh->config.failure_fresh_ms);
}

static bool
may_be_here(const struct mesh *mesh, const struct core_model *model)
{
    return types_allow(tables_rule(&mesh->tables, model),
                       mesh->tables.instances[INSTANCE_SELF].labels);
}

static uint64_t
units_in(const struct mesh *mesh, const struct heap *heap, bool calls_too)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < heap->count; i++) {
        const struct core_entry *entry = &mesh->entries.at[heap->cells[i].item];
        if (calls_too || entry->class != MESH_CLASS_CALL)
            units += entry->units;
    }
    return units;
}

/* A6: whether so much may be committed once everything evictable is gone. Calls take precedence
 * over queued loads without a waiting call. */
static bool
may_commit(struct mesh *mesh, const struct pool *pool, uint64_t wanted, enum mesh_class class,
           int64_t used_ms)
{
    uint64_t usable = ledger_usable(&pool->ledger);
    if (wanted <= usable)
        return true;
    if (class == MESH_CLASS_CALL)
        usable += units_in(mesh, &pool->queue, false);
    if (wanted <= usable)
        return true;
    load_grow_up(mesh);
    usable += pool->evictable_units;
    bool older = heap_first_key(&pool->lru) < stamp_of(mesh, class, used_ms);
    if (class == MESH_CLASS_MIGRATION) { /* E3 */
        usable += units_in(mesh, &pool->young, true);
        older |= heap_first(&pool->lru) == HEAP_NONE;
    }
    return older && wanted <= usable;
}

static enum load_refusal
judge(struct mesh *mesh, const struct pool *pool, const struct load_wish *wish, uint32_t units)
{
    const struct core_model *model = model_at(mesh, wish->model);
    if (model->entry != ENTRY_NONE) {
        const struct core_entry *entry = &mesh->entries.at[model->entry];
        return state_loads(entry->state) && !entry->doomed ? LOAD_BEGUN : LOAD_LEAVING;
    }
    if (mesh->drain.active || !pool->runtime || !mesh->mirror.whole || !model->known ||
        !may_be_here(mesh, model))
        return LOAD_NOT_HERE;
    if (has_fresh_failure(mesh, model) || model_fresh_failures(mesh, model) >= MESH_FAILURES_MAX)
        return LOAD_FAILED_HERE; /* A3 */
    if (model_is_at_most(&mesh->tables, model))
        return LOAD_FULL; /* B3 */
    if (units > ledger_usable(&pool->ledger))
        return LOAD_TOO_LARGE;
    if (wish->class == MESH_CLASS_ADVANCE && mesh->room_queue.first != CALL_NONE)
        return LOAD_FULL;                             /* R14 */
    uint64_t wanted = pool->ledger.committed + units; /* A6: includes other claims */
    return may_commit(mesh, pool, wanted, wish->class, wish->used_ms) ? LOAD_BEGUN : LOAD_FULL;
}

bool
load_may_begin(struct mesh *mesh, uint32_t model)
{
    const struct load_wish wish = {
        .model = model, .used_ms = mesh->wall_ms, .class = MESH_CLASS_CALL, .target = 1};
    const struct pool *pool = pool_for(mesh, model_at(mesh, model));
    uint32_t units = pool_assumed_units(pool, model_at(mesh, model));
    return judge(mesh, pool, &wish, units) == LOAD_BEGUN;
}

static struct core_entry *
entry_take(struct mesh *mesh)
{
    if (mesh->entries.first_free != ENTRY_NONE) {
        struct core_entry *entry = &mesh->entries.at[mesh->entries.first_free];
        mesh->entries.first_free = entry->next_free;
        return entry;
    }
    scratch_grow((void **)&mesh->entries.at, &mesh->entries.capacity, mesh->entries.used + 1,
                 sizeof(*mesh->entries.at));
    return &mesh->entries.at[mesh->entries.used++];
}

void
act_on_model(struct mesh *mesh, enum mesh_action_kind kind, const struct core_entry *entry)
{
    const struct core_model *model = model_at(mesh, entry->model);
    struct mesh_action *action = act(mesh, kind);
    action->load.ticket = (uint64_t)entry->serial << 32 | entry_number(mesh, entry);
    action->load.model = names_text(&mesh->tables.model_names, entry->model);
    action->load.pool = entry->pool;
    action->load.evicted = entry->evicted;
    action->load.unused_ms = mesh->wall_ms > entry->used_ms ? mesh->wall_ms - entry->used_ms : 0;
    if (!model->known)
        return; /* for an unload the id is enough */
    action->load.type = names_text(&mesh->tables.type_names, model->type);
    action->load.path = model->path;
    action->load.key = model->path + __builtin_strlen(model->path) + 1;
}

/* The stamp of the next place. */
static int64_t
stamp_next(const struct mesh *mesh)
{
    int64_t least_ms = stamp_least(mesh);
    return mesh->entries.last_since_ms < least_ms ? least_ms : mesh->entries.last_since_ms + 1;
}

enum load_refusal
load_begin(struct mesh *mesh, const struct load_wish *wish)
{
    struct core_model *model = model_at(mesh, wish->model);
    uint32_t number = pool_number(mesh, model);
    const struct pool *pool = &mesh->pools.at[number];
    uint32_t units = wish->units != 0 ? wish->units : pool_assumed_units(pool, model);
    CHECK(wish->target > 0 && wish->class <= MESH_CLASS_ADVANCE);
    enum load_refusal refusal = judge(mesh, pool, wish, units);
    if (refusal != LOAD_BEGUN)
        return refusal;
    if (model->entry != ENTRY_NONE) {
        struct core_entry *there = entry_of(mesh, model);
        load_touch(mesh, there, wish->used_ms);
        load_lift(mesh, there, wish->class);
        return LOAD_BEGUN;
    }
    mesh->entries.last_since_ms = stamp_next(mesh);
    if (mesh->entries.last_since_ms > mesh->entries.most_since_ms)
        mesh->entries.most_since_ms = mesh->entries.last_since_ms;
    struct core_entry *entry = entry_take(mesh);
    *entry = (struct core_entry){
        .create_revision = model->create_revision,
        .used_ms = wish->used_ms < mesh->wall_ms ? wish->used_ms : mesh->wall_ms,
        .since_ms = mesh->entries.last_since_ms,
        .waited_ms = mesh->now_ms,
        .claimed_ms = mesh->now_ms,
        .serial = ++mesh->entries.serials,
        .model = wish->model,
        .units = units,
        .target = wish->target,
        .first_call = CALL_NONE,
        .last_call = CALL_NONE,
        .reason = NAME_NONE,
        .class = (uint8_t)wish->class,
        .sized = wish->units != 0 || model->bounds.size_units != 0, /* B2 */
        .pool = (uint8_t)number,
    };
    names_keep(&mesh->tables.model_names, wish->model);
    model->entry = entry_number(mesh, entry);
    entry_set(mesh, entry, MESH_STATE_CLAIMING);
    if (!entry->sized)
        act_on_model(mesh, MESH_DO_SIZE, entry);
    reconcile_later(mesh, wish->model);
    return LOAD_BEGUN;
}

static void
fail(struct mesh *mesh, struct core_entry *entry, const char *reason)
{
    entry->failed = true;
    entry->reason = names_hold(&mesh->tables.reasons, reason != NULL ? reason : "");
    entry->since_ms = mesh->wall_ms > entry->since_ms ? mesh->wall_ms : entry->since_ms;
}

/* B5: what other copies at the minimum leave for a loaded one. */
static uint64_t
usable_for(struct mesh *mesh, const struct core_entry *entry)
{
    const struct pool *pool = pool_of(mesh, entry);
    uint64_t usable = ledger_usable(&pool->ledger);
    uint64_t held = pool->held_units;
    if (entry->state != MESH_STATE_LOADED)
        return usable;
    if (heap_has(&pool->held, entry_number(mesh, entry)))
        held -= entry->units;
    return usable > held ? usable - held : 0;
}

/* K4 */
static bool
fail_if_too_large(struct mesh *mesh, struct core_entry *entry)
{
    uint64_t usable = usable_for(mesh, entry);
    if (entry->units <= usable)
        return false;
    char takes[LEDGER_TEXT_BYTES];
    char has[LEDGER_TEXT_BYTES];
    ledger_text(entry->units, takes);
    ledger_text(usable, has);
    const char *const parts[] = {"the model is larger than this node's memory: it needs ", takes,
                                 ", and the node has ", has, " for models"};
    fail(mesh, entry, memory_join(&mesh->actions.arena, parts, sizeof(parts) / sizeof(parts[0])));
    return true;
}

void
entry_admit(struct mesh *mesh, struct core_entry *entry)
{
    if (entry->waiting > 0)
        load_touch(mesh, entry, mesh->wall_ms); /* models used since the claim are not newer */
    const struct pool *pool = pool_of(mesh, entry);
    if (!fail_if_too_large(mesh, entry) &&
        may_commit(mesh, pool, pool->ledger.committed, entry->class, entry->used_ms))
        entry_set(mesh, entry, MESH_STATE_QUEUED);
    else
        entry_leave(mesh, entry);
}

void
entry_leave(struct mesh *mesh, struct core_entry *entry)
{
    if (entry->state == MESH_STATE_LOADING && !entry->doomed) {
        entry->doomed = true; /* leaves when the runtime answers */
        calls_reroute(mesh, entry, MESH_END_REFUSED);
        return;
    }
    if (entry->state != MESH_STATE_LOADED || entry->failed)
        calls_reroute(mesh, entry, entry->failed ? MESH_END_LOAD_FAILED : MESH_END_REFUSED);
    else if (!entry->resident)
        calls_reroute(mesh, entry, MESH_END_OK);
    entry_set(mesh, entry, MESH_STATE_WITHDRAWING); /* S6: still serves waiting calls */
    reconcile_later(mesh, entry->model);
}

void
load_tick(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pools.count; i++)
        if (ledger_excess_admitted(&mesh->pools.at[i].ledger) > 0) /* K4: left from before */
            make_room(mesh, &mesh->pools.at[i], NULL, ROOM_AT_ANY_COST);
}

static void
run_queue(struct mesh *mesh, struct pool *pool)
{
    while (pool->loading < pool->loaders) {
        uint32_t number = heap_first(&pool->queue);
        if (number == HEAP_NONE)
            return;
        struct core_entry *entry = &mesh->entries.at[number];
        if (entry->waiting > 0)
            load_touch(mesh, entry, mesh->wall_ms);
        if (!make_room(mesh, pool, entry, ROOM_FOR_OLDER)) { /* E5 */
            entry_leave(mesh, entry);
            continue;
        }
        if (!ledger_fits(&pool->ledger, entry->units)) /* K3, Q4 */
            return;
        CHECK(!mesh->drain.active && pool->runtime); /* D1 */
        int64_t queued_ms = mesh->now_ms - entry->began_ms;
        entry_set(mesh, entry, MESH_STATE_LOADING);
        act_on_model(mesh, MESH_DO_LOAD, entry);
        mesh->actions.at[mesh->actions.count - 1].load.queued_ms = queued_ms;
    }
}

bool
load_run_queue(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pools.count; i++)
        run_queue(mesh, &mesh->pools.at[i]);
    return mesh->reconcile.unreconciled_count > 0 || mesh->calls.routing != CALL_NONE;
}

/* ---- answers of the runtime ---- */

/* NULL: the entry is gone. */
static struct core_entry *
entry_of_ticket(struct mesh *mesh, uint64_t ticket)
{
    uint32_t number = (uint32_t)ticket;
    CHECK(number < mesh->entries.used);
    struct core_entry *entry = &mesh->entries.at[number];
    return entry->serial == ticket >> 32 && entry->state != MESH_STATE_NONE ? entry : NULL;
}

/* NULL: the entry is gone or in another state. */
static struct core_entry *
entry_at(struct mesh *mesh, uint64_t ticket, enum mesh_state state)
{
    struct core_entry *entry = entry_of_ticket(mesh, ticket);
    return entry != NULL && entry->state == state ? entry : NULL;
}

void
load_on_size(struct mesh *mesh, uint64_t ticket, uint64_t size_bytes)
{
    struct core_entry *entry = entry_at(mesh, ticket, MESH_STATE_CLAIMING);
    if (entry == NULL || entry->sized)
        return;
    resize(mesh, entry,
           size_bytes == 0 ? pool_of(mesh, entry)->default_units : ledger_units(size_bytes));
    entry->sized = true;
    reconcile_later(mesh, entry->model);
}

static void
on_loaded(struct mesh *mesh, struct core_entry *entry, uint64_t size_bytes, uint32_t concurrency)
{
    entry->concurrency = concurrency < CONCURRENCY_MAX ? concurrency : CONCURRENCY_MAX;
    load_took(mesh, mesh->now_ms - entry->began_ms);
    if (size_bytes != 0)
        resize(mesh, entry, ledger_units(size_bytes));
    entry_set(mesh, entry, MESH_STATE_LOADED);
    if (fail_if_too_large(mesh, entry) || entry->doomed)
        entry_leave(mesh, entry); /* before anything is evicted for it */
    make_room(mesh, pool_of(mesh, entry), entry, ROOM_AT_ANY_COST);
    if (entry->state == MESH_STATE_LOADED)
        act_on_model(mesh, MESH_DO_OPEN, entry);
    if (entry_serves(entry))
        calls_serve(mesh, entry);
    reconcile_later(mesh, entry->model);
}

void
load_on_load(struct mesh *mesh, const struct mesh_event *event)
{
    struct core_entry *entry = entry_at(mesh, event->loaded.ticket, MESH_STATE_LOADING);
    if (entry == NULL)
        return; /* the runtime has been lost */
    if (event->loaded.end == MESH_LOAD_OK) {
        on_loaded(mesh, entry, event->loaded.size_bytes, event->loaded.max_concurrency);
        return;
    }
    fail(mesh, entry, event->loaded.reason);
    entry->doomed = true;
    if (event->loaded.end == MESH_LOAD_NOT_ATTEMPTED) { /* F1: nothing to unload */
        pool_of(mesh, entry)->ledger.resident -= entry->units;
        entry->resident = false;
    }
    entry_leave(mesh, entry);
}

/* K7: a copy on its way out keeps its memory until it is gone; nothing is evicted for it. */
void
load_on_measured(struct mesh *mesh, uint64_t ticket, uint64_t size_bytes)
{
    struct core_entry *entry = entry_of_ticket(mesh, ticket);
    if (entry == NULL || !entry->resident || entry->state == MESH_STATE_LOADING || size_bytes == 0)
        return;
    resize(mesh, entry, ledger_units(size_bytes));
    mesh->room_queue.due = true;
    if (entry->state != MESH_STATE_LOADED)
        return;
    if (fail_if_too_large(mesh, entry))
        entry_leave(mesh, entry);
    make_room(mesh, pool_of(mesh, entry), entry, ROOM_AT_ANY_COST);
}

void
load_on_unload(struct mesh *mesh, const struct mesh_event *event)
{
    struct core_entry *entry = entry_at(mesh, event->loaded.ticket, MESH_STATE_UNLOADING);
    if (entry == NULL)
        return;
    struct pool *pool = pool_of(mesh, entry);
    if (!event->loaded.freed) { /* K5 */
        pool->ledger.lost += entry->units;
        entry->resident = false;
    }
    entry_set(mesh, entry, MESH_STATE_NONE);
    make_room(mesh, pool, NULL, ROOM_AT_ANY_COST); /* evicts for commitments that no longer fit */
}

void
load_on_runtime_lost(struct mesh *mesh, uint32_t number)
{
    struct pool *pool = &mesh->pools.at[number];
    if (pool->runtime)
        pool->return_ms = mesh->now_ms + RETURN_MS;
    pool->runtime = false;
    pool->ledger.resident -= pool->ledger.lost;
    pool->ledger.lost = 0;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_NONE || entry->pool != number)
            continue;
        if (entry->resident)
            pool->ledger.resident -= entry->units;
        entry->resident = false;
        entry->doomed = true;
        if (entry->state == MESH_STATE_UNLOADING)
            entry_set(mesh, entry, MESH_STATE_NONE);
        else if (entry->state <= MESH_STATE_LOADED)
            entry_leave(mesh, entry);
        else
            calls_reroute(mesh, entry, MESH_END_OK);
    }
}
