/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of real mesh cores on virtual time: a simulated etcd, a network, runtimes, clients, and
 * all that may go wrong with them. Everything follows from one seed: which faults there are and how
 * often, how many nodes and models, each delay. The same seed, the same trace. DESIGN.md has the
 * plan; invariants.h says what is watched over.
 *
 * Nodes are numbered from 0, and so are models. Memory is the world's arena: nobody frees anything.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "fake_etcd.h"
#include "mesh/core/cluster/mesh_clock.h"
#include "mesh/core/mesh_core.h"

/* Each part draws from its own stream: more chances of one do not shuffle the others. */
enum stream {
    STREAM_OPTIONS,
    STREAM_ETCD,
    STREAM_NETWORK,
    STREAM_RUNTIMES,
    STREAM_CLIENTS,
    STREAM_CHAOS,
    STREAM_CHECKS,
    STREAM_CLOCKS, /* this and those behind it: added later */
    STREAM_SPACE,
    STREAM_POOLS,
    STREAM_BOUNDS,
    STREAM_RESTS,
    STREAM_COUNT,
    STREAMS_SEEDED = STREAM_CLOCKS, /* so that a seed goes on meaning the same */
};

enum {
    LEASE_S = 6,
    ETCD_CALL_MS = 1000, /* the time-out of a node's calls to etcd */
    KEEPALIVE_MS = 2000, /* after which a peer that is silent counts as unreachable */
    CALL_MS_MAX = 30000, /* the longest deadline of a client */
    FRESH_MS = 20000,    /* of failures */
    GONE_MS = 15000,     /* of an instance, before its places are removed */
    LABELLED_EVERY = 2,  /* each second node has the label that heavy models require */
    RECENT_MS = 3600000, /* D4 */
    LOAD_TIMEOUT_MS = 9000,
    LOAD_GIVEN_UP_MS = 14000, /* the edge waits no longer for a runtime */
    NODE_POOLS_MAX = 2,
    ORDERS_MAX = 64, /* at a time, of a node */
};

/* How often what goes wrong: drawn per seed, each often never. */
struct faults {
    /* per mille of messages */
    uint32_t slow; /* takes seconds */
    uint32_t lost; /* never arrives */
    /* per mille of what a runtime does */
    uint32_t load_fails;
    uint32_t load_slow;
    uint32_t size_lies;
    uint32_t forgets;    /* per call: it has lost the model */
    uint32_t keeps;      /* per unload: it does not give the memory back */
    uint32_t sizes_late; /* per mille of loads: how large the model is comes later */
    uint32_t hangs;      /* per mille of seconds: a runtime's loads of the next seconds never end */
    /* per mille of calls */
    uint32_t cancels;
    /* per mille of seconds, of the whole world */
    uint32_t kills;
    uint32_t pauses;
    uint32_t crashes; /* of runtimes */
    uint32_t rests;   /* of runtimes that serve no call: they come back by themselves */
    uint32_t leases;  /* revoked, though somebody keeps them */
    uint32_t clocks;  /* are set */
    uint32_t drains;
    uint32_t links;      /* one way */
    uint32_t partitions; /* some from the others, one way or both */
    uint32_t swizzles;   /* some nodes' links stop one by one, and come back in another order */
    uint32_t outages;    /* of etcd */
    uint32_t elections;  /* of etcd */
    uint32_t no_space;   /* etcd refuses writes, and answers reads */
    uint32_t compactions;
    uint32_t replacements; /* a model is registered anew */
    uint32_t emptyings;    /* etcd loses its data */
    uint32_t constraints;  /* which nodes may hold heavy models changes */
    uint32_t orders;       /* somebody registers, unregisters, moves a vmodel */
    bool forced;           /* vmodels, sometimes */
};

/* Rules B. MANY: minima of nearly all models, which may be more than the memory of all nodes. */
enum bounds_kind { BOUNDS_NONE, BOUNDS_FEW, BOUNDS_MANY };

