/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decisions of one node of the mesh, as a pure step: events in, actions out. DESIGN.md has the
 * contract with the edge, DESIGN-rules.md the rules.
 *
 * One thread at a time. Texts and arrays in an event are read during mesh_step and not kept; those
 * in actions live until the next mesh_step or mesh_destroy. Times are in milliseconds: `now_ms` is
 * monotonic, `wall_ms` is since the epoch, for stamps. Sizes are bytes at this boundary. Running
 * out of memory ends the process.
 *
 * CHECK enforces the edge's promises: a call's number is below calls_max and not in use, and
 * tickets are those the core gave out. Answers about something that is gone are dropped. Records
 * are validated, never trusted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    MESH_TRIED_MAX = 24, /* all three lists of a call together */
    MESH_TRIES_MAX = 8,
    MESH_COPIES_TRIED_MAX = 5,
    MESH_FAILURES_MAX = 3,
    MESH_PLACES_MAX = 4096, /* of one record; the rest is ignored */
    MESH_ID_BYTES_MAX = 1024,
    MESH_INSTANCES_MAX = 65535,
    MESH_POOLS_MAX = 65,       /* of one instance */
    MESH_POOL_NAME_BYTES = 64, /* with NUL */
    MESH_WRITES_MAX = 4,       /* a vmodel, its former models and its new one */
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
    uint32_t waiting_max;     /* S6; 0: 8 times the copy's concurrency, at least 16 */
    /* K6: for each pool of this node the names of its types, comma-separated, or "*": all that no
     * other pool names. A single pool, or none given, is for all. */
    const char *const *pool_types;
    uint32_t pool_count;
    /* The name by which pools tell models of that type and key; "": none. NULL: they cannot. */
    void (*pool_name)(const char *type, const char *key, char name[MESH_POOL_NAME_BYTES]);
};

/* ---- records ---- */

enum mesh_place_kind { MESH_PLACE_LOADING, MESH_PLACE_LOADED, MESH_PLACE_FAILED };

struct mesh_place {
    const char *instance;
    const char *reason; /* of a failure; NULL or "": unknown */
    int64_t since_ms;   /* mesh time on that instance: when the load began or failed */
    enum mesh_place_kind kind;
};

/* Rules B. 0: none. */
struct mesh_bounds {
    uint32_t copies_min;
    uint32_t copies_max; /* a smaller one than copies_min lowers that */
    uint32_t size_units; /* assumed until a load tells the size */
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
    struct mesh_bounds bounds;
    const struct mesh_place *places;
    uint32_t place_count;
};

/* A mutable name for a model. `active` serves; `target` is the model it moves to, equal to `active`
 * once it has moved. */
struct mesh_vmodel {
    const char *id;
    const char *owner;  /* NULL or "": none */
    const char *active; /* this and the next: NULL or "": none */
    const char *target;
    uint64_t create_revision;
    uint64_t revision;
    bool failed; /* V6: the target does not load */
};

/* Load figures of an instance, from its record or a reply. */
struct mesh_figures {
    uint64_t capacity_units; /* usable */
    uint64_t free_units;
    int64_t oldest_ms; /* mesh time: last use of its oldest model; INT64_MAX: no model */
    uint32_t copies;
    uint32_t loading; /* loads under way and queued */
    uint32_t calls_per_minute;
    bool full; /* P3 */
};

struct mesh_instance {
    const char *id;
    const char *labels; /* sorted, comma between; "" for none */
    uint64_t session;   /* create revision of its key */
    uint64_t revision;
    int64_t start_ms; /* mesh time on that instance */
    int64_t version;
    bool draining;
    struct mesh_figures figures; /* of all pools together */
    /* K6: each pool's types, as in mesh_config, and figures; 0: it has one pool. */
    const char *const *pool_types;
    const struct mesh_figures *pool_figures;
    uint32_t pool_count;
};

/* ---- calls ---- */

