/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This node's entries: who is admitted (A), what goes for it (E), in which order it is loaded (Q).
 */
#include "base/check.h"
#include "mesh/core/state.h"

enum {
    UNMEASURED_MS_MIN = 3000,
    GUESS_SLOWEST = 2,
    CHURN_ASSUMED = 10,
    CHURN_MS_MIN = 1000,
    TICK_MS = 1000,
    CLASS_SHIFT = 56,
    CONCURRENCY_MAX = 1 << 20,
    SAMPLES_FEW = 4, /* R4 */
    STAMPS_AHEAD_MS = 60000,
};

/* Which states may follow which. */
#define TO(state) (1u << MESH_STATE_##state)
static const uint32_t EDGES[] = {
    [MESH_STATE_NONE] = TO(CLAIMING),
    [MESH_STATE_CLAIMING] = TO(QUEUED) | TO(WITHDRAWING) | TO(NONE),
    [MESH_STATE_QUEUED] = TO(LOADING) | TO(WITHDRAWING) | TO(NONE),
    [MESH_STATE_LOADING] = TO(LOADED) | TO(WITHDRAWING) | TO(EMPTYING),
    [MESH_STATE_LOADED] = TO(WITHDRAWING) | TO(EMPTYING),
    [MESH_STATE_WITHDRAWING] = TO(EMPTYING) | TO(NONE) | TO(LOADED), /* move_stays */
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

static uint32_t
sample_count(const struct mesh *mesh)
{
    return mesh->samples < SAMPLES_MAX ? mesh->samples : SAMPLES_MAX;
}

/* R4: a node that holds few models has few measurements. */
static int64_t
guess_ms(const struct mesh *mesh, uint32_t count)
{
    int64_t unmeasured_ms = mesh->load_timeout_ms / 3;
    if (unmeasured_ms < UNMEASURED_MS_MIN)
        unmeasured_ms = UNMEASURED_MS_MIN;
    int64_t slowest = 0;
    for (uint32_t i = 0; i < count; i++)
        if (mesh->samples_ms[i] > slowest)
            slowest = mesh->samples_ms[i];
    return count == 0 || GUESS_SLOWEST * slowest > unmeasured_ms ? unmeasured_ms
                                                                 : GUESS_SLOWEST * slowest;
}

/* The mean of the last loads; 0: there was none. */
static int64_t
mean_ms(const struct mesh *mesh)
{
    uint32_t count = sample_count(mesh);
    int64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += mesh->samples_ms[i];
    return count == 0 ? 0 : sum / count;
}

int64_t
load_assumed_ms(const struct mesh *mesh)
{
    uint32_t count = sample_count(mesh);
    if (count < SAMPLES_FEW)
        return guess_ms(mesh, count);
    int64_t mean = mean_ms(mesh);
    int64_t squares = 0;
    for (uint32_t i = 0; i < count; i++)
        squares += (mesh->samples_ms[i] - mean) * (mesh->samples_ms[i] - mean);
    int64_t nine_variances = 9 * (squares / count);
    int64_t deviation = 0;
    while ((deviation + 1) * (deviation + 1) <= nine_variances)
        deviation += deviation / 8 + 1;
    return mean + deviation;
}

int64_t
load_churn_ms(const struct mesh *mesh)
{
    int64_t age_ms = CHURN_ASSUMED * load_assumed_ms(mesh);
    return age_ms > CHURN_MS_MIN ? age_ms : CHURN_MS_MIN;
}

/* The tick that ends a call's wait may come a second late. */
int64_t
load_guard_ms(const struct mesh *mesh)
{
    int64_t mean = mean_ms(mesh);
    return mean > TICK_MS ? mean - TICK_MS : 0;
}

/* ---- in which heaps an entry is ---- */

/* Q1, Q2 as one number: the class, then who waits longest, or who was used last. */
static int64_t
queue_key(const struct entry *entry)
{
    const int64_t most = (INT64_C(1) << CLASS_SHIFT) - 1;
    int64_t time_ms = entry->class == MESH_CLASS_CALL ? entry->waited_ms : entry->used_ms;
    if (time_ms > most)
        time_ms = most;
    if (entry->class != MESH_CLASS_CALL)
        time_ms = most - time_ms;
    return (int64_t)entry->class << CLASS_SHIFT | time_ms;
}

/* E3: calls have waited for room in this pool since before the entry was claimed. */
static bool
is_overdue(struct mesh *mesh, const struct entry *entry)
{
    for (uint32_t i = mesh->crowd; i != CALL_NONE; i = mesh->calls[i].next)
        if (pool_number(mesh, model_at(mesh, mesh->calls[i].model)) == entry->pool)
            return mesh->calls[i].crowded_ms < entry->claimed_ms;
    return false;
}

static bool
is_guarded(struct mesh *mesh, const struct entry *entry)
{
    return (entry->called || entry->waiting > 0) &&
           entry->began_ms + load_guard_ms(mesh) > mesh->now_ms && !is_overdue(mesh, entry);
}

static void
lru_remove(struct mesh *mesh, uint32_t number)
{
    struct pool *pool = pool_of(mesh, &mesh->entries[number]);
    if (heap_has(&pool->lru, number))
        pool->evictable_units -= mesh->entries[number].units;
    heap_remove(&pool->lru, number);
    heap_remove(&pool->young, number);
}

static void
lru_place(struct mesh *mesh, const struct entry *entry)
{
    uint32_t number = entry_number(mesh, entry);
    struct pool *pool = pool_of(mesh, entry);
    lru_remove(mesh, number);
    if (entry->state != MESH_STATE_LOADED)
        return;
    if (is_guarded(mesh, entry)) {
        heap_set(&pool->young, number, entry->began_ms);
        return;
    }
    heap_set(&pool->lru, number, entry->used_ms);
    pool->evictable_units += entry->units;
}

static void
grow_up(struct mesh *mesh, struct pool *pool)
{
    const int64_t old_ms = mesh->now_ms - load_guard_ms(mesh);
    while (heap_first_key(&pool->young) <= old_ms) {
        uint32_t number = heap_first(&pool->young);
        heap_remove(&pool->young, number);
        heap_set(&pool->lru, number, mesh->entries[number].used_ms);
        pool->evictable_units += mesh->entries[number].units;
        mesh->crowd_due = true;
    }
}

void
load_grow_up(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pool_count; i++)
        grow_up(mesh, &mesh->pools[i]);
}

