/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: models that share memory and loaders (K6). Each has its ledger, eviction order and load
 * queue; everything else is per node.
 */
#include "mesh/core/copies/pools.h"

#include <stdlib.h>

#include "base/check.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/ledger.h"
#include "mesh/core/copies/load.h"

uint32_t
pool_number(const struct mesh *mesh, struct core_model *model)
{
    if (model->pool_name == POOL_NAME_UNKNOWN && model->known && mesh->config.pool_name != NULL) {
        char name[MESH_POOL_NAME_BYTES]; /* reads a key, so once per record */
        const char *type = names_text(&mesh->tables.type_names, model->type);
        mesh->config.pool_name(type, model->path + __builtin_strlen(model->path) + 1, name);
        model->pool_name = pool_name_number(name);
    }
    uint32_t number = pool_names_find(mesh->pools.names, model->pool_name);
    return number == POOL_UNNAMED ? 0 : number;
}

void
pools_init(struct mesh *mesh, const struct mesh_config *config)
{
    CHECK(config->pool_count <= MESH_POOLS_MAX);
    mesh->pools.count = config->pool_count == 0 ? 1 : config->pool_count;
    mesh->pools.at = calloc(mesh->pools.count, sizeof(struct pool));
    CHECK(mesh->pools.at != NULL);
    if (config->pool_count > 1)
        mesh->pools.names = pool_names_create(config->pool_types, config->pool_count);
    mesh->config.pool_types = NULL; /* the caller's */
}

void
pool_open(struct mesh *mesh, const struct mesh_event *event)
{
    struct pool *pool = &mesh->pools.at[event->runtime.pool];
    pool->runtime = true;
    pool->loaders = event->runtime.loaders;
    pool->load_timeout_ms = event->runtime.load_timeout_ms;
    pool->default_units = ledger_units(event->runtime.default_bytes);
    if (pool->default_units == 0)
        pool->default_units = 1;
    ledger_open(&pool->ledger, event->runtime.capacity_bytes / LEDGER_UNIT_BYTES, pool->loaders,
                pool->default_units);
    mesh->pools.load_timeout_ms = 0;
    for (uint32_t i = 0; i < mesh->pools.count; i++)
        if (mesh->pools.at[i].load_timeout_ms > mesh->pools.load_timeout_ms)
            mesh->pools.load_timeout_ms = mesh->pools.at[i].load_timeout_ms;
}

void
pools_fini(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pools.count; i++) {
        heap_fini(&mesh->pools.at[i].lru);
        heap_fini(&mesh->pools.at[i].young);
        heap_fini(&mesh->pools.at[i].held);
        heap_fini(&mesh->pools.at[i].queue);
    }
    free(mesh->pools.at);
    free(mesh->pools.names);
}

/* ---- looking at them ---- */

/* Chooses by the type alone: the key, which may say more, differs from model to model. */
static uint32_t
pool_of_type(const struct mesh *mesh, const char *type)
{
    char name[MESH_POOL_NAME_BYTES];
    if (mesh->pools.names == NULL || mesh->config.pool_name == NULL)
        return 0;
    mesh->config.pool_name(type, "", name);
    uint32_t number = pool_names_find(mesh->pools.names, pool_name_number(name));
    return number == POOL_UNNAMED ? 0 : number;
}

bool
mesh_is_needed(const struct mesh *mesh, uint32_t pool, const char *labels)
{
    const struct names *names = &mesh->tables.type_names; /* of models with a record */
    const struct types *types = &mesh->tables.types;
    uint64_t bits = types_labels(types, labels);
    for (uint32_t i = 0; i < names->used; i++) {
        const char *type = names_text(names, i);
        const struct type_rule *rule = type != NULL ? types_rule(types, type) : NULL;
        if (type != NULL &&
            (rule != NULL ? types_allow(rule, bits) : pool_of_type(mesh, type) == pool))
            return true;
    }
    return false;
}

