/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of this node's copies and pools between two steps. Visits everything: for tests. */
#include "base/check.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"
#include "mesh/core/copies/registry_rebuild.h"

/* ---- entries ---- */

/* The table of states in DESIGN.md. */
static void
check_state(const struct core_entry *entry)
{
    bool loads = state_loads((enum mesh_state)entry->state);
    switch ((enum mesh_state)entry->state) {
    case MESH_STATE_CLAIMING:
    case MESH_STATE_QUEUED: CHECK(!entry->resident && !entry->doomed); break;
    case MESH_STATE_LOADING:
        CHECK(entry->resident);
        CHECK(!entry->doomed || entry->waiting == 0);
        break;
    case MESH_STATE_LOADED: CHECK(entry->resident && !entry->doomed); break;
    case MESH_STATE_UNLOADING: CHECK(entry->resident && entry->in_flight == 0); break; /* I4 */
    case MESH_STATE_WITHDRAWING:
    case MESH_STATE_EMPTYING:
    case MESH_STATE_NONE: break;
    }
    CHECK(!loads || entry->in_flight == 0);
    CHECK(!loads || entry->waiting == 0 || entry->class == MESH_CLASS_CALL); /* Q3 */
    CHECK(!entry->failed || entry->state >= MESH_STATE_WITHDRAWING);         /* F1 */
    CHECK(!entry->yields || entry->state >= MESH_STATE_WITHDRAWING);         /* D3 */
    CHECK(!entry->evicted || entry->state >= MESH_STATE_WITHDRAWING);
    CHECK(entry->reason == NAME_NONE || entry->failed);
}

/* The entry's list of waiting calls, and its permits (S6). */
static void
check_waiting(const struct mesh *mesh, const struct core_entry *entry)
{
    uint32_t waiting = 0;
    uint32_t last = CALL_NONE;
    for (uint32_t i = entry->first_call; i != CALL_NONE; i = mesh->calls.at[i].next) {
        CHECK(mesh->calls.at[i].state == CALL_WAITING);
        CHECK(mesh->calls.at[i].entry == entry_number(mesh, entry));
        waiting++;
        last = i;
    }
    CHECK(waiting == entry->waiting && last == entry->last_call);
    if (entry->concurrency > 0)
        CHECK(entry->in_flight <= entry->concurrency);
    if (entry->state == MESH_STATE_LOADED && entry_serves(entry) && waiting > 0)
        CHECK(entry->concurrency > 0 && entry->in_flight == entry->concurrency);
}

static void
check_entry(const struct mesh *mesh, const struct core_entry *entry)
{
    const struct entries *entries = &mesh->entries;
    CHECK(mesh->tables.models[entry->model].entry == entry_number(mesh, entry)); /* I2, A1 */
    CHECK(entry->pool < mesh->pools.count);
    CHECK(entry->used_ms <= mesh->wall_ms); /* E1 */
    CHECK(entry->began_ms <= mesh->now_ms && entry->claimed_ms <= mesh->now_ms);
    CHECK(entry->failed || entry->since_ms <= entries->most_since_ms);
    CHECK(entry->serial != 0 && entry->serial <= entries->serials);
    CHECK(entry->target > 0 && entry->class <= MESH_CLASS_ADVANCE);
    check_state(entry);
    check_waiting(mesh, entry);
}

static void
check_free_entries(const struct entries *entries, uint32_t in_use)
{
    uint32_t unused = 0;
    for (uint32_t i = entries->first_free; i != ENTRY_NONE; i = entries->at[i].next_free) {
        CHECK(i < entries->used && entries->at[i].state == MESH_STATE_NONE);
        unused++;
        CHECK(unused <= entries->used); /* the list has no cycle */
    }
    CHECK(in_use + unused == entries->used);
}

void
entries_check(const struct mesh *mesh)
{
    const struct entries *entries = &mesh->entries;
    uint32_t loaded = 0;
    uint32_t in_use = 0;
    for (uint32_t i = 0; i < entries->used; i++) {
        const struct core_entry *entry = &entries->at[i];
        if (entry->state == MESH_STATE_NONE)
            continue;
        check_entry(mesh, entry);
        loaded += entry->state == MESH_STATE_LOADED;
        in_use++;
    }
    CHECK(loaded == entries->loaded);
    CHECK(entries->last_since_ms <= entries->most_since_ms);
    CHECK(entries->order.count == 0); /* nothing is left of a walk in order */
    check_free_entries(entries, in_use);
}