/* F2: nobody waited who would look further; so this node does. */
static void
try_elsewhere(struct mesh *mesh, struct load_wish wish, uint64_t create_revision)
{
    const struct model *model = model_at(mesh, wish.model);
    if (model->known && model->create_revision == create_revision && !mesh->draining &&
        model_fresh_failures(mesh, model) < MESH_FAILURES_MAX)
        (void)ensure_anywhere(mesh, &wish, wish.used_ms);
}

static void
release(struct mesh *mesh, struct entry *entry)
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
    if (entry->resident)
        pool_of(mesh, entry)->ledger.resident -= entry->units;
    if (entry->reason != NAME_NONE)
        names_release(&mesh->tables.reasons, entry->reason);
    model_at(mesh, model)->entry = ENTRY_NONE;
    *entry = (struct entry){.next_free = mesh->entry_free};
    mesh->entry_free = entry_number(mesh, entry);
    settle_later(mesh, model);
    if (further)
        try_elsewhere(mesh, again, create_revision);
    if (!heap_has(&mesh->graves, model))
        tables_forget_model(&mesh->tables, model); /* if its record has gone */
    names_release(&mesh->tables.model_names, model);
}

void
entry_set(struct mesh *mesh, struct entry *entry, enum mesh_state state)
{
    struct pool *pool = pool_of(mesh, entry);
    CHECK(EDGES[entry->state] & 1u << state);
    if (commits(entry->state))
        pool->ledger.committed -= entry->units;
    if (commits(state))
        pool->ledger.committed += entry->units;
    else
        mesh->crowd_due = true;
    if (claims(entry->state))
        pool->ledger.claimed -= entry->units;
    if (claims(state))
        pool->ledger.claimed += entry->units;
    mesh->loaded -= entry->state == MESH_STATE_LOADED;
    mesh->loaded += state == MESH_STATE_LOADED;
    if (entry->state == MESH_STATE_LOADING) {
        pool->loading--;
        pool->stuck = false;
        mesh->crowd_due = true;
    }
    if (state == MESH_STATE_LOADING) {
        pool->loading++;
        entry->resident = true;
        pool->ledger.resident += entry->units;
    }
    entry->state = (uint8_t)state;
    entry->began_ms = mesh->now_ms;
    lru_place(mesh, entry);
    if (state == MESH_STATE_QUEUED)
        heap_set(&pool->queue, entry_number(mesh, entry), queue_key(entry));
    else
        heap_remove(&pool->queue, entry_number(mesh, entry));
    if (state == MESH_STATE_EMPTYING)
        calls_reroute(mesh, entry, MESH_END_OK); /* S6: they wait for a seat that does not come */
    if (state == MESH_STATE_NONE)
        release(mesh, entry);
}

