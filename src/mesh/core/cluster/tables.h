/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This node's view of models and instances, from the mirror. A model's number is that of its id in
 * `model_names`, an instance's that of its id in `instance_names`. A place holds a reference to its
 * instance, so a number keeps its meaning while it is in use. This node is instance 0.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"
#include "mesh/core/containers/names.h"
#include "mesh/core/cluster/pool_names.h"
#include "mesh/core/cluster/types.h"
#include "mesh/core/cluster/upgrade.h"

enum { PLACES_INLINE = 4, INSTANCE_SELF = 0 };

struct core_place {
    int64_t since_ms;
    uint32_t reason; /* in `reasons`; NAME_NONE: none */
    uint16_t instance;
    uint8_t kind; /* enum mesh_place_kind */
};

/* Nodes that were asked to load a model. */
struct nodes_asked {
    uint16_t instances[MESH_TRIED_MAX];
    uint8_t count;
};

/* B4: the leader's requests for missing copies. */
struct wanting {
    struct nodes_asked asked;
    int64_t asked_ms; /* now_ms of the last one */
    uint32_t loaded;  /* copies at that time */
    uint32_t joins;   /* of instances, at the last look */
    uint8_t asks;     /* since a copy was loaded last */
};

#define TXN_COMPARED_NONE UINT64_MAX /* a transaction that compared nothing of this record */

struct core_model {
    char *path;                /* malloc'ed: path, NUL, key, NUL */
    struct core_place *places; /* malloc'ed when there are more than `few` holds */
    uint64_t create_revision;
    uint64_t revision;
    int64_t used_ms;
    int64_t unloaded_ms;
    uint64_t txn;         /* the transaction that is out; 0: none */
    uint64_t txn_compare; /* the revision it compared; not compared again before txn_again_ms */
    int64_t txn_again_ms;
    uint32_t type; /* in `types` */
    uint32_t references;
    uint32_t entry;     /* ENTRY_NONE */
    uint32_t pool_name; /* K6: its number (pool_names.h) */
    struct mesh_bounds bounds;
    struct wanting *wanting; /* malloc'ed; NULL: no copy is missing */
    uint16_t place_count;
    bool known;  /* there is a record; otherwise `revision` is that of the deletion */
    bool listed; /* the table holds a reference to the id */
    bool auto_delete;
    struct core_place few[PLACES_INLINE];
};

/* One of several pools of another instance (K6). */
struct instance_pool {
    struct mesh_figures figures;
    int64_t bare_ms; /* now_ms of the first figures without a runtime */
};

struct instance {
    uint64_t session; /* 0: its key does not exist */
    uint64_t revision;
    int64_t start_ms;
    int64_t version;
    int64_t gone_ms; /* now_ms when its key went, or when it was first seen without one */
    int64_t unreachable_until_ms;
    struct mesh_figures figures;
    struct pool_names *pool_names; /* K6, of another instance; this and the next NULL: one pool */
    struct instance_pool *pools;
    uint32_t pool_count;
    int64_t bare_ms;          /* as of a pool */
    uint64_t pending_units;   /* loads sent there since its last figures (P5) */
    int64_t refused_until_ms; /* R14 */
    uint64_t preload_units;   /* still available there for loads in advance, in free room (G3) */
    uint64_t renew_units;     /* or in place of older models (G4) */
    int64_t preload_ms;       /* now_ms of the last load in advance there (G5) */
    uint64_t sent;            /* order of the last call sent there */
    uint64_t labels;          /* bits of `label_set` */
    uint32_t out;             /* calls from here that are there */
    uint32_t loads_out;       /* of these, LOAD hops */
    uint32_t label_set;       /* in `label_sets`; NAME_NONE: none */
    uint32_t generation;      /* U1; NAME_NONE: none */
    bool old;                 /* U3: second choice */
    bool draining;
    bool lost; /* lost with all of etcd at gone_ms; it counts until it has had time to return */
};

/* P2 to P4 as numbers: lowest tier, then nodes with room, then the score. */
struct worth {
    int64_t score; /* free room, or minus the oldest model's stamp */
    int32_t tier;
    bool roomy;
};

/* An instance that place_choose considers. */
struct placement_candidate {
    struct worth worth;
    uint32_t number;
    uint32_t rate;
    uint32_t loads;
};

/* R18: a node whose key has gone. */
struct departed {
    uint64_t capacity_units; /* 0: unknown */
    int64_t gone_ms;
    uint32_t label_set; /* holds a reference; NAME_NONE: free */
};

enum { DEPARTED_MAX = 16 };

struct tables {
    struct names model_names;
    struct names instance_names;
    struct names type_names;
    struct names reasons;
    struct names label_sets;
    struct types types;
    struct generations generations;
    struct departed departed[DEPARTED_MAX]; /* a ring of the last ones */
    uint32_t departed_count;                /* departures so far */
    struct core_model *models;
    struct instance *instances;
    struct placement_candidate *candidates; /* one per instance; scratch memory of place_choose */
    uint32_t candidate_capacity;
    uint32_t model_capacity;
    uint32_t instance_capacity;
    uint32_t live;   /* instances with a key */
    uint32_t joins;  /* new sessions of instances so far; wraps */
    uint32_t known;  /* models with a record */
    uint32_t held;   /* models with a place that is not a failure */
    uint32_t failed; /* models with a failure */
    uint32_t bound;  /* models with bounds of their copies */
};