enum mesh_hop { MESH_HOP_ENTRY, MESH_HOP_LOAD, MESH_HOP_HIT };
enum mesh_list { MESH_LIST_FIXED, MESH_LIST_HIT, MESH_LIST_LOAD };

struct mesh_tried {
    const char *instance;
    int64_t since_ms; /* HIT: the copy's stamp */
    enum mesh_list list;
};

/* The end of a call here, or of a try elsewhere. */
enum mesh_end {
    MESH_END_OK,          /* answered, with any answer of the runtime */
    MESH_END_NOT_HERE,    /* no such copy here; of a try: go on to the next */
    MESH_END_REFUSED,     /* the model was to be loaded here and cannot be */
    MESH_END_LOAD_FAILED, /* the load here failed */
    MESH_END_OVERLOADED,
    MESH_END_UNREACHABLE, /* of tries: the peer or the runtime is out of reach */
    MESH_END_NOT_FOUND,   /* no such model or vmodel; of a try: the peer no longer has its record */
    MESH_END_FAILED,      /* of calls: every candidate was tried */
    MESH_END_UNAVAILABLE, /* of calls: the registry has not been read or cannot be written */
    MESH_END_DEADLINE,    /* of calls */
    MESH_END_FULL,        /* of calls at their entry: no node had room before the deadline (R14) */
};
enum { MESH_ENDS = MESH_END_FULL + 1 };

enum mesh_balance { MESH_BALANCE_NONE, MESH_BALANCE_CALLER };

/* The reason for a load: the queue's classes, best first (Q1). */
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

/* Texts that an order does not use, or that its caller left out or empty, are NULL. */
struct mesh_order {
    uint32_t order; /* the edge's number, below orders_max, not in use */
    enum mesh_order_kind kind;
    int64_t deadline_ms; /* on the clock of now_ms */
    const char *model;   /* SET_VMODEL: the target */
    const char *type;    /* REGISTER; SET_VMODEL: NULL if the target must be registered already */
    const char *path;
    const char *key;
    const char *vmodel;
    const char *owner;
    const char *expected; /* SET_VMODEL: the target it must have now */
    int64_t used_ms;      /* mesh time; 0: by the rules (O2, O5) */
    bool load_now;        /* REGISTER, SET_VMODEL */
    bool sync;            /* waits for the load or transition it started */
    bool update_only;
    bool auto_delete;
    bool force;
    bool bounded; /* SET_VMODEL: the target gets `bounds`; otherwise it keeps those it has */
    struct mesh_bounds bounds;
};

enum mesh_outcome {
    MESH_OUTCOME_OK,
    MESH_OUTCOME_INVALID,   /* an id or the type is missing, or longer than MESH_ID_BYTES_MAX */
    MESH_OUTCOME_NO_MODEL,  /* ENSURE_LOADED; SET_VMODEL: no such target, and no type to register it
                               with */
    MESH_OUTCOME_NO_VMODEL, /* SET_VMODEL: update_only, or a target is expected */
    MESH_OUTCOME_DIFFERS,   /* the model exists with another type, path or key */
    MESH_OUTCOME_REFERENCED,  /* UNREGISTER: a vmodel refers to the model */
    MESH_OUTCOME_OTHER_OWNER, /* the owner: reply.vmodel.owner */
    MESH_OUTCOME_UNEXPECTED,  /* the current target: reply.vmodel.target */
    MESH_OUTCOME_FULL,        /* models_max or vmodels_max */
    MESH_OUTCOME_UNAVAILABLE, /* the registry has not been read or cannot be written */
    MESH_OUTCOME_DEADLINE,
};

enum mesh_model_state {
    MESH_MODEL_NOT_FOUND,
    MESH_MODEL_NOT_LOADED,
    MESH_MODEL_LOADING,
    MESH_MODEL_LOADED,
    MESH_MODEL_FAILED,
};