struct mesh_figures
pool_figures(struct mesh *mesh, const struct pool *pool)
{
    load_grow_up(mesh);
    const struct ledger *ledger = &pool->ledger;
    uint64_t room = ledger_free(ledger);
    uint32_t oldest = heap_first(&pool->lru);
    uint32_t young = heap_first(&pool->young);
    int64_t oldest_ms = STAMP_MAX;
    if (oldest != HEAP_NONE)
        oldest_ms = mesh->entries.at[oldest].used_ms;
    else if (young != HEAP_NONE)
        oldest_ms = mesh->wall_ms;
    if (pool->stuck)
        oldest_ms = STAMP_MAX; /* R17: neither room nor anything to evict */
    return (struct mesh_figures){
        .capacity_units = ledger_usable(ledger),
        .free_units = room,
        .oldest_ms = oldest_ms,
        .copies = pool->lru.count + pool->young.count + pool->held.count,
        .loading = pool->loading + pool->queue.count,
        .calls_per_minute = mesh->rates.per_minute,
        .full = pool->stuck ||
                room < ledger_full_below(ledger->capacity, pool->loaders, pool->default_units),
    };
}

struct mesh_figures
mesh_pool_figures(struct mesh *mesh, uint32_t pool)
{
    CHECK(pool < mesh->pools.count);
    struct mesh_figures figures = pool_figures(mesh, &mesh->pools.at[pool]);
    if (!mesh->pools.at[pool].runtime) { /* no runtime, no room */
        figures.free_units = 0;
        figures.full = true;
    }
    return figures;
}

struct mesh_figures
mesh_figures_for(struct mesh *mesh, const char *model)
{
    uint32_t number = mesh->pools.count == 1 ? NAME_NONE : tables_model(&mesh->tables, model);
    return number == NAME_NONE || !model_at(mesh, number)->known
               ? mesh_figures(mesh)
               : mesh_pool_figures(mesh, pool_number(mesh, model_at(mesh, number)));
}

static bool
has_runtime(const struct mesh *mesh)
{
    bool any = false;
    for (uint32_t i = 0; i < mesh->pools.count; i++)
        any |= mesh->pools.at[i].runtime;
    return any;
}

/* A pool without a runtime counts only if no pool has one. */
static bool
says_something(const struct mesh *mesh, const struct pool *pool)
{
    return pool->runtime || !has_runtime(mesh);
}

struct mesh_figures
mesh_figures(struct mesh *mesh)
{
    struct mesh_figures sum = {
        .oldest_ms = STAMP_MAX, .calls_per_minute = mesh->rates.per_minute, .full = true};
    for (uint32_t i = 0; i < mesh->pools.count; i++) {
        if (!says_something(mesh, &mesh->pools.at[i]))
            continue;
        struct mesh_figures one = pool_figures(mesh, &mesh->pools.at[i]);
        sum.capacity_units += one.capacity_units;
        sum.free_units += one.free_units;
        sum.oldest_ms = one.oldest_ms < sum.oldest_ms ? one.oldest_ms : sum.oldest_ms;
        sum.copies += one.copies;
        sum.loading += one.loading;
        sum.full = sum.full && one.full;
    }
    if (!has_runtime(mesh)) { /* no runtime, no room */
        sum.free_units = 0;
        sum.full = true;
    }
    return sum;
}

struct mesh_sums
mesh_sums(const struct mesh *mesh)
{
    struct mesh_sums sums = {
        .loaded = mesh->entries.loaded,
        .models_held = mesh->tables.held,
        .models_failed = mesh->tables.failed,
        .vmodels_moving = mesh->vmodels.moving.count,
        .transitions = mesh->vmodels.transitions,
    };
    for (uint32_t i = 0; i < mesh->pools.count; i++) {
        const struct pool *pool = &mesh->pools.at[i];
        if (says_something(mesh, pool))
            sums.capacity_units += ledger_usable(&pool->ledger);
        sums.reserve_units += pool->ledger.reserve;
        sums.lost_units += pool->ledger.lost;
        sums.resident_units += pool->ledger.resident;
        sums.loading += pool->loading;
        sums.queued += pool->queue.count;
    }
    return sums;
}