static void
resize(struct mesh *mesh, struct entry *entry, uint32_t units)
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
    entry->units = units;
}

static void
set_used(struct mesh *mesh, struct entry *entry, int64_t used_ms)
{
    entry->used_ms = used_ms;
    uint32_t number = entry_number(mesh, entry);
    struct pool *pool = pool_of(mesh, entry);
    if (heap_has(&pool->lru, number))
        heap_set(&pool->lru, number, used_ms);
    if (heap_has(&pool->queue, number))
        heap_set(&pool->queue, number, queue_key(entry));
}

void
load_touch(struct mesh *mesh, struct entry *entry, int64_t used_ms)
{
    if (used_ms > mesh->wall_ms)
        used_ms = mesh->wall_ms; /* E1 */
    if (used_ms > entry->used_ms)
        set_used(mesh, entry, used_ms);
}

/* A place is not stamped before that: the start of this process that others know, or the place
 * would count as its predecessor's. Until the mirror has that start, it is no later than any time
 * there has been; stamps of that time have been used. */
static int64_t
stamp_least(const struct mesh *mesh)
{
    const struct instance *self = &mesh->tables.instances[INSTANCE_SELF];
    bool is_told = mesh->session != 0 && self->session == mesh->session;
    int64_t start_ms = self->start_ms;
    if (!is_told)
        start_ms =
            mesh->wall_most_ms > mesh->most_since_ms ? mesh->wall_most_ms : mesh->most_since_ms + 1;
    return start_ms > mesh->wall_ms ? start_ms : mesh->wall_ms;
}

/* Each place has a stamp of its own, so stamps go on from the last one, unless that lies far
 * ahead. */
void
load_on_clock_set(struct mesh *mesh, int64_t by_ms)
{
    if (mesh->last_since_ms > stamp_least(mesh) + STAMPS_AHEAD_MS)
        mesh->last_since_ms = 0;
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        struct entry *entry = &mesh->entries[i];
        if (entry->state == MESH_STATE_NONE)
            continue;
        int64_t used_ms = stamp_judge(entry->used_ms + by_ms);
        set_used(mesh, entry, used_ms < mesh->wall_ms ? used_ms : mesh->wall_ms);
    }
}

void
load_called(struct mesh *mesh, struct entry *entry)
{
    if (entry->called)
        return;
    entry->called = true;
    if (entry->state == MESH_STATE_LOADED)
        lru_place(mesh, entry);
}

void
load_lift(struct mesh *mesh, struct entry *entry, enum mesh_class class)
{
    if (class >= entry->class)
        return;
    entry->class = (uint8_t) class;
    entry->waited_ms = mesh->now_ms;
    if (entry->state == MESH_STATE_QUEUED)
        heap_set(&pool_of(mesh, entry)->queue, entry_number(mesh, entry), queue_key(entry));
}

