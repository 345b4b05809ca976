/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The edge around a node's mesh core: it brings the core its events, keeps the mirror of the
 * store's records, and carries out the core's actions through the interfaces that it is given. It
 * decides nothing. DESIGN.md has threads, failures and limits.
 *
 * Threads. One lock guards the core. A thread with an event takes it, steps, and carries out the
 * actions of calls in order, on the spot. Work of the loop thread (the one that runs the event
 * base: store, loads, ensures) is queued for it. Each function states where it may be called; "any
 * thread" excludes callbacks marked UNDER THE LOCK. Those must return soon, may take locks of their
 * own, and never call the runner; so a caller of the runner holds no lock that one of them takes.
 *
 * Ownership. A `struct runner_call` or `runner_order` belongs to its owner and is usually part of
 * something larger; its memory must stay from runner_call until the call is over, as described
 * there. Texts passed to functions are copied or read before they return; texts passed to callbacks
 * live until they return.
 *
 * Clocks: deadline_ns is clock_now_ns()'s; *_ms of records and figures are mesh time (skew.h).
 *
 * Everything begun through an interface ends in exactly one event, which the implementer of the
 * interface promises; for loads, unloads and sizes the runner also watches the time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"
#include "mesh/record/record.h"

struct book_entry; /* book.h */
struct mesh_runner;
struct runner_call;
struct runner_load;
struct runner_order;
struct event_base; /* libevent's */
struct peer_request;
struct skew;
struct store;
struct store_events;

/* A node's load figures, as replies carry them, and the start of its process. */
struct runner_figures {
    struct mesh_figures figures;
    int64_t start_ms;
};

/* ---- calls ---- */

/* One try of a call, as the core decided it. */
struct runner_attempt {
    uint32_t number;          /* to be returned in runner_try_ended */
    const char *model;        /* the model wanted, vmodels resolved */
    uint64_t create_revision; /* of its record */
    const char *instance;     /* forward: the target */
    enum mesh_hop hop;        /* forward: the kind of hop */
    int64_t deadline_ns;
    const struct mesh_tried *tried; /* forward: passed on with it */
    uint32_t tried_count;
    uint32_t pool; /* serve: the pool that holds the model */
};

/* The end of a try. MESH_END_OK: the caller has its answer of any kind, and the call is over.
 */
struct runner_end {
    enum mesh_end end;
    bool is_answered; /* another end, but the caller has its answer, since the try must not be
                         repeated */
    bool vanished;    /* served here: the runtime does not know the model */
    uint64_t took_us; /* served here: runtime's time; 0: not measured */
    /* Set if the end is not OK: the text of the runtime or the other node, and the status with
     * which a caller gets it if no other node can serve; UNAVAILABLE: the shared store takes no
     * writes. Valid until runner_try_ended returns; NULL: none. */
    const char *said;
    enum status said_status;
    const struct runner_figures *figures; /* forwarded: of the answering node; NULL: none came */
    const char *instance;                 /* the node of these figures */
};

static inline bool
runner_end_is_last(const struct runner_end *end)
{
    return end->end == MESH_END_OK || end->is_answered;
}

/* The runtime of the copy refused the call; the other ends are of nodes. */
static inline bool
runner_end_is_reported(const struct runner_end *end)
{
    return end->said != NULL && end->said_status == STATUS_INTERNAL;
}

/* UNDER_WAY: runner_try_ended follows. ENDED: it ended at once; `*end` is set. */
enum runner_begun { RUNNER_UNDER_WAY, RUNNER_ENDED };

/* The call is over without an answer from a runtime. */
struct runner_answer {
    enum mesh_end end;
    const char *text;              /* for people; NULL: none */
    struct runner_figures figures; /* as runner_figures, for the reply to a peer */
    uint32_t pool;                 /* the model's pool if it is known; otherwise 0 */
    bool store_refuses;            /* UNAVAILABLE: the store takes no writes from any node */
};

