/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decisions of one node of the mesh, as a pure step: events in, actions out. See DESIGN.md for
 * the contract with the edge, DESIGN-rules.md for the rules.
 *
 * One thread. Texts and arrays in an event are read during mesh_step and not kept; those in actions
 * live until the next mesh_step or mesh_destroy. Times in milliseconds: `now_ms` monotonic,
 * `wall_ms` the epoch, for stamps. Sizes in bytes at this boundary. Out of memory ends the process.
 *
 * The edge promises, and is held to it by CHECK: a call's number is below calls_max and not in use;
 * tickets are those it was given. Answers about what has gone meanwhile are dropped. Everything in
 * records is judged, not believed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    MESH_TRIED_MAX = 24, /* what a call's three lists hold together */
    MESH_TRIES_MAX = 8,
    MESH_COPIES_TRIED_MAX = 5,
    MESH_FAILURES_MAX = 3,
    MESH_PLACES_MAX = 4096, /* of one record; what is beyond is not looked at */
    MESH_ID_BYTES_MAX = 1024,
    MESH_INSTANCES_MAX = 65535,
    MESH_POOLS_MAX = 2,
    MESH_WRITES_MAX = 4, /* a vmodel, what it leaves, and what it comes to */
};

struct mesh_config {
    const char *instance; /* this node's id */
    uint64_t seed;
    uint32_t models_max;
    uint32_t instances_max;
    uint32_t calls_max;
    uint32_t vmodels_max;
    uint32_t orders_max;
    int64_t failure_fresh_ms; /* F3; 0: 15 minutes */
    int64_t gone_ms;          /* G1; 0: 10 minutes */
    uint32_t rate_for_more;   /* S3, calls a minute; 0: 2,000 */
    uint32_t busy_percent;    /* S5; 0: 90 */
    uint32_t waiting_max;     /* S6; 0: 8 times what a copy takes at a time, 16 at least */
    /* K6: to which pool models of that type and key belong: always the same. NULL: there is one
     * pool; else MESH_POOLS_MAX. */
    uint32_t (*pool_of)(const void *context, const char *type, const char *key);
    const void *pool_context;
};

/* ---- records ---- */

enum mesh_place_kind { MESH_PLACE_LOADING, MESH_PLACE_LOADED, MESH_PLACE_FAILED };

struct mesh_place {
    const char *instance;
    const char *reason; /* of a failure; NULL or "": unknown */
    int64_t since_ms;   /* wall clock of that instance: when the load began, or failed */
    enum mesh_place_kind kind;
};

struct mesh_model {
    const char *id;
    const char *type;
    const char *path;
    const char *key;
    uint64_t create_revision;
    uint64_t revision;
    int64_t used_ms;
    int64_t unloaded_ms;
    uint32_t references;
    bool auto_delete;
    const struct mesh_place *places;
    uint32_t place_count;
};

/* A name that is moved from model to model. `active` serves; `target` is what it is to become, and
 * the same once it has. */
struct mesh_vmodel {
    const char *id;
    const char *owner;  /* NULL or "": nobody's */
    const char *active; /* this and the next: NULL or "": none */
    const char *target;
    uint64_t create_revision;
    uint64_t revision;
    bool failed; /* V6: the target fails to load */
};

/* Load figures of an instance, of its record or of a reply. */
struct mesh_figures {
    uint64_t capacity_units; /* usable */
    uint64_t free_units;
    int64_t oldest_ms; /* wall clock: last use of its oldest model; INT64_MAX: it has none */
    uint32_t copies;
    uint32_t loading; /* and queued */
    uint32_t calls_per_minute;
    bool full; /* P3 */
};

struct mesh_instance {
    const char *id;
    const char *labels; /* sorted, comma between; "" for none */
    uint64_t session;   /* create revision of its key */
    uint64_t revision;
    int64_t start_ms; /* its wall clock */
    int64_t version;
    bool draining;
    struct mesh_figures figures;
};

/* ---- calls ---- */

enum mesh_hop { MESH_HOP_ENTRY, MESH_HOP_LOAD, MESH_HOP_HIT };
enum mesh_list { MESH_LIST_FIXED, MESH_LIST_HIT, MESH_LIST_LOAD };

struct mesh_tried {
    const char *instance;
    int64_t since_ms; /* HIT: the copy's stamp */
    enum mesh_list list;
};