/* ---- room ---- */

enum room { ROOM_FOR_OLDER, ROOM_AT_ANY_COST };

/* E4: a load that somebody waits for counts as used now. */
static int64_t
stamp_of(const struct mesh *mesh, enum mesh_class class, int64_t used_ms)
{
    return class == MESH_CLASS_CALL ? mesh->wall_ms : used_ms;
}

/* E2, E3. */
static struct heap *
heap_of_next(struct pool *pool, const struct entry *newcomer, enum room room)
{
    bool guarded_too = room == ROOM_AT_ANY_COST || newcomer->class == MESH_CLASS_MIGRATION;
    return heap_first(&pool->lru) == HEAP_NONE && guarded_too ? &pool->young : &pool->lru;
}

/* E2, E4, E5: either enough victims are found for a newcomer that is about to load, and leave, or
 * none does. Over the capacity all that are found leave, though it may not be enough yet; a
 * newcomer that was loaded in advance, too, if it is the oldest of those that may go (K4). */
static bool
make_room(struct mesh *mesh, struct pool *pool, struct entry *newcomer, enum room room)
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
        struct entry *victim = &mesh->entries[number];
        if (room == ROOM_FOR_OLDER &&
            victim->used_ms >= stamp_of(mesh, newcomer->class, newcomer->used_ms))
            break;
        lru_remove(mesh, number);
        if (victim == newcomer && (heap == &pool->young || victim->class != MESH_CLASS_ADVANCE))
            continue;
        memory_grow((void **)&mesh->victims, &mesh->victim_capacity, count + 1,
                    sizeof(*mesh->victims));
        mesh->victims[count++] = number;
        found += victim->units;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct entry *victim = &mesh->entries[mesh->victims[i]];
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
has_fresh_failure(const struct mesh *mesh, const struct model *model)
{
    const struct place *place = model_place(model, INSTANCE_SELF);
    return place != NULL && place->kind == MESH_PLACE_FAILED &&
           failure_is_fresh(place->since_ms, mesh->wall_ms, mesh->config.failure_fresh_ms);
}

static bool
may_be_here(const struct mesh *mesh, const struct model *model)
{
    return types_allow(tables_rule(&mesh->tables, model),
                       mesh->tables.instances[INSTANCE_SELF].labels);
}

static uint64_t
units_in(const struct mesh *mesh, const struct heap *heap, bool calls_too)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < heap->count; i++) {
        const struct entry *entry = &mesh->entries[heap->cells[i].item];
        if (calls_too || entry->class != MESH_CLASS_CALL)
            units += entry->units;
    }
    return units;
}

/* A6: so much may be promised, once all that may go has gone. Calls come before all that is queued
 * and that nobody waits for. */
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
    const struct model *model = model_at(mesh, wish->model);
    if (model->entry != ENTRY_NONE) {
        const struct entry *entry = &mesh->entries[model->entry];
        return state_loads(entry->state) && !entry->doomed ? LOAD_BEGUN : LOAD_LEAVING;
    }
    if (mesh->draining || !pool->runtime || !mesh->whole || !model->known ||
        !may_be_here(mesh, model))
        return LOAD_NOT_HERE;
    if (has_fresh_failure(mesh, model) || model_fresh_failures(mesh, model) >= MESH_FAILURES_MAX)
        return LOAD_FAILED_HERE; /* A3 */
    if (units > ledger_usable(&pool->ledger))
        return LOAD_TOO_LARGE;
    if (wish->class == MESH_CLASS_ADVANCE && mesh->crowd != CALL_NONE)
        return LOAD_FULL;                             /* R14 */
    uint64_t wanted = pool->ledger.committed + units; /* A6: other claims will have theirs */
    return may_commit(mesh, pool, wanted, wish->class, wish->used_ms) ? LOAD_BEGUN : LOAD_FULL;
}