/* The owner's side of a call. Called UNDER THE LOCK, on any thread. */
struct runner_call_type {
    /* The model is loaded here. */
    enum runner_begun (*serve)(struct runner_call *call, const struct runner_attempt *attempt,
                               struct runner_end *end);
    /* The call is over; the runner does not touch it any more. */
    void (*answer)(struct runner_call *call, const struct runner_answer *answer);
};

enum runner_name { RUNNER_NAME_MODEL, RUNNER_NAME_VMODEL };

struct runner_call {
    /* Set by the owner before runner_call and unchanged until the call is over. */
    const struct runner_call_type *type;
    struct peer_request *request; /* payload for peers (peers.h); opaque to the runner */
    const char *model;            /* or the vmodel, by: */
    enum runner_name name;
    enum mesh_hop hop; /* ENTRY, or the hop of the peer's frame, with its revision and lists */
    enum mesh_balance balance;
    bool is_non_retryable; /* at the entry: a try must not be repeated */
    uint64_t create_revision;
    const struct mesh_tried *tried; /* these two are read only during runner_call */
    uint32_t tried_count;
    int64_t deadline_ns; /* TIME_NEVER_NS: none */

    /* The runner's. */
    uint32_t number;
    uint32_t attempt; /* the current try */
    uint8_t state;
    bool for_permit;  /* waits for a permit of a copy loaded here */
    bool waited;      /* has waited for another one before it was served here */
    uint64_t asked;   /* step in which the core was asked, */
    int64_t asked_ns; /* and when */
};

/*
 * Any thread. Begins the call; serve, forward or answer may be called before this returns, so the
 * call may already be over.
 *
 * It is over when answer is called, when runner_try_ended with MESH_END_OK returns, or when
 * runner_call_cancelled says so. Its memory must stay until then.
 */
void runner_call(struct mesh_runner *runner, struct runner_call *call);

/* Any thread. The try with that number has ended. Ignored if that is not the call's current try, or
 * if the call is over but still in memory. */
void runner_try_ended(struct mesh_runner *runner, struct runner_call *call, uint32_t number,
                      const struct runner_end *end);

/*
 * Any thread, while the call's memory stays: no one waits for its answer any more. True: the call
 * is over (now or before; a forwarded try was abandoned). False: it is served here or a peer's
 * answer is arriving; it is over when runner_try_ended returns, with any end, and answer is not
 * called.
 */
bool runner_call_cancelled(struct mesh_runner *runner, struct runner_call *call);

/* Any thread: calls served here without a runner_call; not for models with a concurrency limit. */
void runner_used(struct mesh_runner *runner, const struct mesh_used *used);

/* Any thread: this node's figures, for replies about that model. `answer` gets them anyway. */
struct runner_figures runner_figures(struct mesh_runner *runner, const char *model);

/* ---- peers: other nodes ---- */

struct runner_peer {
    const char *instance;
    const char *address; /* as in its record: "host:port"; "": none */
    int64_t start_ms;
};

struct runner_peers {
    void *context;
    /* UNDER THE LOCK, any thread. ENDED with MESH_END_UNREACHABLE: no such peer or no connection.
     */
    enum runner_begun (*forward)(void *context, struct runner_call *call,
                                 const struct runner_attempt *attempt, struct runner_end *end);
    /* UNDER THE LOCK, any thread. The caller has gone. True: the try is given up and the call is
     * not touched any more. False: its end is arriving on another thread and runner_try_ended
     * follows. (A lock of the peers' decides; it is not held across calls of the runner.) */
    bool (*abandon)(void *context, struct runner_call *call, uint32_t number);
    /* Loop thread, without the lock. Sent or lost, without an answer. False: the peer is out of
     * reach. */
    bool (*ensure)(void *context, const struct mesh_ensure *ensure);
    /* Loop thread, without the lock: the address book, without this node. */
    void (*on_peer)(void *context, const struct runner_peer *peer);
    void (*on_peer_gone)(void *context, const char *instance);
    struct skew *skew; /* mesh time; outlives the runner. NULL: the wall clock */
};

/* Any thread: a peer's ensure has arrived. Its `instance` is ignored. */
void runner_ensure(struct mesh_runner *runner, const struct mesh_ensure *ensure);