/* The world's parameters, drawn per seed. */
struct options {
    uint32_t nodes;
    uint32_t models;
    uint32_t vmodels;
    uint32_t concurrency; /* calls at a time of every other model; 0: all that come */
    bool upgrades;        /* a returning node is of a newer version */
    bool pools;           /* nodes of odd numbers have two (K6) */
    uint32_t zipf;        /* 0: all alike, 1: as 1 / sqrt(rank), 2: as 1 / rank */
    uint32_t call_every_ms;
    uint32_t rate_for_more; /* S3 */
    uint32_t delay_ms;      /* of messages, at most */
    uint32_t watch_lag_ms;  /* at most */
    uint64_t model_bytes;   /* of the smallest ones; they have up to four times as much */
    uint64_t capacity_bytes;
    uint32_t load_ms; /* that a load takes at most, if nothing is wrong */
    uint32_t chaos_ms;
    bool skewed; /* clocks differ by seconds */
    uint32_t
        wrong_clocks; /* nodes whose clocks are off by up to a day besides, from the first on */
    bool labelled;    /* every fourth model requires a label */
    bool poisoned;    /* the last model cannot be loaded */
    enum bounds_kind bounds;
    bool notifies_own;      /* the writer of a record gets the answer before the watch comes */
    bool unsure;            /* of a lease that was lost: one does not always know */
    uint32_t lost_for_good; /* nodes, after the faults */
    struct faults faults;
};

enum memory { MEMORY_NONE, MEMORY_LOADING, MEMORY_LOADED, MEMORY_UNLOADING };

/* A model in a node's runtime. */
struct held {
    enum memory memory;
    uint64_t bytes;
    uint64_t ticket;  /* of its load */
    uint64_t version; /* registration of the model that is in memory */
    uint32_t in_flight;
    uint32_t serial; /* of the load: an answer to a former one is none */
};

enum origin { ORIGIN_NONE, ORIGIN_CLIENT, ORIGIN_PEER };

/* A call that a node answers. */
struct slot {
    enum origin origin;
    bool serving;     /* in the runtime here */
    bool away;        /* at another node */
    uint32_t depth;   /* hops so far */
    uint32_t attempt; /* the last try's number */
    uint32_t model;   /* of a vmodel's call: the one that it was last tried with */
    uint32_t vmodel;  /* VMODEL_NONE */
    int64_t deadline_ms;
    uint32_t there;       /* away: where */
    uint32_t client_call; /* CLIENT, and its final recipient */
    uint32_t node; /* PEER: the node that waits for the answer, in which life, as which try of which
                      of its calls */
    uint32_t life;
    uint32_t call;
    uint32_t number;
};

/* The record of a model that a node knows. */
struct reported_model {
    uint64_t create_revision;
    uint64_t version; /* the registration that it is of */
};

/* A node's part in etcd: its session, and its mirror. */
struct registry {
    int64_t lease_id; /* 0: none */
    int64_t lease_until_ms;
    uint64_t session; /* the own key's creation revision; 0: none */
    bool joining;
    bool listing;
    bool watching; /* a delivery is on its way */
    bool whole;
    struct fake_watch *watch;
    uint64_t history;                /* of etcd, that the mirror is of */
    int64_t revision;                /* the mirror's */
    uint64_t *model_revisions;       /* by model: reported last; 0: it is not there */
    struct reported_model *reported; /* by model: the last that was there */
    uint64_t *vmodel_revisions;
    uint64_t *node_revisions;
    uint64_t *node_sessions;
    bool leads;
};

struct node {
    struct mesh *mesh; /* NULL: dead */
    uint32_t life;
    int64_t start_ms; /* mesh time when it began, as its record says it */
    int64_t began_ms; /* the world's time then */
    int64_t skew_ms;
    struct mesh_clock clock;
    int64_t paused_until_ms;
    bool draining;
    bool gone_for_good;
    bool constrained; /* as it has heard */
    int64_t received_ms;
    bool orders[ORDERS_MAX];             /* which it is answering */
    uint64_t kept_bytes[NODE_POOLS_MAX]; /* that a runtime would not give back */
    int64_t hangs_until_ms;              /* loads that begin before that do not end */
    uint32_t runtime;                    /* its life */
    struct registry registry;
    struct slot *slots;
    uint32_t slot_count;
    uint32_t slot_capacity;
    struct held *held; /* by model */
    uint32_t steps;
};

