/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This node's view of models and instances, as of the mirror. A model's number is
 * its id's in `model_names`, an instance's in `instance_names`; a place holds a reference to its
 * instance, so a number means the same instance as long as anything speaks of it. This node is
 * instance 0.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"
#include "mesh/core/names.h"
#include "mesh/core/types.h"
#include "mesh/core/upgrade.h"

enum { PLACES_INLINE = 4, INSTANCE_SELF = 0 };

struct place {
    int64_t since_ms;
    uint32_t reason; /* in `reasons`; NAME_NONE */
    uint16_t instance;
    uint8_t kind; /* enum mesh_place_kind */
};

#define TXN_COMPARED_NONE UINT64_MAX /* of this record */

struct model {
    char *path;           /* malloc'ed: path, NUL, key, NUL */
    struct place *places; /* malloc'ed, if there are more than fit here */
    uint64_t create_revision;
    uint64_t revision;
    int64_t used_ms;
    int64_t unloaded_ms;
    uint64_t txn;         /* that is out; 0: none */
    uint64_t txn_compare; /* the last one's, or none: not again, before txn_again_ms */
    int64_t txn_again_ms;
    uint32_t type; /* in `types` */
    uint32_t references;
    uint32_t entry; /* ENTRY_NONE */
    uint16_t place_count;
    bool known;  /* there is a record; else the revision is that of its deletion */
    bool listed; /* the table holds a reference to the id */
    bool auto_delete;
    uint8_t pool; /* K6: its number and 1; 0: not asked yet */
    struct place few[PLACES_INLINE];
};

struct instance {
    uint64_t session; /* 0: its key does not exist */
    uint64_t revision;
    int64_t start_ms;
    int64_t version;
    int64_t gone_ms; /* now_ms when its key went, or when it was first heard of without one */
    int64_t unreachable_until_ms;
    struct mesh_figures figures;
    int64_t bare_ms;          /* now_ms when these first told of a node without a runtime */
    uint64_t pending_units;   /* sent there to be loaded, since the figures (P5) */
    int64_t refused_until_ms; /* R14 */
    uint64_t ahead_units;     /* may still be loaded there in advance, into what is free (G3) */
    uint64_t renew_units;     /* and in the place of what is older (G4) */
    int64_t ahead_ms;         /* now_ms when something last was (G5) */
    uint64_t sent;            /* order of the last call sent there */
    uint64_t labels;          /* bits of `label_set` */
    uint32_t out;             /* calls that are there from here */
    uint32_t loads_out;       /* of them those that it is to load for */
    uint32_t label_set;       /* in `label_sets`; NAME_NONE */
    uint32_t generation;      /* U1; NAME_NONE */
    bool old;                 /* U3: the second choice */
    bool draining;
    bool lost; /* at gone_ms, with all of etcd: it counts until it has had the time to come back */
};

/* P2 to P4 as numbers: the lowest tier, then who has room, then the score. */
struct worth {
    int64_t score; /* room, or minus the oldest's stamp */
    int32_t tier;
    bool roomy;
};

/* An instance that place_choose looks at. */
struct candidate {
    struct worth worth;
    uint32_t number;
    uint32_t rate;
    uint32_t loads;
};

/* A node whose key has gone: what it could have held (R18). */
struct departed {
    uint64_t capacity_units; /* 0: not known */
    int64_t gone_ms;
    uint32_t label_set; /* with a reference; NAME_NONE: the slot is free */
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
    struct departed departed[DEPARTED_MAX]; /* the last ones, in a ring */
    uint32_t departed_count;                /* since the beginning */
    struct model *models;
    struct instance *instances;
    struct candidate *candidates; /* as many as instances; place_choose's scratch memory */
    uint32_t candidate_capacity;
    uint32_t model_capacity;
    uint32_t instance_capacity;
    uint32_t live;   /* instances with a key */
    uint32_t known;  /* models with a record */
    uint32_t held;   /* of these: with a place that is no failure */
    uint32_t failed; /* with one that is */
};

#define ENTRY_NONE UINT32_MAX

void tables_init(struct tables *tables, const struct mesh_config *config);
void tables_fini(struct tables *tables);

static inline const struct place *
model_places(const struct model *model)
{
    return model->places != NULL ? model->places : model->few;
}

/* The place of an instance; NULL: none. */
const struct place *model_place(const struct model *model, uint16_t instance);

/* NAME_NONE: nothing is known under that id. A model without a record may be known: `known`. */
uint32_t tables_model(const struct tables *tables, const char *id);
uint32_t tables_instance(const struct tables *tables, const char *id);

/* A number for an id that an order or a vmodel names, with a reference: there may be no record of
 * it. NAME_NONE: no room. */
uint32_t tables_hold_model(struct tables *tables, const char *id);

/* T6. False: older than what is there, or no room for one more. */
bool tables_put_model(struct tables *tables, const struct mesh_model *record, uint32_t *number);
bool tables_drop_model(struct tables *tables, const char *id, uint64_t revision, uint32_t *number);
/* Gives back the table's reference to the id, if there is neither record nor entry. */
void tables_forget_model(struct tables *tables, uint32_t number);

bool tables_put_instance(struct tables *tables, const struct mesh_instance *record, int64_t now_ms);
bool tables_drop_instance(struct tables *tables, const char *id, uint64_t revision, int64_t now_ms);
/* A number for an id that a call or record names, with a reference; NAME_NONE: no room. */
uint32_t tables_hold_instance(struct tables *tables, const char *id);

/* R18: within the last ten minutes the key of a node went that could have held such a model. */
bool tables_has_departed(const struct tables *tables, const struct type_rule *rule, uint32_t units,
                         int64_t now_ms);

/* The bits of all instances anew, after the rules have changed. */
void tables_relabel(struct tables *tables);
/* U2: who is old as of now. */
void tables_tell_old(struct tables *tables, int64_t now_ms, int64_t wall_ms);

/* NULL: anybody may. */
const struct type_rule *tables_rule(const struct tables *tables, const struct model *model);

/* The memory of all nodes that may hold models of a rule and do not drain. */
struct tables_room {
    uint64_t capacity_units;
    uint64_t free_units;
    int64_t oldest_ms;
};
struct tables_room tables_room(const struct tables *tables, const struct type_rule *rule);

/* Stamps of strangers, cut so that differences of them do not overflow. */
#define STAMP_MAX (INT64_MAX / 4)
static inline int64_t
stamp_judge(int64_t stamp_ms)
{
    return stamp_ms < 0 ? 0 : stamp_ms < STAMP_MAX ? stamp_ms : STAMP_MAX;
}
/* Takes the figures of an instance, from its record or a reply. */
void tables_tell_figures(struct instance *instance, const struct mesh_figures *figures,
                         int64_t now_ms);

/* It has no runtime (`mesh_figures`): neither room, nor anything that could make room. */
static inline bool
instance_is_bare(const struct instance *instance)
{
    const struct mesh_figures *figures = &instance->figures;
    return figures->full && figures->free_units == 0 && figures->copies == 0 &&
           figures->loading == 0;
}

/* A place counts: its instance's key exists, and it is not of a process before that one. */
static inline bool
place_alive(const struct tables *tables, const struct place *place)
{
    const struct instance *instance = &tables->instances[place->instance];
    return instance->session != 0 && place->since_ms >= instance->start_ms;
}

static inline bool
place_is_copy(const struct tables *tables, const struct place *place)
{
    return place->kind != MESH_PLACE_FAILED && place_alive(tables, place);
}

/* Copies that are loading or loaded, and alive. */
uint32_t model_copies(const struct tables *tables, const struct model *model);