bool
load_may_begin(struct mesh *mesh, uint32_t model)
{
    const struct load_wish wish = {
        .model = model, .used_ms = mesh->wall_ms, .class = MESH_CLASS_CALL, .target = 1};
    const struct pool *pool = pool_for(mesh, model_at(mesh, model));
    return judge(mesh, pool, &wish, pool->default_units) == LOAD_BEGUN;
}

static struct entry *
entry_take(struct mesh *mesh)
{
    if (mesh->entry_free != ENTRY_NONE) {
        struct entry *entry = &mesh->entries[mesh->entry_free];
        mesh->entry_free = entry->next_free;
        return entry;
    }
    memory_grow((void **)&mesh->entries, &mesh->entry_capacity, mesh->entry_used + 1,
                sizeof(*mesh->entries));
    return &mesh->entries[mesh->entry_used++];
}

void
act_on_model(struct mesh *mesh, enum mesh_action_kind kind, const struct entry *entry)
{
    const struct model *model = model_at(mesh, entry->model);
    struct mesh_action *action = act(mesh, kind);
    action->load.ticket = (uint64_t)entry->serial << 32 | entry_number(mesh, entry);
    action->load.model = names_text(&mesh->tables.model_names, entry->model);
    action->load.pool = entry->pool;
    action->load.evicted = entry->evicted;
    action->load.unused_ms = mesh->wall_ms > entry->used_ms ? mesh->wall_ms - entry->used_ms : 0;
    if (!model->known)
        return; /* an unload: the id is enough */
    action->load.type = names_text(&mesh->tables.type_names, model->type);
    action->load.path = model->path;
    action->load.key = model->path + __builtin_strlen(model->path) + 1;
}

/* Of a place. */
static int64_t
stamp_next(const struct mesh *mesh)
{
    int64_t least_ms = stamp_least(mesh);
    return mesh->last_since_ms < least_ms ? least_ms : mesh->last_since_ms + 1;
}

enum load_refusal
load_begin(struct mesh *mesh, const struct load_wish *wish)
{
    struct model *model = model_at(mesh, wish->model);
    uint32_t number = pool_number(mesh, model);
    const struct pool *pool = &mesh->pools[number];
    uint32_t units = wish->units != 0 ? wish->units : pool->default_units;
    enum load_refusal refusal = judge(mesh, pool, wish, units);
    if (refusal != LOAD_BEGUN)
        return refusal;
    if (model->entry != ENTRY_NONE) {
        struct entry *there = entry_of(mesh, model);
        load_touch(mesh, there, wish->used_ms);
        load_lift(mesh, there, wish->class);
        return LOAD_BEGUN;
    }
    mesh->last_since_ms = stamp_next(mesh);
    if (mesh->last_since_ms > mesh->most_since_ms)
        mesh->most_since_ms = mesh->last_since_ms;
    struct entry *entry = entry_take(mesh);
    *entry = (struct entry){
        .create_revision = model->create_revision,
        .used_ms = wish->used_ms < mesh->wall_ms ? wish->used_ms : mesh->wall_ms,
        .since_ms = mesh->last_since_ms,
        .waited_ms = mesh->now_ms,
        .claimed_ms = mesh->now_ms,
        .serial = ++mesh->serials,
        .model = wish->model,
        .units = units,
        .target = wish->target,
        .first_call = CALL_NONE,
        .last_call = CALL_NONE,
        .reason = NAME_NONE,
        .class = (uint8_t)wish->class,
        .sized = wish->units != 0,
        .pool = (uint8_t)number,
    };
    names_keep(&mesh->tables.model_names, wish->model);
    model->entry = entry_number(mesh, entry);
    entry_set(mesh, entry, MESH_STATE_CLAIMING);
    if (!entry->sized)
        act_on_model(mesh, MESH_DO_SIZE, entry);
    settle_later(mesh, wish->model);
    return LOAD_BEGUN;
}

static void
fail(struct mesh *mesh, struct entry *entry, const char *reason)
{
    entry->failed = true;
    entry->reason = names_hold(&mesh->tables.reasons, reason != NULL ? reason : "");
    entry->since_ms = mesh->wall_ms > entry->since_ms ? mesh->wall_ms : entry->since_ms;
}