/* A call of a client, from its beginning to its one end. */
struct client_call {
    uint32_t entry;
    uint32_t model;  /* that it is for, or a vmodel's that it has come to */
    uint32_t vmodel; /* VMODEL_NONE */
    int64_t began_ms;
    int64_t ended_ms;
    int64_t deadline_ms;
    bool open;
    bool lost; /* its entry died, or it cancelled */
    enum mesh_end end;
    struct asks *asks; /* of the invariant I8 */
};

struct world;

/* Something that happens at a time. */
struct task {
    int64_t at_ms;
    uint64_t order;
    void (*run)(struct world *world, struct task *task);
    uint32_t node;
    uint32_t life; /* it is of this life of the node; LIFE_ANY: whichever */
    bool inside;   /* and waits while the node is paused */
    uint32_t a;
    uint32_t b;
    uint64_t c;
    void *data;
};

#define NODE_NONE UINT32_MAX
#define LIFE_ANY UINT32_MAX
#define VMODEL_NONE UINT32_MAX

struct invariants;

struct world {
    uint64_t seed;
    uint64_t random[STREAM_COUNT];
    uint64_t trace; /* hash of all that happened */
    int64_t now_ms;
    bool faulty; /* else nothing goes wrong any more */
    bool quiet;  /* nor does any client call by itself */
    struct options options;
    struct arena arena;
    struct fake_etcd *etcd;
    struct node *nodes;
    char (*node_names)[16];
    char (*model_names)[8];
    char (*vmodel_names)[8];
    uint32_t registrations;
    uint64_t *popularity;      /* by model: sum of the weights up to it */
    int64_t *cut_until_ms;     /* from × to; the last one is etcd */
    int64_t no_space_until_ms; /* etcd refuses writes */
    struct invariants *invariants;

    struct task *tasks;
    uint32_t task_count;
    uint32_t task_capacity;
    uint64_t task_order;

    struct client_call *calls;
    uint32_t call_count;
    uint32_t call_capacity;

    uint64_t ends[16];
    uint64_t loads;
    uint64_t unloads;
    uint64_t drained;
    uint64_t reaped;
    uint64_t relists;
    uint64_t unknowns;
    bool constrained; /* heavy models, to some nodes: as it is, each node learns of it in time */
    uint64_t faults_done;
    uint64_t emptied;
    uint64_t switches; /* of vmodels */
    uint64_t ordered;
    uint64_t replied;
    uint64_t outcomes[16];
};

/* world.c */
void world_init(struct world *world, uint64_t seed);
/* The same with options that `adjust` has changed after they were drawn. */
void world_init_as(struct world *world, uint64_t seed, void (*adjust)(struct world *world));
void world_fini(struct world *world);
void world_run(struct world *world, int64_t for_ms);
uint32_t draw(struct world *world, enum stream stream, uint32_t below);
bool happens(struct world *world, enum stream stream, uint32_t per_mille);
/* Within the world's faults alone. */
bool fault(struct world *world, enum stream stream, uint32_t per_mille);
void trace(struct world *world, uint64_t what);
uint32_t number_of(const char *name);
void later(struct world *world, int64_t in_ms, struct task task);
/* A task of a living node, of this life. */
void node_later(struct world *world, uint32_t node, int64_t in_ms, struct task task);

/* options.c */
void options_draw(struct world *world);
void options_print(const struct world *world);

/* network.c */
uint32_t etcd_port(const struct world *world); /* etcd's number in the network */
bool is_cut(const struct world *world, uint32_t from, uint32_t to);
void cut(struct world *world, uint32_t from, uint32_t to, int64_t for_ms);
/* Runs the task when the message has arrived at `to`; false: it never will. Either may be etcd. */
bool send(struct world *world, uint32_t from, uint32_t to, struct task task);

