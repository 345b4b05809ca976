/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small world on virtual time around real mesh cores: an etcd with revisions, late watches and
 * answers that get lost; a network with delay and broken links; runtimes that are slow, fail, and
 * lie about sizes; clients; and what may go wrong with them. Everything follows from one seed: the
 * same seed, the same trace. Each invariant is CHECKed where it could break, and named there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"

enum {
    NODES_MAX = 6,
    MODELS_MAX = 40,
    VMODELS_MAX = 8,
    SLOTS_MAX = 4096,
    ORDERS_MAX = 256,
    PLACES_MAX = 16,
};

#define NOBODY UINT32_MAX /* no model, no vmodel */

/* What goes wrong how often, drawn per seed; often never. Per mille. */
struct faults {
    uint32_t txn_lost;    /* never arrives; the answer is UNKNOWN */
    uint32_t txn_unheard; /* is applied; the answer is UNKNOWN */
    uint32_t txn_late;    /* is applied or refused long after the answer UNKNOWN */
    uint32_t load_fails;
    uint32_t size_lies;
    uint32_t kills;        /* per second and world */
    uint32_t leases;       /* lost, per second and world */
    uint32_t links;        /* broken, per second and world */
    uint32_t forgets;      /* a runtime forgets a model, per call */
    uint32_t cancels;      /* by the client, per call */
    uint32_t drains;       /* begun, per second and world */
    uint32_t replacements; /* a model is registered anew, per second and world */
    uint32_t constraints;  /* who may hold models changes, per second and world */
    uint32_t emptied;      /* etcd, per second and world */
    uint32_t orders;       /* by clients, per second and world */
    bool forced;           /* vmodels are, sometimes */
};

struct place_kept {
    uint32_t node;
    int64_t since_ms;
    enum mesh_place_kind kind;
};

struct record {
    bool exists;
    uint64_t create_revision;
    uint64_t revision;
    uint64_t version; /* which model of that name it is; its path says so */
    int64_t used_ms;
    uint32_t references;
    bool auto_delete;
    uint32_t count;
    struct place_kept places[PLACES_MAX];
};

struct vrecord {
    bool exists;
    uint64_t create_revision;
    uint64_t revision;
    uint32_t active; /* models; NOBODY */
    uint32_t target;
    bool failed;
};

/* What was active from a time on. */
struct was_active {
    int64_t from_ms;
    uint32_t model;
};

struct instance_key {
    bool exists;
    uint64_t session;
    uint64_t revision;
    int64_t start_ms;
    int64_t version;
    bool draining;
    struct mesh_figures figures;
};

enum change_kind { CHANGE_MODEL, CHANGE_VMODEL, CHANGE_KEY };

struct change {
    enum change_kind kind;
    uint32_t id;
    uint64_t revision;
    struct record record;
    struct vrecord vrecord;
    struct instance_key key;
};

enum origin { ORIGIN_NONE, ORIGIN_CLIENT, ORIGIN_PEER };

/* A call that a node answers. */
struct slot {
    enum origin origin;
    uint32_t depth;   /* hops so far */
    uint32_t attempt; /* the last try's number */
    uint32_t serial;  /* no two calls of a client have the same */
    uint32_t loads;   /* bit n: node n was asked to load it */
    bool serving;     /* in the runtime here */
    uint32_t model;   /* that it is served with; of a vmodel's: that it was last tried with */
    uint32_t vmodel;
    int64_t called_ms;
    uint32_t node; /* PEER: who waits for the answer, in which life, as which try of which of its
                      calls */
    uint32_t life;
    uint32_t call;
    uint32_t number;
};

enum memory { MEMORY_NONE, MEMORY_LOADING, MEMORY_LOADED, MEMORY_UNLOADING };

struct held {
    enum memory memory;
    uint64_t bytes;
    uint64_t version; /* of the model that is in memory */
    uint32_t in_flight;
};

/* An order that a node answers. */
struct given {
    bool is;
    enum mesh_order_kind kind;
    uint32_t model;
    uint32_t vmodel;
};

struct node {
    struct mesh *mesh; /* NULL: dead */
    uint32_t life;
    int64_t skew_ms;
    uint64_t session;
    uint64_t history; /* of etcd, that its mirror is of */
    uint64_t seen;    /* changes that its mirror has seen */
    bool watching;    /* a delivery is on its way */
    bool constrained; /* as it has heard */
    int64_t heard_ms;
    struct slot slots[SLOTS_MAX];
    struct given orders[ORDERS_MAX];
    struct held held[MODELS_MAX];
    uint64_t excess;              /* by which models are larger than predicted */
    uint64_t claimed[MODELS_MAX]; /* version of the model that its place is of; 0: none */
    uint64_t told[MODELS_MAX];    /* version of the model that it has been told of last, */
    uint64_t told_at[MODELS_MAX]; /* as of this revision */
};