/* ---- the runtimes of this node: one, or one per pool (K6 of the core) ---- */

struct runner_model {
    const char *id;
    const char *type; /* this and the next two: NULL for unload if the record is gone */
    const char *path;
    const char *key;
    uint32_t pool;
};

/* Loop thread, without the lock. Each is answered once by the functions below, possibly from
 * within. */
enum runner_admission { RUNNER_OPEN, RUNNER_CLOSED };

struct runner_runtime {
    void *context;
    void (*size)(void *context, struct runner_load *load, const struct runner_model *model);
    void (*load)(void *context, struct runner_load *load, const struct runner_model *model);
    /* Unloads also a model whose load was not answered in time: ends that load as well. */
    void (*unload)(void *context, struct runner_load *load, const struct runner_model *model);
    /* Called once a second: reports uses since the last time through runner_used. NULL: no calls
     * bypass the runner. */
    void (*harvest)(void *context, struct mesh_runner *runner);
    /* Under the lock: whether calls that bypass the runner may enter a loaded model. A load begins
     * CLOSED. NULL as above. */
    void (*admit)(void *context, const char *model, enum runner_admission admission);
};

struct runner_load_end {
    enum mesh_load_end end;   /* of a load or unload (unload not OK: the memory is not freed) */
    uint64_t size_bytes;      /* of a size or load; 0: unknown */
    uint32_t max_concurrency; /* of a load: concurrent calls; 0: no limit */
    const char *reason;       /* of a failed load */
    bool is_measured;         /* of a successful load: runner_load_measured follows */
};

/* Any thread. Required even after the runner has given up, when the answer is dropped, because it
 * frees `load`. */
void runner_load_ended(struct mesh_runner *runner, struct runner_load *load,
                       const struct runner_load_end *end);

/* Any thread, once, after a load with is_measured: the size of the serving model; 0: unknown. Frees
 * `load`. */
void runner_load_measured(struct mesh_runner *runner, struct runner_load *load,
                          uint64_t size_bytes);

/* Any thread. With the first ready pool this node becomes a member: its instance is published. */
void runner_runtime_ready(struct mesh_runner *runner, const struct mesh_capacity *capacity);
/* Any thread. The pool's models are gone; requests under way must still be answered. */
void runner_runtime_lost(struct mesh_runner *runner, uint32_t pool);
/* Any thread. RESTS: the pool's runtime ends, and comes back when a model needs it, for which calls
 * wait meanwhile. */
enum runner_rest { RUNNER_RUNS, RUNNER_RESTS };
void runner_runtime_rests(struct mesh_runner *runner, uint32_t pool, enum runner_rest rest);
/* Any thread: mesh_is_needed. */
bool runner_is_needed(struct mesh_runner *runner, uint32_t pool, const char *labels);

/* ---- management ---- */

/* The outcome of an order; see mesh_core.h. */
struct runner_reply {
    enum mesh_outcome outcome;        /* UNAVAILABLE if there is a: */
    const struct error *refusal;      /* the store's error, which is the answer; NULL: none */
    struct mesh_status model;         /* of orders that name only a model */
    struct mesh_vmodel_status vmodel; /* of orders that name a vmodel */
};

struct runner_order {
    /* The owner's, unchanged until the order has ended. */
    struct mesh_order order; /* `order` and `deadline_ms` are filled in by the runner */
    int64_t deadline_ns;     /* TIME_NEVER_NS: none */
    /* Called once, UNDER THE LOCK, on any thread; the runner does not touch the order any more. */
    void (*on_end)(struct runner_order *order, const struct runner_reply *reply);

    /* The runner's. */
    bool is_under_way;
};

/* Any thread; the order may end before this returns. */
void runner_order(struct mesh_runner *runner, struct runner_order *order);
/* Any thread, while its memory stays, ended or not: on_end is not called after this returns. Writes
 * already made remain. */
void runner_order_cancelled(struct mesh_runner *runner, struct runner_order *order);

/* ---- the node ---- */