/* registry.c */
void registry_start(struct world *world, uint32_t node);
void registry_write(struct world *world, uint32_t node, const struct mesh_txn *txn);
void registry_publish(struct world *world, uint32_t node);
/* The operator's own, at once. */
void registry_register(struct world *world, uint32_t model);
/* Under the same name, with the references that there are. */
void registry_replace(struct world *world, uint32_t model);
/* BOUNDS_FEW: one of the models gets other bounds. */
void registry_bind(struct world *world);
/* Bounds that the model may have. */
struct mesh_bounds registry_draw_bounds(struct world *world, uint32_t model);
void registry_announce(struct world *world);

/* Which registration a record is of: its path says it. */
uint64_t version_of(const struct mesh_model *record);

/* runtime.c */
const char *runtime_type(const struct world *world, uint32_t model);
/* K6: the pools of a node, each with the whole capacity, the types of each, and a model's. */
uint32_t runtime_pools(const struct world *world, uint32_t node);
extern const char *const runtime_pool_types[NODE_POOLS_MAX];
uint32_t runtime_pool(const struct world *world, uint32_t node, uint32_t model);
uint32_t runtime_concurrency(const struct world *world, uint32_t model); /* 0: all that come */
uint64_t runtime_bytes(const struct world *world, uint32_t model);       /* predicted */
/* The core's reservation for a load: a peer may have reported another size. */
uint64_t runtime_reserved(struct world *world, uint32_t node, uint32_t model);
void runtime_start(struct world *world, uint32_t node);
void runtime_crash(struct world *world, uint32_t node);
/* Unless it serves a call or works on a model. */
void runtime_rest(struct world *world, uint32_t node);
/* Loads that begin within so long do not end. */
void runtime_hang(struct world *world, uint32_t node, int64_t for_ms);
void runtime_size(struct world *world, uint32_t node, const struct mesh_action *action);
void runtime_load(struct world *world, uint32_t node, const struct mesh_action *action);
void runtime_unload(struct world *world, uint32_t node, const struct mesh_action *action);

/* node.c */
void node_start(struct world *world, uint32_t node);
void node_kill(struct world *world, uint32_t node);
void node_pause(struct world *world, uint32_t node, int64_t for_ms);
void node_drain(struct world *world, uint32_t node);
/* The type constraints are new. */
void node_receive(struct world *world, uint32_t node, bool constrained);
void node_step(struct world *world, uint32_t node, struct mesh_event event);
bool node_is_up(const struct world *world, uint32_t node);

/* clocks.c */
int64_t clock_wall_ms(const struct world *world, uint32_t node); /* as that node has it */
int64_t clock_mesh_ms(struct world *world, uint32_t node);
void clock_start(struct world *world, uint32_t node); /* a process begins */
/* The node asks the others whose turn it is. */
void clock_tick(struct world *world, uint32_t node);
/* A skew of up to a day, either way: small, large and whole ones alike. */
int64_t clock_draw_skew(struct world *world);

/* calls.c */
uint32_t call_begin(struct world *world, uint32_t node, uint32_t model, int64_t deadline_ms);
uint32_t call_begin_vmodel(struct world *world, uint32_t node, uint32_t vmodel,
                           int64_t deadline_ms);
void call_do_serve(struct world *world, uint32_t node, const struct mesh_action *action);
void call_do_forward(struct world *world, uint32_t node, const struct mesh_action *action);
void call_do_ensure(struct world *world, uint32_t node, const struct mesh_action *action);
void call_do_answer(struct world *world, uint32_t node, const struct mesh_action *action);
/* All calls that the node had are over. */
void calls_die(struct world *world, uint32_t node);

/* orders.c */
void orders_client(struct world *world);
void orders_replied(struct world *world, uint32_t node, const struct mesh_action *action);
void orders_die(struct world *world, uint32_t node);

/* clients.c */
void clients_start(struct world *world);

/* chaos.c */
void chaos_start(struct world *world);
void chaos_end(struct world *world);

/* converge.c: faults end, all nodes come back but those lost for good, and what must hold then is
 * checked. */
void world_converge(struct world *world);
/* The first so many models are asked for. */
uint32_t models_asked(const struct world *world);