/* How a call ended here, or a try of one elsewhere. */
enum mesh_end {
    MESH_END_OK,          /* answered, whatever the runtime said */
    MESH_END_NOT_HERE,    /* no such copy; to a try: next */
    MESH_END_REFUSED,     /* it was to be loaded here, and cannot be */
    MESH_END_LOAD_FAILED, /* it was loaded here, in vain */
    MESH_END_OVERLOADED,
    MESH_END_UNREACHABLE, /* of tries: the peer or the runtime cannot be reached */
    MESH_END_NOT_FOUND,   /* no such model, or vmodel; of a try: its record has gone, over there */
    MESH_END_FAILED,      /* of calls: everything was tried */
    MESH_END_UNAVAILABLE, /* of calls: this node has not seen the registry, or cannot write it */
    MESH_END_DEADLINE,    /* of calls */
    MESH_END_FULL,        /* of calls at their entry: nobody had room until the deadline (R14) */
};
enum { MESH_ENDS = MESH_END_FULL + 1 };

enum mesh_balance { MESH_BALANCE_NONE, MESH_BALANCE_CALLER };

/* Why a model is loaded: the queue's classes, best first (Q1). */
enum mesh_class { MESH_CLASS_CALL, MESH_CLASS_MIGRATION, MESH_CLASS_COPY, MESH_CLASS_ADVANCE };

/* ---- orders: management calls, while this node answers them ---- */

enum mesh_order_kind {
    MESH_REGISTER,
    MESH_UNREGISTER,
    MESH_MODEL_STATUS,
    MESH_ENSURE_LOADED,
    MESH_SET_VMODEL,
    MESH_DELETE_VMODEL,
    MESH_VMODEL_STATUS,
};

/* Texts that an order does not use are NULL, and so is what its caller left out or empty. */
struct mesh_order {
    uint32_t order; /* the edge's number, below orders_max, not in use */
    enum mesh_order_kind kind;
    int64_t deadline_ms; /* on the clock of now_ms */
    const char *model;   /* SET_VMODEL: the target */
    const char *type;    /* REGISTER; SET_VMODEL: NULL: the target must be there */
    const char *path;
    const char *key;
    const char *vmodel;
    const char *owner;
    const char *expected; /* SET_VMODEL: the target that it must have now */
    int64_t used_ms;      /* wall clock; 0: as the rules say (O2, O5) */
    bool load_now;        /* REGISTER, SET_VMODEL */
    bool sync;            /* waits for what was begun: a load, a transition */
    bool update_only;
    bool auto_delete;
    bool force;
};

enum mesh_outcome {
    MESH_OUTCOME_OK,
    MESH_OUTCOME_INVALID,    /* an id or the type is missing, or longer than MESH_ID_BYTES_MAX */
    MESH_OUTCOME_NO_MODEL,   /* ENSURE_LOADED; SET_VMODEL: the target, and no type to register it */
    MESH_OUTCOME_NO_VMODEL,  /* SET_VMODEL: update_only, or another than none is expected */
    MESH_OUTCOME_DIFFERS,    /* the model is there, with another type, path or key */
    MESH_OUTCOME_REFERENCED, /* UNREGISTER: of a vmodel's model */
    MESH_OUTCOME_OTHER_OWNER, /* whose: reply.vmodel.owner */
    MESH_OUTCOME_UNEXPECTED,  /* which target it has: reply.vmodel.target */
    MESH_OUTCOME_FULL,        /* models_max or vmodels_max */
    MESH_OUTCOME_UNAVAILABLE, /* this node has not seen the registry, or cannot write it */
    MESH_OUTCOME_DEADLINE,
};

enum mesh_model_state {
    MESH_MODEL_NOT_FOUND,
    MESH_MODEL_NOT_LOADED,
    MESH_MODEL_LOADING,
    MESH_MODEL_LOADED,
    MESH_MODEL_FAILED,
};

/* The part of the record that counts: living copies and fresh failures, latest first. */
struct mesh_status {
    enum mesh_model_state state;
    const struct mesh_place *places;
    uint32_t place_count;
    const char *error; /* why nobody loads it, beside the places' reasons; NULL: none */
};

enum mesh_vmodel_state {
    MESH_VMODEL_NOT_FOUND,
    MESH_VMODEL_DEFINED,
    MESH_VMODEL_TRANSITIONING,
    MESH_VMODEL_FAILED,
};