/* Single measurements, for histograms. */
enum runner_measure {
    RUNNER_WAIT_NS,   /* a call's wait for a copy until it was served here */
    RUNNER_PERMIT_NS, /* a call's wait for a permit of a loaded copy */
    RUNNER_QUEUE_NS,
    RUNNER_SIZE_NS,
    RUNNER_LOAD_NS, /* this and the next two: successes only */
    RUNNER_LOADED_BYTES,
    RUNNER_UNLOAD_NS,
    RUNNER_EVICTED_MS, /* time since the last use */
    RUNNER_MEASURES,
};

struct runner_options {
    struct event_base *base;
    /* `instance`: 1 to 1,024 bytes, no comma. The texts of its pools are not copied and outlive the
     * runner; `pool_name` is called UNDER THE LOCK, on any thread. 0: calls_max 65,536 (further
     * calls end OVERLOADED), orders_max 4,096 (further orders end UNAVAILABLE), vmodels_max
     * 1,000,000, models_max 4,000,000, instances_max 4,096. */
    struct mesh_config core;
    const char *address;  /* how peers reach it: "host:port"; "" for a store without peers */
    const char *location; /* for people; "": the host of the address */
    const char *zone;
    const char *labels; /* sorted, comma-separated */
    int64_t version;
    int64_t start_ms;              /* of this process, wall clock; 0: now */
    int64_t clearance_ns;          /* C1, runner_clearance.c; 0: load failures are not judged */
    int64_t tick_ms;               /* 0: 1,000 */
    struct runner_runtime runtime; /* of all pools */
    struct runner_runtime second;  /* of the last one, if it has a runtime of its own */
    bool last_is_hosted;       /* the last pool's runtime comes and goes: it is not waited for */
    struct runner_peers peers; /* all NULL: no other nodes */
    /* Loop thread, without the lock; NULL: none. Nothing is left that a drain waits for
     * (runner_close may be called from there, runner_destroy not): */
    void (*on_drained)(void *context);
    /* A dynamic setting other than the runner's own (RATE_FOR_MORE) was written; NULL: deleted. */
    void (*on_setting)(void *context, enum record_setting_kind kind,
                       const struct record_setting *setting);
    /* UNDER THE LOCK, any thread; NULL: none. */
    void (*on_measure)(void *context, enum runner_measure measure, uint64_t value);
    void *context;
};

/* Creates everything but the store; texts are copied. */
struct mesh_runner *runner_create(const struct runner_options *options);

/* Any thread: mesh time for stamps, and its source; NULL: the wall clock. */
int64_t runner_mesh_ms(const struct mesh_runner *runner);
struct skew *runner_skew(const struct mesh_runner *runner);

/* The events to open the store with: store_options.events. */
struct store_events runner_events(struct mesh_runner *runner);

/* Loop thread: the store is open. The caller keeps it and closes it after runner_close and before
 * runner_destroy. Events reported before this are accepted. */
void runner_start(struct mesh_runner *runner, struct store *store);

/* Any thread, before or after the start: replaces the type constraints (H). */
void runner_types(struct mesh_runner *runner, const struct mesh_type_rule *rules,
                  uint32_t rule_count);

/* Loop thread: replaces the node's labels (sorted, comma-separated), in its record at once. */
void runner_labels(struct mesh_runner *runner, const char *labels);

/* Any thread: this node takes no more loads and moves its models. Cannot be undone. */
void runner_drain(struct mesh_runner *runner);
/* Any thread: new calls, also of other nodes, end UNAVAILABLE; calls under way are unaffected. */
void runner_refuse_calls(struct mesh_runner *runner);

/* Any thread: the registry has been read, each pool was ready once, one is now (but a hosted one
 * may have no runtime), and the first loads were clear (C2). */
bool runner_is_ready(struct mesh_runner *runner);

/*
 * Loop thread. The end: waiting calls and orders end UNAVAILABLE, nothing new begins, nothing is
 * sent to the store, and new calls are answered at once. Calls that are served or forwarded and
 * requests to the runtime must still be ended by their owners.
 */