/* K4 */
static bool
fail_if_too_large(struct mesh *mesh, struct entry *entry)
{
    uint64_t usable = ledger_usable(&pool_of(mesh, entry)->ledger);
    if (entry->units <= usable)
        return false;
    char takes[LEDGER_TEXT_BYTES];
    char has[LEDGER_TEXT_BYTES];
    ledger_text(entry->units, takes);
    ledger_text(usable, has);
    const char *const parts[] = {"the model is larger than this node's whole room: it takes ",
                                 takes, ", and the node has ", has, " for models"};
    fail(mesh, entry, memory_arena_join(&mesh->arena, parts, sizeof(parts) / sizeof(parts[0])));
    return true;
}

void
entry_admit(struct mesh *mesh, struct entry *entry)
{
    if (entry->waiting > 0)
        load_touch(mesh, entry,
                   mesh->wall_ms); /* what was used since it was claimed is not newer */
    const struct pool *pool = pool_of(mesh, entry);
    if (!fail_if_too_large(mesh, entry) &&
        may_commit(mesh, pool, pool->ledger.committed, entry->class, entry->used_ms))
        entry_set(mesh, entry, MESH_STATE_QUEUED);
    else
        entry_leave(mesh, entry);
}

void
entry_leave(struct mesh *mesh, struct entry *entry)
{
    if (entry->state == MESH_STATE_LOADING && !entry->doomed) {
        entry->doomed = true; /* the runtime answers first */
        calls_reroute(mesh, entry, MESH_END_REFUSED);
        return;
    }
    if (entry->state != MESH_STATE_LOADED || entry->failed)
        calls_reroute(mesh, entry, entry->failed ? MESH_END_LOAD_FAILED : MESH_END_REFUSED);
    else if (!entry->resident)
        calls_reroute(mesh, entry, MESH_END_OK);
    entry_set(mesh, entry, MESH_STATE_WITHDRAWING); /* S6: which still gives seats */
    settle_later(mesh, entry->model);
}

void
load_tick(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pool_count; i++)
        if (ledger_excess_admitted(&mesh->pools[i].ledger) > 0) /* K4: what could not go then */
            make_room(mesh, &mesh->pools[i], NULL, ROOM_AT_ANY_COST);
}

static void
run_queue(struct mesh *mesh, struct pool *pool)
{
    while (pool->loading < pool->loaders) {
        uint32_t number = heap_first(&pool->queue);
        if (number == HEAP_NONE)
            return;
        struct entry *entry = &mesh->entries[number];
        if (entry->waiting > 0)
            load_touch(mesh, entry, mesh->wall_ms);
        if (!make_room(mesh, pool, entry, ROOM_FOR_OLDER)) { /* E5 */
            entry_leave(mesh, entry);
            continue;
        }
        if (!ledger_fits(&pool->ledger, entry->units)) /* K3, Q4 */
            return;
        int64_t queued_ms = mesh->now_ms - entry->began_ms;
        entry_set(mesh, entry, MESH_STATE_LOADING);
        act_on_model(mesh, MESH_DO_LOAD, entry);
        mesh->actions[mesh->action_count - 1].load.queued_ms = queued_ms;
    }
}

bool
load_run_queue(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pool_count; i++)
        run_queue(mesh, &mesh->pools[i]);
    return mesh->unsettled_count > 0 || mesh->routing != CALL_NONE;
}

/* ---- what the runtime says ---- */

/* NULL: the entry has gone since. */
static struct entry *
entry_of_ticket(struct mesh *mesh, uint64_t ticket)
{
    uint32_t number = (uint32_t)ticket;
    CHECK(number < mesh->entry_used);
    struct entry *entry = &mesh->entries[number];
    return entry->serial == ticket >> 32 && entry->state != MESH_STATE_NONE ? entry : NULL;
}