struct mesh_vmodel_status {
    enum mesh_vmodel_state state;
    const char *owner; /* this and the next: "": none */
    const char *active;
    const char *target;
    struct mesh_status active_status;
    struct mesh_status target_status; /* TRANSITIONING and FAILED only */
};

/* ---- events ---- */

enum mesh_event_kind {
    MESH_TICK, /* once a second */
    MESH_RUNTIME,
    MESH_RUNTIME_LOST,
    MESH_SESSION, /* the own instance key's creation revision; 0: the lease is lost */
    MESH_WHOLE,   /* the mirror has seen everything up to a revision */
    /* W1: etcd was emptied, restored or made anew, as its client tells (not: a key is missing,
     * which is so after every lost lease). Instead of deletions of what it has no more, and before
     * what it has; revisions begin anew. A SESSION follows, when the own key is back. */
    MESH_EMPTIED,
    MESH_MODEL_PUT,
    MESH_MODEL_GONE,
    MESH_VMODEL_PUT,
    MESH_VMODEL_GONE,
    MESH_INSTANCE_PUT,
    MESH_INSTANCE_GONE,
    MESH_INSTANCE_FIGURES, /* on a reply */
    MESH_UNREACHABLE,      /* an ENSURE could not be sent to an instance */
    MESH_TXN_ENDED,        /* LOST: the records as they now are came before it */
    MESH_CALL,
    MESH_CALL_CANCELLED, /* of one that is served here: TRY_ENDED, when the runtime lets go of it */
    MESH_TRY_ENDED,
    MESH_ORDER,
    MESH_ORDER_CANCELLED,
    MESH_ENSURE,
    MESH_SIZE_PREDICTED,
    MESH_LOAD_ENDED,
    MESH_SIZE_MEASURED, /* of what was loaded without a size; may come late, or never */
    MESH_UNLOAD_ENDED,
    MESH_TYPES,
    MESH_RATE,
    MESH_USED, /* calls that were served without a MESH_CALL; not of models with a concurrency */
    MESH_LEADER,
    MESH_DRAIN,
};

enum mesh_txn_end { MESH_TXN_OK, MESH_TXN_LOST, MESH_TXN_UNKNOWN };
enum mesh_load_end { MESH_LOAD_OK, MESH_LOAD_BROKE, MESH_LOAD_NOT_ATTEMPTED };
enum mesh_where { MESH_HERE, MESH_ANYWHERE };

struct mesh_type_rule {
    const char *type; /* "_default": those not named */
    const char *const *required;
    uint32_t required_count;
    const char *const *preferred;
    uint32_t preferred_count;
};

struct mesh_event {
    enum mesh_event_kind kind;
    int64_t now_ms;
    int64_t wall_ms;
    union {
        struct {
            uint64_t capacity_bytes;
            uint64_t default_bytes;
            uint32_t loaders;
            int64_t load_timeout_ms;
            uint32_t pool;
        } runtime;
        struct {
            uint32_t pool;
        } lost; /* RUNTIME_LOST */
        struct {
            uint64_t revision;
        } session, whole;
        struct mesh_model model;       /* MODEL_PUT */
        struct mesh_vmodel vmodel;     /* VMODEL_PUT */
        struct mesh_instance instance; /* INSTANCE_PUT */
        struct {
            const char *id;
            uint64_t revision;
        } gone; /* MODEL_GONE, VMODEL_GONE, INSTANCE_GONE */
        struct {
            const char *instance;
            int64_t start_ms; /* of the process that says it */
            struct mesh_figures figures;
        } figures;
        struct {
            const char *instance;
        } unreachable;
        struct {
            uint64_t txn;
            enum mesh_txn_end end;
        } txn;
        struct {
            uint32_t call;
            const char *model;
            const char *vmodel; /* V7: the call is for it, and `model` is nothing; NULL: none */
            enum mesh_hop hop;
            enum mesh_balance balance;
            bool once;                /* at the entry: a try may not be repeated (R15) */
            int64_t deadline_ms;      /* on the clock of now_ms */
            uint64_t create_revision; /* of the sender's record; 0 at the entry */
            const struct mesh_tried *tried;
            uint32_t tried_count;
        } call;                  /* CALL; CALL_CANCELLED: `call` alone */
        struct mesh_order order; /* ORDER; ORDER_CANCELLED: `order` alone */
        struct {
            uint32_t call;
            uint32_t number; /* that DO_SERVE or DO_FORWARD said */
            enum mesh_end end;
            bool answered;    /* whatever the end: the caller has been told, the call is over */
            bool vanished;    /* served here: the runtime does not know the model */
            uint64_t took_us; /* served here: by the runtime (S5); 0: not measured */
        } tried;
        struct {
            const char *model;
            int64_t used_ms; /* wall clock; 0: now */
            enum mesh_class class;
            enum mesh_where where;
            uint32_t target;     /* copies wanted in all; 0 is 1 */
            uint64_t size_bytes; /* if known, else 0 */
        } ensure;
        struct {
            uint64_t ticket; /* that DO_SIZE, DO_LOAD or DO_UNLOAD said */
            uint64_t size_bytes;
            enum mesh_load_end end;
            const char *reason;
            uint32_t max_concurrency; /* LOAD_ENDED: calls at a time (S6); 0: all that come */
            bool freed;               /* UNLOAD_ENDED: false: the runtime would not */
        } loaded;
        struct {
            const struct mesh_type_rule *rules;
            uint32_t rule_count;
        } types;
        struct {
            uint32_t for_more; /* S3, as in the configuration; 0: 2,000 */
        } rate;
        struct {
            const char *model;
            uint32_t count;
            int64_t used_ms;  /* wall clock, of the last */
            uint64_t took_us; /* all of them together, by the runtime; 0: not measured */
        } used;
        struct {
            bool is_leader;
        } leader;
    };
};