void runner_close(struct mesh_runner *runner);

/* Loop thread, after runner_close, when no call is left and no other thread calls the runner. Loads
 * that the runtime will never answer are freed. NULL is ignored. */
void runner_destroy(struct mesh_runner *runner);

/* ---- looking at it: any thread ---- */

/* Ways in which calls ended. */
enum runner_way {
    RUNNER_HERE, /* by a copy here */
    RUNNER_WAITED,
    RUNNER_ELSEWHERE,
    RUNNER_CANCELLED,
    RUNNER_REFUSED, /* plus enum mesh_end: the reason */
    RUNNER_WAYS = RUNNER_REFUSED + MESH_ENDS,
};

struct runner_counts {
    uint64_t calls;
    uint64_t entered[RUNNER_WAYS]; /* of callers; uses of runner_used count as HERE */
    uint64_t passed[RUNNER_WAYS];  /* of other nodes */
    uint64_t tried[MESH_ENDS];     /* tries by end */
    uint64_t served;               /* tries here */
    uint64_t forwarded;            /* tries elsewhere */
    uint64_t refused;              /* calls beyond calls_max */
    uint64_t loads;
    uint64_t load_failures;
    uint64_t unloads;
    uint64_t unload_failures;
    uint64_t evictions; /* among the unloads */
    uint64_t given_up;  /* loads, unloads and sizes not answered in time */
    uint64_t txns;
    uint64_t txns_done;
    uint64_t txns_lost;
    uint64_t txns_unknown;
    uint64_t bad_records;   /* unreadable, skipped */
    uint64_t sessions;      /* begun */
    uint64_t published;     /* writes of this node's record */
    uint64_t emptied;       /* times that the store had lost everything */
    uint64_t store_records; /* records and deletions that the store reported */
};

struct runner_view {
    struct runner_counts counts;
    struct runner_figures figures;
    struct mesh_sums sums;
    uint64_t session;    /* 0: none */
    uint64_t revision;   /* up to which the registry has been read */
    int64_t reported_ms; /* wall clock of the store's last report; 0: none yet */
    uint32_t models;
    uint32_t vmodels;
    uint32_t instances;
    uint32_t calls; /* under way */
    uint32_t orders;
    bool leads;
    bool draining;
    bool drained;
    bool whole; /* the registry has been read */
};

void runner_look(struct mesh_runner *runner, struct runner_view *view);

/*
 * Shows at most `count` instances, starting at `from` (0: the first), in no particular order.
 * Returns where to continue, 0 at the end. Records that come or go between two pages may be missed.
 * `visit` runs UNDER THE LOCK.
 */
uint64_t runner_visit_instances(struct mesh_runner *runner, uint64_t from, uint32_t count,
                                void (*visit)(void *context, const struct mesh_instance *instance),
                                void *context);

/*
 * Like runner_visit_instances(), for models and vmodels, with status (mesh_core.h). At most `count`
 * names are examined, so that the lock is held for a bounded time; those that begin with `prefix`
 * are shown.
 */
uint64_t runner_see_models(struct mesh_runner *runner, uint64_t from, uint32_t count,
                           const char *prefix,
                           void (*see)(void *context, const struct mesh_sight *sight),
                           void *context);
uint64_t runner_see_vmodels(struct mesh_runner *runner, uint64_t from, uint32_t count,
                            const char *prefix,
                            void (*see)(void *context, const char *id,
                                        const struct mesh_vmodel_status *status),
                            void *context);
/* The models that this node has or is about to have. */
uint64_t runner_see_copies(struct mesh_runner *runner, uint64_t from, uint32_t count,
                           void (*see)(void *context, const struct mesh_sight *sight),
                           void *context);
/* Returns false if there is no such model. */
bool runner_see_model(struct mesh_runner *runner, const char *id,
                      void (*see)(void *context, const struct mesh_sight *sight), void *context);

/* Loop thread: location of an instance by its record; NULL: none. Valid until the store's next
 * event. */
const struct book_entry *runner_where(const struct mesh_runner *runner, const char *instance);