/* The relevant part of the record: living copies and fresh failures, latest first. */
struct mesh_status {
    enum mesh_model_state state;
    const struct mesh_place *places;
    uint32_t place_count;
    const char *error; /* why no node loads it, besides the places' reasons; NULL: none */
    struct mesh_bounds bounds;
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
    MESH_RUNTIME_RESTS, /* R14: it is away, or will be, until a model needs it; or not any more */
    MESH_SESSION,       /* creation revision of this node's instance key; 0: the lease is lost */
    MESH_WHOLE,         /* the mirror is complete up to a revision */
    /* W1: etcd was emptied, restored or replaced, as its client reports (a missing key alone also
     * follows a lost lease). Comes instead of deletions and before the records that etcd has;
     * revisions restart. A SESSION follows when this node's key is back. */
    MESH_EMPTIED,
    MESH_MODEL_PUT,
    MESH_MODEL_GONE,
    MESH_VMODEL_PUT,
    MESH_VMODEL_GONE,
    MESH_INSTANCE_PUT,
    MESH_INSTANCE_GONE,
    MESH_INSTANCE_FIGURES, /* from a reply */
    MESH_UNREACHABLE,      /* an ENSURE could not be sent to an instance */
    MESH_TXN_ENDED,        /* LOST: the current records came before it */
    MESH_CALL,
    MESH_CALL_CANCELLED, /* if it is served here, TRY_ENDED follows when the runtime releases it */
    MESH_TRY_ENDED,
    MESH_ORDER,
    MESH_ORDER_CANCELLED,
    MESH_ENSURE,
    MESH_SIZE_PREDICTED,
    MESH_LOAD_ENDED,
    MESH_SIZE_MEASURED, /* of a model loaded without a size; may come late or never */
    MESH_UNLOAD_ENDED,
    MESH_TYPES,
    MESH_RATE,
    MESH_USED, /* calls served without a MESH_CALL; not for models with a concurrency limit */
    MESH_LEADER,
    MESH_DRAIN,
};

enum mesh_txn_end { MESH_TXN_OK, MESH_TXN_LOST, MESH_TXN_UNKNOWN };
enum mesh_load_end { MESH_LOAD_OK, MESH_LOAD_BROKE, MESH_LOAD_NOT_ATTEMPTED };
enum mesh_where { MESH_HERE, MESH_ANYWHERE };

struct mesh_type_rule {
    const char *type; /* "_default": types that are not named */
    const char *const *required;
    uint32_t required_count;
    const char *const *preferred;
    uint32_t preferred_count;
};

/* The capacity of a runtime: one pool's part of this node. */
struct mesh_capacity {
    uint64_t capacity_bytes;
    uint64_t default_bytes; /* of a model without known size */
    uint32_t loaders;
    int64_t load_timeout_ms;
    uint32_t pool;
};

struct mesh_ensure {
    const char *instance; /* DO_ENSURE: the target */
    const char *model;
    int64_t used_ms; /* mesh time; 0: now */
    enum mesh_class class;
    enum mesh_where where; /* ENSURE */
    uint32_t target;       /* total copies wanted; 0 means 1 */
    uint64_t size_bytes;   /* 0: unknown */
};

struct mesh_used {
    const char *model;
    uint32_t count;
    int64_t used_ms;  /* mesh time of the last one; 0: now */
    uint64_t took_us; /* runtime's time of all of them; 0: not measured */
};