/* ---- actions ---- */

enum mesh_action_kind {
    MESH_DO_TXN,
    MESH_DO_SERVE,   /* the call, with the model that is loaded here */
    MESH_DO_FORWARD, /* the call, to an instance, as a hop */
    MESH_DO_ANSWER,  /* the call is over */
    MESH_DO_REPLY,   /* the order is over */
    MESH_DO_ENSURE,  /* to an instance, MESH_HERE */
    MESH_DO_SIZE,    /* predict; the default is an answer, too */
    MESH_DO_LOAD,
    MESH_DO_UNLOAD,
    MESH_DO_DRAINED, /* nothing is left that a drain waits for (D5); once */
};

enum mesh_verb { MESH_VERB_PUT, MESH_VERB_DELETE, MESH_VERB_COMPARE };
enum mesh_record { MESH_RECORD_MODEL, MESH_RECORD_VMODEL };

/* One record of a transaction. The edge adds what it does not know from the record that it compares
 * with. Of what is not put, only the id says something. */
struct mesh_write {
    enum mesh_verb verb;
    enum mesh_record record;
    uint64_t compare; /* the record's revision; 0: there is none */
    union {
        struct mesh_model model;
        struct mesh_vmodel vmodel;
    };
};

/* Under T1: all compares hold, or nothing is written. Each record is in it once. */
struct mesh_txn {
    uint64_t txn;
    uint64_t session;   /* the own key's creation revision, compared */
    const char *absent; /* an instance whose key must not exist; NULL: none */
    const struct mesh_write *writes;
    uint32_t write_count; /* 1 to MESH_WRITES_MAX */
};

struct mesh_action {
    enum mesh_action_kind kind;
    union {
        struct mesh_txn txn;
        struct {
            uint32_t call;
            uint32_t number;
            const char *model;
            uint64_t create_revision;
            uint32_t pool;        /* SERVE: that has it */
            const char *instance; /* FORWARD */
            enum mesh_hop hop;
            int64_t deadline_ms;
            const struct mesh_tried *tried;
            uint32_t tried_count;
        } attempt;
        struct {
            uint32_t call;
            enum mesh_end end;
            const char *text; /* for people; NULL: none */
            uint32_t pool;    /* that the model belongs to, if that is known; else the first */
        } answer;
        struct {
            uint32_t order;
            enum mesh_outcome outcome;
            struct mesh_status model;         /* of orders that name a model alone */
            struct mesh_vmodel_status vmodel; /* of those that name a vmodel */
        } reply;
        struct {
            const char *instance;
            const char *model;
            int64_t used_ms;
            enum mesh_class class;
            uint32_t target;
            uint64_t size_bytes;
        } ensure;
        struct {
            uint64_t ticket;
            const char *model;
            const char *type; /* this and the next: NULL for UNLOAD, if the record has gone */
            const char *path;
            const char *key;
            uint32_t pool;     /* that is to have it, or has */
            int64_t queued_ms; /* LOAD: how long it was QUEUED */
            bool evicted;      /* UNLOAD: it makes room for others, and */
            int64_t unused_ms; /* was not used for so long */
        } load;                /* SIZE, LOAD, UNLOAD */
    };
};