struct world {
    uint64_t random;
    uint64_t trace; /* hash of all that happened */
    int64_t now_ms;
    bool faulty; /* else nothing goes wrong any more */
    struct faults faults;
    uint32_t node_count;
    uint32_t model_count;
    uint32_t vmodel_count;
    uint32_t rate_for_more; /* S3 */
    uint64_t model_bytes;   /* predicted; what they are, is a matter of the model */
    uint64_t capacity;
    uint32_t concurrency; /* of every other model; 0: all take what comes */
    bool constrained;     /* models may be on even nodes only */
    bool upgrades;        /* nodes come back in newer versions */
    struct node nodes[NODES_MAX];
    int64_t link_broken_until_ms[NODES_MAX][NODES_MAX];

    /* etcd */
    uint64_t revision;
    uint64_t history; /* how often it was emptied */
    int64_t emptied_ms;
    uint64_t versions;
    struct record records[MODELS_MAX];
    struct vrecord vrecords[VMODELS_MAX];
    struct was_active *histories[VMODELS_MAX];
    uint32_t history_counts[VMODELS_MAX];
    struct instance_key keys[NODES_MAX];
    struct change *changes;
    uint64_t change_count;
    uint64_t change_capacity;

    /* what there is to do */
    struct task *tasks;
    uint32_t task_count;
    uint32_t task_capacity;
    uint64_t task_order;

    uint32_t serials;
    uint64_t called;
    uint64_t answered;
    uint64_t ends[16];
    uint64_t loads;
    uint64_t unloads;
    uint64_t drained;
    uint64_t reaped;
    uint64_t ordered;
    uint64_t replied;
    uint64_t outcomes[16];
    uint64_t switches;       /* of vmodels */
    uint64_t vmodels_failed; /* calls for one that was there */
};

/* Something that happens at a time; `data` is malloc'ed and freed after it. */
struct task {
    int64_t at_ms;
    uint64_t order;
    void (*run)(struct world *world, struct task *task);
    uint32_t node;
    uint32_t life;
    uint32_t a;
    uint32_t b;
    uint64_t c;
    void *data;
};

uint32_t draw(struct world *world, uint32_t below);
bool happens(struct world *world, uint32_t per_mille);
void later(struct world *world, int64_t in_ms, struct task task);
void trace(struct world *world, uint64_t what);
int64_t wall_of(const struct world *world, uint32_t node);
const char *node_name(uint32_t node);
const char *model_name(uint32_t model);
const char *vmodel_name(uint32_t vmodel);
uint32_t number_of(const char *name); /* NOBODY: "" */

/* etcd.c */
const struct place_kept *place_of(const struct record *record, uint32_t node);
bool is_registered(const struct place_kept *place);
void etcd_put_model(struct world *world, uint32_t model, struct record record);
void etcd_put_vmodel(struct world *world, uint32_t vmodel, struct vrecord record);
/* With the references of what it comes after; NULL: none. */
void etcd_register(struct world *world, uint32_t model, const struct record *former);
/* It comes back without its data; each node notices in its time. */
void etcd_empty(struct world *world);
bool etcd_is_seen_by(const struct world *world, uint32_t node);
void etcd_put_key(struct world *world, uint32_t node);
void etcd_drop_key(struct world *world, uint32_t node);
void etcd_txn(struct world *world, uint32_t node, const struct mesh_txn *txn);
void etcd_list(struct world *world, uint32_t node);

/* node.c */
void node_start(struct world *world, uint32_t node);
void node_kill(struct world *world, uint32_t node);
void node_drain(struct world *world, uint32_t node);
void node_lose_lease(struct world *world, uint32_t node);
void node_register(struct world *world, uint32_t node);
void node_hear(struct world *world, uint32_t node, bool constrained);
uint32_t model_concurrency(const struct world *world, uint32_t model);
void node_step(struct world *world, uint32_t node, struct mesh_event event);
void node_call(struct world *world, uint32_t node, uint32_t model, uint32_t vmodel);
void node_order(struct world *world, uint32_t node, struct mesh_order said);
void node_ensure(struct world *world, uint32_t node, uint32_t model, uint32_t target);

/* orders.c */
void orders_client(struct world *world);
void orders_replied(struct world *world, uint32_t node, const struct mesh_action *action);
void orders_forgotten(struct world *world, uint32_t node);
/* All models are registered, and no vmodel is in transition. */
void orders_converge(struct world *world);
void check_references(const struct world *world);                                     /* I14 */
void check_switch(struct world *world, uint32_t vmodel, const struct vrecord *after); /* I13 */
void count_failed(struct world *world, const struct slot *slot);                      /* I7 */
void check_served(const struct world *world, const struct slot *slot);                /* I13 */

/* world.c */
void world_init(struct world *world, uint64_t seed);
void world_fini(struct world *world);
void world_run(struct world *world, int64_t for_ms);
/* For whoever looks for the reason of a failed seed. */
void report(const struct world *world, uint32_t model);
/* L: faults end, everybody comes back, and what must hold then is checked. */
void world_converge(struct world *world);