#define ENTRY_NONE UINT32_MAX

void tables_init(struct tables *tables, const struct mesh_config *config);
void tables_fini(struct tables *tables);

static inline const struct core_place *
model_places(const struct core_model *model)
{
    return model->places != NULL ? model->places : model->few;
}

/* The place of an instance; NULL: none. */
const struct core_place *model_place(const struct core_model *model, uint16_t instance);

/* NAME_NONE: the id is unknown. A known id may have no record: see `known`. */
uint32_t tables_model(const struct tables *tables, const char *id);
uint32_t tables_instance(const struct tables *tables, const char *id);

/* Returns a number for an id that an order or vmodel names, with a reference, whether or not it has
 * a record. NAME_NONE: no room. */
uint32_t tables_hold_model(struct tables *tables, const char *id);

/* T6. False: older than the known record, or no room. */
bool tables_put_model(struct tables *tables, const struct mesh_model *record, uint32_t *number);
bool tables_drop_model(struct tables *tables, const char *id, uint64_t revision, uint32_t *number);
/* Releases the table's reference to the id if there is neither record nor entry. */
void tables_forget_model(struct tables *tables, uint32_t number);

bool tables_put_instance(struct tables *tables, const struct mesh_instance *record, int64_t now_ms);
bool tables_drop_instance(struct tables *tables, const char *id, uint64_t revision, int64_t now_ms);
/* Returns a number for an id that a call or record names, with a reference; NAME_NONE: no room. */
uint32_t tables_hold_instance(struct tables *tables, const char *id);

/* R18: whether a node that could have held such a model left within the last ten minutes. */
bool tables_has_departed(const struct tables *tables, const struct type_rule *rule, uint32_t units,
                         int64_t now_ms);

/* Recomputes the label bits of all instances after the rules have changed. */
void tables_relabel(struct tables *tables);
/* U2: recomputes which instances are old. */
void tables_notify_old(struct tables *tables, int64_t now_ms, int64_t wall_ms);

/* NULL: any node may hold it. */
const struct type_rule *tables_rule(const struct tables *tables, const struct core_model *model);

/* Combined memory for a model of all nodes that may hold it and do not drain. */
struct tables_room {
    uint64_t capacity_units;
    uint64_t free_units;
    int64_t oldest_ms;
};
struct tables_room tables_room(const struct tables *tables, const struct core_model *model);

/* Clamps a foreign stamp so that differences do not overflow. */
#define STAMP_MAX (INT64_MAX / 4)
static inline int64_t
stamp_judge(int64_t stamp_ms)
{
    return stamp_ms < 0 ? 0 : stamp_ms < STAMP_MAX ? stamp_ms : STAMP_MAX;
}
/* Like tables_notify_figures(), for the figures of a reply about a model (NULL: unknown), of the
 * pool that takes it. */
void tables_notify_reply(struct instance *instance, const struct core_model *model,
                         const struct mesh_figures *figures, int64_t now_ms);

/* The figures that count for a model: of the pool that takes it, otherwise of the instance. */
static inline const struct mesh_figures *
figures_for(const struct instance *instance, const struct core_model *model)
{
    uint32_t pool = pool_names_find(instance->pool_names, model->pool_name);
    return pool == POOL_UNNAMED ? &instance->figures : &instance->pools[pool].figures;
}

/* Returns true for an instance or a pool without a runtime: neither room nor anything to evict. */
static inline bool
figures_are_bare(const struct mesh_figures *figures)
{
    return figures->full && figures->free_units == 0 && figures->copies == 0 &&
           figures->loading == 0;
}

/* Since when the pool that takes the model, otherwise the instance, has had no runtime, in now_ms;
 * INT64_MAX: it has one. */
static inline int64_t
bare_since_ms(const struct instance *instance, const struct core_model *model)
{
    uint32_t pool = pool_names_find(instance->pool_names, model->pool_name);
    if (!figures_are_bare(figures_for(instance, model)))
        return INT64_MAX;
    return pool == POOL_UNNAMED ? instance->bare_ms : instance->pools[pool].bare_ms;
}

/* A place counts if its instance's key exists and the place is not older than its process. */
static inline bool
place_alive(const struct tables *tables, const struct core_place *place)
{
    const struct instance *instance = &tables->instances[place->instance];
    return instance->session != 0 && place->since_ms >= instance->start_ms;
}

static inline bool
place_is_copy(const struct tables *tables, const struct core_place *place)
{
    return place->kind != MESH_PLACE_FAILED && place_alive(tables, place);
}

/* Living copies, loading or loaded. */
uint32_t model_copies(const struct tables *tables, const struct core_model *model);

/* B3: those that stay, on instances that do not drain and may hold the model; `least`: LOADED, or
 * LOADING for both kinds. */
uint32_t model_staying(const struct tables *tables, const struct core_model *model,
                       enum mesh_place_kind least);
/* B3: no further copy may be loaded. */
bool model_is_at_most(const struct tables *tables, const struct core_model *model);

/* Records, places and sums agree. O(everything). */
void tables_check(const struct tables *tables);
