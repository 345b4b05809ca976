/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: models that share memory and loaders (K6). */
#pragma once

#include "mesh/core/models.h"

static inline struct pool *
pool_of(struct mesh *mesh, const struct core_entry *entry)
{
    return &mesh->pools.at[entry->pool];
}

/* The pool of a model; 0 without a record, or if no pool names its type. */
uint32_t pool_number(const struct mesh *mesh, struct core_model *model);
static inline struct pool *
pool_for(struct mesh *mesh, struct core_model *model)
{
    return &mesh->pools.at[pool_number(mesh, model)];
}
/* B2: the size of a model of which no copy is known. */
static inline uint32_t
pool_assumed_units(const struct pool *pool, const struct core_model *model)
{
    return model->bounds.size_units != 0 ? model->bounds.size_units : pool->default_units;
}
/* R17: a load that begins here now would not start soon. */
static inline bool
pool_is_stuck(struct mesh *mesh, uint32_t model)
{
    return pool_for(mesh, model_at(mesh, model))->stuck;
}
/* Creates one pool, or those of the configuration. */
void pools_init(struct mesh *mesh, const struct mesh_config *config);
void pool_open(struct mesh *mesh, const struct mesh_event *event);
/* Figures of one pool, as a model that belongs to it sees them. */
struct mesh_figures pool_figures(struct mesh *mesh, const struct pool *pool);
void pools_fini(struct mesh *mesh);
/* copies_check.c: ledgers and heaps agree with the entries. O(everything). */
void pools_check(const struct mesh *mesh);