struct mesh_actions {
    const struct mesh_action *at;
    uint32_t count;
};

struct mesh;

struct mesh *mesh_create(const struct mesh_config *config);
void mesh_destroy(struct mesh *mesh);

struct mesh_actions mesh_step(struct mesh *mesh, const struct mesh_event *event);

/* ---- looking at it ---- */

enum mesh_state {
    MESH_STATE_NONE,
    MESH_STATE_CLAIMING,
    MESH_STATE_QUEUED,
    MESH_STATE_LOADING,
    MESH_STATE_LOADED,
    MESH_STATE_WITHDRAWING,
    MESH_STATE_EMPTYING,
    MESH_STATE_UNLOADING,
};

/* The state of a model on this node. */
enum mesh_state mesh_state(const struct mesh *mesh, const char *model);

/* V7: the model that a call for the vmodel goes to; NULL: there is none. */
const char *mesh_resolve(const struct mesh *mesh, const char *vmodel);

/* This node's figures, as they go into its record and on replies. One without a runtime has room
 * for nothing. */
struct mesh_figures mesh_figures(struct mesh *mesh);

/* Keys that the mirror has. */
struct mesh_population {
    uint32_t models;
    uint32_t vmodels;
    uint32_t instances;
};
struct mesh_population mesh_population(const struct mesh *mesh);

/* Totals for people, updated with each change: reading them walks nothing. */
struct mesh_sums {
    uint64_t capacity_units; /* usable: without the next two */
    uint64_t reserve_units;
    uint64_t lost_units; /* unloads that failed */
    uint64_t resident_units;
    uint32_t loaded;
    uint32_t loading;
    uint32_t queued;
    uint32_t models_held;   /* of the registry's: those with a place that is no failure */
    uint32_t models_failed; /* those with a failure, fresh or not */
    uint32_t vmodels_moving;
    uint64_t transitions; /* of vmodels to another model, that the mirror has seen */
};
struct mesh_sums mesh_sums(const struct mesh *mesh);

/*
 * Shows at most `count` of them, from `from` on (0: the first), in no order; returns where to go
 * on, 0: at the end. What comes or goes between two pages may be missed. Texts live until `visit`
 * returns; those of the last step's actions do not any more.
 */
uint32_t mesh_visit_models(struct mesh *mesh, uint32_t from, uint32_t count,
                           void (*visit)(void *context, const struct mesh_model *model),
                           void *context);
uint32_t mesh_visit_vmodels(struct mesh *mesh, uint32_t from, uint32_t count,
                            void (*visit)(void *context, const struct mesh_vmodel *vmodel),
                            void *context);
uint32_t mesh_visit_instances(struct mesh *mesh, uint32_t from, uint32_t count,
                              void (*visit)(void *context, const struct mesh_instance *instance),
                              void *context);

/* A model as it is to be told of: its record, what counts of that (O4), and what this node has. */
struct mesh_sight {
    struct mesh_model model;
    struct mesh_status status;
    enum mesh_state here;
    uint32_t pool; /* that has it, if anything is here */
};

/* The same for people: of `count` names that are looked at, those that begin with `prefix` are
 * shown. So the time that it takes is bounded, however few they are. */
uint32_t mesh_see_models(struct mesh *mesh, uint32_t from, uint32_t count, const char *prefix,
                         void (*see)(void *context, const struct mesh_sight *sight), void *context);
uint32_t mesh_see_vmodels(struct mesh *mesh, uint32_t from, uint32_t count, const char *prefix,
                          void (*see)(void *context, const char *id,
                                      const struct mesh_vmodel_status *status),
                          void *context);
/* Those that this node has, or is about to; of one whose record has gone, the id alone. */
uint32_t mesh_see_copies(struct mesh *mesh, uint32_t from, uint32_t count,
                         void (*see)(void *context, const struct mesh_sight *sight), void *context);
/* False: there is no such model. */
bool mesh_see_model(struct mesh *mesh, const char *id,
                    void (*see)(void *context, const struct mesh_sight *sight), void *context);

/* Walks the tables and CHECKs that they agree; for tests. */
void mesh_check(const struct mesh *mesh);