/* ---- pools ---- */

struct pool_sums {
    uint64_t committed;
    uint64_t claimed;
    uint64_t resident;
    uint64_t evictable;
    uint64_t held;
    uint32_t loading;
};

/* The heaps hold exactly the entries that their comments say. */
static void
check_heaps(const struct pool *pool, const struct core_entry *entry, uint32_t number, bool belongs)
{
    bool loaded = belongs && entry->state == MESH_STATE_LOADED;
    CHECK(heap_has(&pool->queue, number) == (belongs && entry->state == MESH_STATE_QUEUED));
    uint32_t in = heap_has(&pool->lru, number) + heap_has(&pool->young, number) +
                  heap_has(&pool->held, number);
    CHECK(in == loaded);
    CHECK(!heap_has(&pool->lru, number) || heap_key(&pool->lru, number) == entry->used_ms); /* E1 */
    CHECK(!heap_has(&pool->held, number) || heap_key(&pool->held, number) == entry->used_ms);
    CHECK(!heap_has(&pool->queue, number) ||
          heap_key(&pool->queue, number) == load_queue_key(entry)); /* Q1, Q2 */
}

static void
add_entry(struct pool_sums *sums, const struct core_entry *entry, const struct pool *pool,
          uint32_t number)
{
    bool claims = entry->state == MESH_STATE_CLAIMING || entry->state == MESH_STATE_QUEUED;
    sums->committed += entry->state <= MESH_STATE_LOADED ? entry->units : 0;
    sums->claimed += claims ? entry->units : 0;
    sums->resident += entry->resident ? entry->units : 0;
    sums->evictable += heap_has(&pool->lru, number) ? entry->units : 0;
    sums->held += heap_has(&pool->held, number) ? entry->units : 0;
    sums->loading += entry->state == MESH_STATE_LOADING;
}

static void
check_pool(const struct mesh *mesh, uint32_t number)
{
    const struct pool *pool = &mesh->pools.at[number];
    struct pool_sums sums = {.resident = pool->ledger.lost};
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        const struct core_entry *entry = &mesh->entries.at[i];
        bool belongs = entry->state != MESH_STATE_NONE && entry->pool == number;
        check_heaps(pool, entry, i, belongs);
        if (belongs)
            add_entry(&sums, entry, pool, i);
    }
    heap_check(&pool->queue);
    heap_check(&pool->lru);
    heap_check(&pool->young);
    heap_check(&pool->held);
    ledger_check(&pool->ledger);
    CHECK(sums.committed == pool->ledger.committed && sums.resident == pool->ledger.resident);
    CHECK(sums.claimed == pool->ledger.claimed);
    CHECK(sums.evictable == pool->evictable_units && sums.loading == pool->loading);
    CHECK(sums.held == pool->held_units);
    CHECK(pool->loading <= pool->loaders || !pool->runtime);             /* Q5 */
    CHECK(pool->runtime || (sums.committed == 0 && sums.resident == 0)); /* K6 */
    CHECK(!pool->stuck || pool->loading == pool->loaders);               /* R17 */
    CHECK(pool->load_timeout_ms <= mesh->pools.load_timeout_ms);
}

void
pools_check(const struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pools.count; i++)
        check_pool(mesh, i);
}

/* ---- transactions ---- */

/* T6: a deletion is remembered of an absent record only. W1: while a record is lost, the rewrite
 * goes on. */
void
reconcile_check(const struct mesh *mesh)
{
    heap_check(&mesh->reconcile.retries);
    heap_check(&mesh->reconcile.graves);
    for (uint32_t i = 0; i < mesh->tables.model_names.used; i++) {
        const struct core_model *model = &mesh->tables.models[i];
        CHECK(!heap_has(&mesh->reconcile.graves, i) || !model->known);
        CHECK(!model_is_lost(model) || mesh->registry_rebuild.pending);
    }
}

/* A7 */
void
early_check(const struct mesh *mesh)
{
    CHECK(mesh->early.count <= EARLY_MAX);
    for (uint32_t i = 0; i < mesh->early.count; i++) {
        const struct early *early = &mesh->early.at[i];
        CHECK(!mesh->tables.models[early->load.model].known);
        for (uint32_t k = 0; k < i; k++)
            CHECK(mesh->early.at[k].load.model != early->load.model);
    }
}