/* NULL: it has gone, or has left that state. */
static struct entry *
entry_at(struct mesh *mesh, uint64_t ticket, enum mesh_state state)
{
    struct entry *entry = entry_of_ticket(mesh, ticket);
    return entry != NULL && entry->state == state ? entry : NULL;
}

void
load_on_size(struct mesh *mesh, uint64_t ticket, uint64_t size_bytes)
{
    struct entry *entry = entry_at(mesh, ticket, MESH_STATE_CLAIMING);
    if (entry == NULL || entry->sized)
        return;
    resize(mesh, entry,
           size_bytes == 0 ? pool_of(mesh, entry)->default_units : ledger_units(size_bytes));
    entry->sized = true;
    settle_later(mesh, entry->model);
}

static void
on_loaded(struct mesh *mesh, struct entry *entry, uint64_t size_bytes, uint32_t concurrency)
{
    entry->concurrency = concurrency < CONCURRENCY_MAX ? concurrency : CONCURRENCY_MAX;
    mesh->samples_ms[mesh->samples++ % SAMPLES_MAX] = mesh->now_ms - entry->began_ms;
    if (size_bytes != 0)
        resize(mesh, entry, ledger_units(size_bytes));
    entry_set(mesh, entry, MESH_STATE_LOADED);
    if (fail_if_too_large(mesh, entry) || entry->doomed)
        entry_leave(mesh, entry); /* before anybody goes for its sake */
    make_room(mesh, pool_of(mesh, entry), entry, ROOM_AT_ANY_COST);
    if (entry_serves(entry))
        calls_serve(mesh, entry);
    settle_later(mesh, entry->model);
}

void
load_on_load(struct mesh *mesh, const struct mesh_event *event)
{
    struct entry *entry = entry_at(mesh, event->loaded.ticket, MESH_STATE_LOADING);
    if (entry == NULL)
        return; /* the runtime was lost meanwhile */
    if (event->loaded.end == MESH_LOAD_OK) {
        on_loaded(mesh, entry, event->loaded.size_bytes, event->loaded.max_concurrency);
        return;
    }
    fail(mesh, entry, event->loaded.reason);
    entry->doomed = true;
    if (event->loaded.end == MESH_LOAD_NOT_ATTEMPTED) { /* F1: nothing to be unloaded */
        pool_of(mesh, entry)->ledger.resident -= entry->units;
        entry->resident = false;
    }
    entry_leave(mesh, entry);
}

/* K7: what is on its way out keeps its memory until it has gone, and makes room for nobody. */
void
load_on_measured(struct mesh *mesh, uint64_t ticket, uint64_t size_bytes)
{
    struct entry *entry = entry_of_ticket(mesh, ticket);
    if (entry == NULL || !entry->resident || entry->state == MESH_STATE_LOADING || size_bytes == 0)
        return;
    resize(mesh, entry, ledger_units(size_bytes));
    mesh->crowd_due = true;
    if (entry->state != MESH_STATE_LOADED)
        return;
    if (fail_if_too_large(mesh, entry))
        entry_leave(mesh, entry);
    make_room(mesh, pool_of(mesh, entry), entry, ROOM_AT_ANY_COST);
}

void
load_on_unload(struct mesh *mesh, uint64_t ticket, bool freed)
{
    struct entry *entry = entry_at(mesh, ticket, MESH_STATE_UNLOADING);
    if (entry == NULL)
        return;
    struct pool *pool = pool_of(mesh, entry);
    if (!freed) { /* K5 */
        pool->ledger.lost += entry->units;
        entry->resident = false;
    }
    entry_set(mesh, entry, MESH_STATE_NONE);
    make_room(mesh, pool, NULL, ROOM_AT_ANY_COST); /* that others were promised */
}

void
load_on_runtime_lost(struct mesh *mesh, uint32_t number)
{
    struct pool *pool = &mesh->pools[number];
    pool->runtime = false;
    pool->ledger.resident -= pool->ledger.lost;
    pool->ledger.lost = 0;
    for (uint32_t i = 0; i < mesh->entry_used; i++) {
        struct entry *entry = &mesh->entries[i];
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