struct mesh_event {
    enum mesh_event_kind kind;
    int64_t now_ms;
    int64_t wall_ms;
    union {
        struct mesh_capacity runtime;
        struct {
            uint32_t pool;
        } lost; /* RUNTIME_LOST */
        struct {
            uint32_t pool;
            bool rests;
        } rest; /* RUNTIME_RESTS */
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
            int64_t start_ms; /* of the reporting process */
            struct mesh_figures figures;
            const char *model; /* of whose pool they are (K6); NULL: unknown */
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
            const char *vmodel; /* V7: the call's vmodel, `model` is unset; NULL: none */
            enum mesh_hop hop;
            enum mesh_balance balance;
            bool non_retryable;       /* at the entry: a try must not be repeated (R15) */
            int64_t deadline_ms;      /* on the clock of now_ms */
            uint64_t create_revision; /* of the sender's record; 0 at the entry */
            const struct mesh_tried *tried;
            uint32_t tried_count;
        } call;                  /* CALL; CALL_CANCELLED: only `call` */
        struct mesh_order order; /* ORDER; ORDER_CANCELLED: only `order` */
        struct {
            uint32_t call;
            uint32_t number; /* from DO_SERVE or DO_FORWARD */
            enum mesh_end end;
            bool answered;    /* with any end, the caller has its answer and the call is over */
            bool vanished;    /* served here: the runtime does not know the model */
            bool reported;    /* the copy's runtime refused the call in words for the caller */
            uint64_t took_us; /* served here: runtime's time (S5); 0: not measured */
        } tried;
        struct mesh_ensure ensure;
        struct {
            uint64_t ticket; /* from DO_SIZE, DO_LOAD or DO_UNLOAD */
            uint64_t size_bytes;
            enum mesh_load_end end;
            const char *reason;
            uint32_t max_concurrency; /* LOAD_ENDED: concurrent calls (S6); 0: no limit */
            bool freed;               /* UNLOAD_ENDED: false: the runtime refused */
        } loaded;
        struct {
            const struct mesh_type_rule *rules;
            uint32_t rule_count;
        } types;
        struct {
            uint32_t for_more; /* S3, as in the configuration; 0: 2,000 */
        } rate;
        struct mesh_used used;
        struct {
            bool is_leader;
        } leader;
    };
};

/* ---- actions ---- */

enum mesh_action_kind {
    MESH_DO_TXN,
    MESH_DO_SERVE,   /* the call, with the model loaded here */
    MESH_DO_FORWARD, /* the call, to an instance, as a hop */
    MESH_DO_ANSWER,  /* the call is over */
    MESH_DO_REPLY,   /* the order is over */
    MESH_DO_ENSURE,  /* to an instance, with MESH_HERE */
    MESH_DO_SIZE,    /* predict the size; the default is a valid answer */
    MESH_DO_LOAD,
    MESH_DO_UNLOAD,
    MESH_DO_OPEN,    /* the loaded model for calls that bypass the core */
    MESH_DO_CLOSE,   /* it: calls that come from now on are not for this copy */
    MESH_DO_DRAINED, /* nothing is left that a drain waits for (D5); once */
};

enum mesh_verb { MESH_VERB_PUT, MESH_VERB_DELETE, MESH_VERB_COMPARE };
enum mesh_record { MESH_RECORD_MODEL, MESH_RECORD_VMODEL };

/* One record of a transaction. The edge adds the fields that the core does not know, from the
 * compared record. Only the id is set unless the verb is PUT. */
struct mesh_write {
    enum mesh_verb verb;
    enum mesh_record record;
    uint64_t compare; /* the record's revision; 0: absent */
    union {
        struct mesh_model model;
        struct mesh_vmodel vmodel;
    };
};

/* A transaction under T1: all compares hold, or nothing is written. No record occurs twice. */
struct mesh_txn {
    uint64_t txn;
    uint64_t session;   /* creation revision of this node's instance key, compared */
    const char *absent; /* an instance whose key must be absent; NULL: none */
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
            uint32_t pool;        /* SERVE: the pool that holds the model */
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
            uint32_t pool;    /* the model's pool if it is known, otherwise the first */
        } answer;
        struct {
            uint32_t order;
            enum mesh_outcome outcome;
            struct mesh_status model;         /* of orders that name only a model */
            struct mesh_vmodel_status vmodel; /* of orders that name a vmodel */
        } reply;
        struct mesh_ensure ensure;
        struct {
            uint64_t ticket;
            const char *model;
            const char *type; /* this and the next two: NULL if the record is gone */
            const char *path;
            const char *key;
            uint32_t pool;     /* the model's pool */
            int64_t queued_ms; /* LOAD: time spent QUEUED */
            bool evicted;      /* UNLOAD: evicted to make room, */
            int64_t unused_ms; /* after this long without use */
        } load;                /* SIZE, LOAD, UNLOAD, OPEN, CLOSE */
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

/* V7: the model that a call for the vmodel goes to; NULL: none. */
const char *mesh_resolve(const struct mesh *mesh, const char *vmodel);

/* This node's figures, as in its record and on replies. Without a runtime there is no room. */
struct mesh_figures mesh_figures(struct mesh *mesh);
/* Return the figures of one of several pools (K6), by its number or by a model; for an unknown
 * model those of all pools. */
struct mesh_figures mesh_pool_figures(struct mesh *mesh, uint32_t pool);
struct mesh_figures mesh_figures_for(struct mesh *mesh, const char *model);

/* The number of keys in the mirror. */
struct mesh_population {
    uint32_t models;
    uint32_t vmodels;
    uint32_t instances;
};
struct mesh_population mesh_population(const struct mesh *mesh);

/* Returns whether the registry has a model of a type that requires labels, and no others than these
 * (comma-separated); or of a type without constraint that the pool takes. O(types). */
bool mesh_is_needed(const struct mesh *mesh, uint32_t pool, const char *labels);

/* Totals for people, kept up to date with each change; reading them is O(1). */
struct mesh_sums {
    uint64_t capacity_units; /* usable: without the next two */
    uint64_t reserve_units;
    uint64_t lost_units; /* failed unloads */
    uint64_t resident_units;
    uint32_t loaded;
    uint32_t loading;
    uint32_t queued;
    uint32_t models_held;   /* models of the registry with a place that is not a failure */
    uint32_t models_failed; /* those with a failure, fresh or not */
    uint32_t vmodels_moving;
    uint64_t transitions; /* completed moves of vmodels that the mirror has shown */
};
struct mesh_sums mesh_sums(const struct mesh *mesh);

/*
 * Shows at most `count` instances, starting at `from` (0: the first), in no particular order.
 * Returns where to continue, 0 at the end. Those that come or go between two pages may be missed.
 * Texts live until `visit` returns; texts of the last step's actions become invalid.
 */
uint32_t mesh_visit_instances(struct mesh *mesh, uint32_t from, uint32_t count,
                              void (*visit)(void *context, const struct mesh_instance *instance),
                              void *context);

/* A model for display: its record but for the places, its status (O4), and the state of this node's
 * copy. */
struct mesh_sight {
    struct mesh_model model;
    struct mesh_status status;
    enum mesh_state here;
    uint32_t pool; /* of this node's copy, if there is one */
};

/* Like mesh_visit_instances(), for models and vmodels: of at most `count` names examined, those
 * that begin with `prefix` are shown, so the time is bounded however few match. */
uint32_t mesh_see_models(struct mesh *mesh, uint32_t from, uint32_t count, const char *prefix,
                         void (*see)(void *context, const struct mesh_sight *sight), void *context);
uint32_t mesh_see_vmodels(struct mesh *mesh, uint32_t from, uint32_t count, const char *prefix,
                          void (*see)(void *context, const char *id,
                                      const struct mesh_vmodel_status *status),
                          void *context);
/* The models that this node has or is about to have; only the id if the record is gone. */
uint32_t mesh_see_copies(struct mesh *mesh, uint32_t from, uint32_t count,
                         void (*see)(void *context, const struct mesh_sight *sight), void *context);
/* Returns false if there is no such model. */
bool mesh_see_model(struct mesh *mesh, const char *id,
                    void (*see)(void *context, const struct mesh_sight *sight), void *context);
/* The same; without a copy, its status has the error that a call would get now. O(instances). */
bool mesh_explain_model(struct mesh *mesh, const char *id,
                        void (*see)(void *context, const struct mesh_sight *sight), void *context);

/* CHECKs that states, lists, sums and references agree. Visits everything: for tests. */
void mesh_check(const struct mesh *mesh);
