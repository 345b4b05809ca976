/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The edge around the mesh core of one node: it brings the core its events, keeps the mirror of the
 * store's records, and carries out what the core decides, through the interfaces that it is given.
 * It decides nothing. DESIGN.md has the threads, who dies, and the limits.
 *
 * Threads. One lock around the core. Whoever has an event takes it, steps, and carries out what
 * belongs to calls, in order, on the spot. What belongs to the loop thread (the one that turns the
 * event base: store, loads, ensures) is queued for it. Each function below says where it may be
 * called; "any thread" excludes those callbacks that are said to be UNDER THE LOCK. These must
 * return soon, may take locks of their own, and never call the driver; so whoever calls the driver
 * holds no lock that one of them takes.
 *
 * Ownership. A `struct driver_call` or `driver_order` is its owner's, usually a part of something
 * larger; it must stay from driver_call until it is over: see there. Texts given to functions are
 * copied or read before they return; texts given to callbacks live until they return.
 *
 * Clocks: deadline_ns is clock_now_ns()'s; *_ms of records and figures are mesh time (skew.h).
 *
 * Everything that is begun through an interface ends in exactly one event, here by promise of who
 * implements it; for loads, unloads and sizes the driver watches the time as well.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"
#include "mesh/record/record.h"

struct book_entry; /* book.h */
struct driver;
struct driver_call;
struct driver_load;
struct driver_order;
struct event_base; /* libevent's */
struct peer_request;
struct skew;
struct store;
struct store_events;

/* Load figures of a node, as replies carry them, and the start of the process that they are of. */
struct driver_figures {
    struct mesh_figures figures;
    int64_t start_ms;
};

/* ---- calls ---- */

/* One try of a call, as the core decided it. */
struct driver_attempt {
    uint32_t number;          /* to be said when it has ended */
    const char *model;        /* what is asked for, vmodels resolved */
    uint64_t create_revision; /* of its record */
    const char *instance;     /* forward: to whom */
    enum mesh_hop hop;        /* forward: as what */
    int64_t deadline_ns;
    const struct mesh_tried *tried; /* forward: travel with it */
    uint32_t tried_count;
    uint32_t pool; /* serve: that has the model */
};

/* How a try ended. MESH_END_OK: the caller has its answer, whatever that says; the call is over. */
struct driver_end {
    enum mesh_end end;
    bool is_answered; /* of another end: so it is all the same, as the try may not be repeated */
    bool vanished;    /* served here: the runtime does not know the model */
    uint64_t took_us; /* served here: by the runtime; 0: not measured */
    /* Not OK: what the runtime said, or the other node, and the status that a caller is told it
     * with if nobody else can serve it; UNAVAILABLE: the store of all nodes takes no writes. Until
     * driver_try_ended has returned; NULL: nothing. */
    const char *said;
    enum status said_status;
    const struct driver_figures *figures; /* forwarded: of who answered; NULL: none came */
    const char *instance;                 /* whose figures they are */
};

static inline bool
driver_end_is_last(const struct driver_end *end)
{
    return end->end == MESH_END_OK || end->is_answered;
}

/* UNDER_WAY: driver_try_ended will be called. ENDED: it ended at once, `*end` is filled in. */
enum driver_begun { DRIVER_UNDER_WAY, DRIVER_ENDED };

/* The call is over without an answer from a runtime. */
struct driver_answer {
    enum mesh_end end;
    const char *text;              /* for people; NULL: none */
    struct driver_figures figures; /* this node's, for a peer's reply */
    uint32_t pool;                 /* that the model belongs to, if that is known; else 0 */
    bool store_refuses;            /* UNAVAILABLE: it takes no writes, whichever node asks it */
};

/* The owner's side of a call. Called UNDER THE LOCK, on any thread. */
struct driver_call_type {
    /* The model is loaded here. */
    enum driver_begun (*serve)(struct driver_call *call, const struct driver_attempt *attempt,
                               struct driver_end *end);
    /* The last that is heard of it: the driver does not touch the call any more. */
    void (*answer)(struct driver_call *call, const struct driver_answer *answer);
};

enum driver_name { DRIVER_NAME_MODEL, DRIVER_NAME_VMODEL };

struct driver_call {
    /* The owner's, set before driver_call and left alone until it is over. */
    const struct driver_call_type *type;
    struct peer_request *request; /* what is passed on: peers.h; the driver does not look at it */
    const char *model;            /* or the vmodel: */
    enum driver_name name;
    enum mesh_hop
        hop; /* ENTRY, or as the peer's frame says; then the revision and the tried, too */
    enum mesh_balance balance;
    bool is_once; /* at the entry: a try of it may not be repeated */
    uint64_t create_revision;
    const struct mesh_tried *tried; /* these two are read only during driver_call */
    uint32_t tried_count;
    int64_t deadline_ns; /* TIME_NEVER_NS: none */

    /* The driver's. */
    uint32_t number;
    uint32_t attempt; /* the try that is under way */
    uint8_t state;
    bool for_seat;    /* it waits for a copy that is loaded here */
    bool waited;      /* for another one, before it was served here */
    uint64_t asked;   /* the step in which the core was asked what to do with it, */
    int64_t asked_ns; /* and when */
};

/*
 * Any thread. The call begins; serve, forward or answer may be called before this returns, so it
 * may be over by then.
 *
 * It is over when answer was called; when driver_try_ended with MESH_END_OK has returned; or when
 * driver_call_cancelled has said so. Until then its memory must stay.
 */
void driver_call(struct driver *driver, struct driver_call *call);

/* Any thread. The try of that number has ended. One that is not the call's current one, or of a
 * call that is over but still in memory, is left alone. */
void driver_try_ended(struct driver *driver, struct driver_call *call, uint32_t number,
                      const struct driver_end *end);

/*
 * Any thread, while the call's memory stays: nobody waits for its answer any more. True: it is over
 * (now or before; a forwarded try was abandoned). False: it is served here, or a peer's answer is
 * just coming: it is over when driver_try_ended has returned, whatever the end; answer is not
 * called.
 */
bool driver_call_cancelled(struct driver *driver, struct driver_call *call);

/* Calls that were served here without a driver_call: not of models with a concurrency. */
struct driver_use {
    const char *model;
    uint32_t count;
    int64_t used_ms;  /* wall clock of the last; 0: now */
    uint64_t took_us; /* all of them together, by the runtime; 0: not measured */
};

/* Any thread. */
void driver_used(struct driver *driver, const struct driver_use *use);

/* Any thread: this node's, for replies. Within `answer` they are given. */
struct driver_figures driver_figures(struct driver *driver);

/* ---- peers: other nodes ---- */

struct driver_ensure {
    const char *instance; /* to whom */
    const char *model;
    int64_t used_ms;
    enum mesh_class class;
    uint32_t target;
    uint64_t size_bytes; /* 0: not known */
};

struct driver_peer {
    const char *instance;
    const char *address; /* as its record says it: "host:port"; "": it says none */
    int64_t start_ms;
};

struct driver_peers {
    void *context;
    /* UNDER THE LOCK, any thread. ENDED with MESH_END_UNREACHABLE: nobody is there. */
    enum driver_begun (*forward)(void *context, struct driver_call *call,
                                 const struct driver_attempt *attempt, struct driver_end *end);
    /* UNDER THE LOCK, any thread. The caller has gone. True: the try is given up, and the call is
     * not touched any more. False: its end is under way, on another thread: driver_try_ended
     * follows. (A lock of the peers' decides which; it is not held across calls of the driver.) */
    bool (*abandon)(void *context, struct driver_call *call, uint32_t number);
    /* Loop thread, without the lock. Sent or lost: no answer. False: nobody is there. */
    bool (*ensure)(void *context, const struct driver_ensure *ensure);
    /* Loop thread, without the lock: the address book. Not of this node. */
    void (*on_peer)(void *context, const struct driver_peer *peer);
    void (*on_peer_gone)(void *context, const char *instance);
    struct skew *skew; /* mesh time; lives longer than the driver. NULL: the wall clock */
};

/* Any thread: a peer's ensure has arrived. `instance` in it is not looked at. */
void driver_ensure(struct driver *driver, const struct driver_ensure *ensure);

/* ---- the runtimes of this node: one, or one for each of two pools (K6 of the core) ---- */

struct driver_model {
    const char *id;
    const char *type; /* this and the next: NULL for unload, if the record has gone */
    const char *path;
    const char *key;
    uint32_t pool;
};

/* Loop thread, without the lock. Each is answered once by the function below, which may be called
 * from within. */
struct driver_runtime {
    void *context;
    void (*size)(void *context, struct driver_load *load, const struct driver_model *model);
    void (*load)(void *context, struct driver_load *load, const struct driver_model *model);
    /* Also of a model whose load has not been answered in time: that is to be ended, too. */
    void (*unload)(void *context, struct driver_load *load, const struct driver_model *model);
    /* Once a second: calls driver_used for what was used since. NULL: nothing bypasses. */
    void (*harvest)(void *context, struct driver *driver);
};

struct driver_load_end {
    enum mesh_load_end end;   /* of a load, an unload (not OK: not freed, for good) */
    uint64_t size_bytes;      /* of a size or a load; 0: not known */
    uint32_t max_concurrency; /* of a load: calls at a time; 0: all that come */
    const char *reason;       /* of a load that is not OK */
    bool is_measured;         /* of a load that is OK: driver_load_measured follows */
};

/* Any thread. An answer that came after the driver has given it up is dropped; it has to come all
 * the same: the memory of `load` goes with it. */
void driver_load_ended(struct driver *driver, struct driver_load *load,
                       const struct driver_load_end *end);

/* Any thread, once, after a load that was said to be measured: the size of what it serves by now.
 * 0: nobody knows. The memory of `load` goes with it. */
void driver_load_measured(struct driver *driver, struct driver_load *load, uint64_t size_bytes);

struct driver_capacity {
    uint64_t capacity_bytes;
    uint64_t default_bytes; /* of a model of which nothing is known */
    uint32_t loaders;
    int64_t load_timeout_ms;
    uint32_t pool;
};

/* Any thread. From the first time of any pool on this node is a member: its instance is published.
 */
void driver_runtime_ready(struct driver *driver, const struct driver_capacity *capacity);
/* Any thread. All that the pool held is gone; what was asked of it is still to be answered. */
void driver_runtime_lost(struct driver *driver, uint32_t pool);

/* ---- management ---- */

/* The outcome of an order; see mesh_core.h. */
struct driver_reply {
    enum mesh_outcome outcome;        /* UNAVAILABLE if there is: */
    const struct error *refusal;      /* the store's, which is the answer; NULL: none */
    struct mesh_status model;         /* of orders that name a model alone */
    struct mesh_vmodel_status vmodel; /* of those that name a vmodel */
};

struct driver_order {
    /* The owner's, left alone until it has ended. */
    struct mesh_order order; /* its `order` and `deadline_ms` are the driver's to fill in */
    int64_t deadline_ns;     /* TIME_NEVER_NS: none */
    /* Once. UNDER THE LOCK, any thread; the driver does not touch the order any more. */
    void (*on_end)(struct driver_order *order, const struct driver_reply *reply);

    /* The driver's. */
    bool is_under_way;
};

/* Any thread; may have ended before it returns. */
void driver_order(struct driver *driver, struct driver_order *order);
/* Any thread, while its memory stays, ended or not: on_end is not called after this has returned.
 * Its changes stay. */
void driver_order_cancelled(struct driver *driver, struct driver_order *order);

/* ---- the node ---- */

/* Measurements told one by one, for histograms. */
enum driver_measure {
    DRIVER_WAIT_NS, /* of a call, until it was served here, for a copy, */
    DRIVER_SEAT_NS, /* or for one that was loaded and had as many calls as it takes */
    DRIVER_QUEUE_NS,
    DRIVER_SIZE_NS,
    DRIVER_LOAD_NS, /* this and the next two: of what went well */
    DRIVER_LOADED_BYTES,
    DRIVER_UNLOAD_NS,
    DRIVER_EVICTED_MS, /* since its last use */
    DRIVER_MEASURES,
};

struct driver_options {
    struct event_base *base;
    const char *instance; /* this node's id; 1 to 1,024 bytes, no comma */
    const char *address;  /* where peers find it: "host:port"; "" with a store of its own */
    const char *location; /* for people; "": the address's host */
    const char *zone;
    const char *labels; /* sorted, comma between */
    int64_t version;
    uint64_t seed;
    int64_t start_ms;              /* of this process, its wall clock; 0: now */
    uint32_t calls_max;            /* 0: 65,536; what is more is answered OVERLOADED at once */
    uint32_t orders_max;           /* 0: 4,096; what is more ends UNAVAILABLE at once */
    uint32_t vmodels_max;          /* 0: 1,000,000 */
    uint32_t models_max;           /* 0: 4,000,000 */
    uint32_t instances_max;        /* 0: 4,096 */
    uint32_t rate_for_more;        /* S3; 0: 2,000 a minute */
    uint32_t busy_percent;         /* S5; 0: 90 */
    uint32_t waiting_max;          /* S6; 0: 8 times what a copy takes at a time, 16 at least */
    int64_t failure_fresh_ms;      /* F3; 0: 15 minutes */
    int64_t clearance_ns;          /* C1, driver_clearance.c; 0: loads are not judged */
    int64_t tick_ms;               /* 0: 1,000 */
    struct driver_runtime runtime; /* of pool 0 */
    struct driver_runtime second;  /* of pool 1: only with */
    /* K6: as in mesh_core.h. UNDER THE LOCK, any thread. NULL: there is one pool. */
    uint32_t (*pool_of)(const void *context, const char *type, const char *key);
    const void *pool_context;
    struct driver_peers peers; /* all NULL: no other nodes */
    /* Loop thread, without the lock; NULL: nobody asks. Nothing is left that a drain waits for
     * (driver_close may be called from there, driver_destroy not): */
    void (*on_drained)(void *context);
    /* One of the dynamic settings that are not the driver's (RATE_FOR_MORE is) was written; NULL:
     * it was deleted. */
    void (*on_setting)(void *context, enum record_setting_kind kind,
                       const struct record_setting *setting);
    /* UNDER THE LOCK, any thread; NULL: nobody keeps them. */
    void (*on_measure)(void *context, enum driver_measure measure, uint64_t value);
    void *context;
};

/* Everything but the store; texts are copied. */
struct driver *driver_create(const struct driver_options *options);

/* Any thread: mesh time, for stamps; and whence it comes: NULL: it is the wall clock. */
int64_t driver_mesh_ms(const struct driver *driver);
struct skew *driver_skew(const struct driver *driver);

/* The events to open the store with: store_options.events. */
struct store_events driver_events(struct driver *driver);

/* Loop thread: the store is open. It stays the caller's, who closes it after driver_close and
 * before driver_destroy. Events that the store tells before are taken, too. */
void driver_start(struct driver *driver, struct store *store);

/* Any thread, before or after the start: type constraints (H), instead of the former. */
void driver_types(struct driver *driver, const struct mesh_type_rule *rules, uint32_t rule_count);

/* Any thread: this node takes no more loads, and moves what it has. It does not end. */
void driver_drain(struct driver *driver);
/* Any thread: new calls, of other nodes too, are UNAVAILABLE; those under way are not touched. */
void driver_refuse_calls(struct driver *driver);

/* Any thread: the registry was read as a whole, the runtime of each pool was ready once, one is,
 * and the first loads were clear (C2). */
bool driver_is_ready(struct driver *driver);

/*
 * Loop thread. The end: calls that wait are answered UNAVAILABLE, orders end so, nothing is begun
 * any more, nothing is sent to the store; new calls are answered at once. Calls that are served or
 * forwarded, and what the runtime was asked, are still to be ended by those who have them.
 */
void driver_close(struct driver *driver);

/* Loop thread, after driver_close, when no call is left and no other thread calls the driver any
 * more. Loads that the runtime will never answer go with it. NULL is left alone. */
void driver_destroy(struct driver *driver);

/* ---- looking at it: any thread ---- */

/* How calls ended. */
enum driver_way {
    DRIVER_HERE, /* answered by a copy here */
    DRIVER_WAITED,
    DRIVER_ELSEWHERE,
    DRIVER_CANCELLED,
    DRIVER_REFUSED, /* and enum mesh_end behind it: why */
    DRIVER_WAYS = DRIVER_REFUSED + MESH_ENDS,
};

struct driver_counts {
    uint64_t calls;
    uint64_t entered[DRIVER_WAYS]; /* of callers; with those of driver_used, as HERE */
    uint64_t passed[DRIVER_WAYS];  /* of other nodes */
    uint64_t tried[MESH_ENDS];     /* tries, by their ends */
    uint64_t served;               /* tries here */
    uint64_t forwarded;            /* tries elsewhere */
    uint64_t refused;              /* calls beyond calls_max */
    uint64_t loads;
    uint64_t load_failures;
    uint64_t unloads;
    uint64_t unload_failures;
    uint64_t evictions; /* of the unloads */
    uint64_t given_up;  /* loads, unloads, sizes that were not answered in time */
    uint64_t txns;
    uint64_t txns_done;
    uint64_t txns_lost;
    uint64_t txns_unknown;
    uint64_t bad_records; /* that could not be read, and were skipped */
    uint64_t sessions;    /* begun */
    uint64_t published;   /* this node's record */
    uint64_t emptied;     /* times that the store had lost everything */
    uint64_t heard;       /* records that the store told of, or their ends */
};

struct driver_view {
    struct driver_counts counts;
    struct driver_figures figures;
    struct mesh_sums sums;
    uint64_t session;  /* 0: none */
    uint64_t revision; /* up to which the registry was read */
    int64_t heard_ms;  /* wall clock, when the store last said something; 0: not yet */
    uint32_t models;
    uint32_t vmodels;
    uint32_t instances;
    uint32_t calls; /* under way */
    uint32_t orders;
    bool leads;
    bool draining;
    bool drained;
    bool whole; /* the registry was read */
};

void driver_look(struct driver *driver, struct driver_view *view);
/* The store's last failure; "": there was none. Loop thread. */
const char *driver_trouble(const struct driver *driver);

/* The state of a model on this node. */
enum mesh_state driver_state(struct driver *driver, const char *model);

/*
 * At most `count` of them from `from` on (0: the first), in no order; returns where to go on, 0: at
 * the end. What comes or goes between two pages may be missed. `visit` is UNDER THE LOCK.
 */
uint64_t driver_visit_models(struct driver *driver, uint64_t from, uint32_t count,
                             void (*visit)(void *context, const struct mesh_model *model),
                             void *context);
uint64_t driver_visit_instances(struct driver *driver, uint64_t from, uint32_t count,
                                void (*visit)(void *context, const struct mesh_instance *instance),
                                void *context);

uint64_t driver_visit_vmodels(struct driver *driver, uint64_t from, uint32_t count,
                              void (*visit)(void *context, const struct mesh_vmodel *vmodel),
                              void *context);

/*
 * The same for people, with what counts of it: mesh_core.h. `count` names at most are looked at,
 * so that the lock is held for a bounded time; those that begin with `prefix` are shown.
 */
uint64_t driver_see_models(struct driver *driver, uint64_t from, uint32_t count, const char *prefix,
                           void (*see)(void *context, const struct mesh_sight *sight),
                           void *context);
uint64_t driver_see_vmodels(struct driver *driver, uint64_t from, uint32_t count,
                            const char *prefix,
                            void (*see)(void *context, const char *id,
                                        const struct mesh_vmodel_status *status),
                            void *context);
/* Those that this node has, or is about to. */
uint64_t driver_see_copies(struct driver *driver, uint64_t from, uint32_t count,
                           void (*see)(void *context, const struct mesh_sight *sight),
                           void *context);
/* False: there is no such model. */
bool driver_see_model(struct driver *driver, const char *id,
                      void (*see)(void *context, const struct mesh_sight *sight), void *context);

/* Loop thread: what an instance's record says of where it is; NULL: there is none. Until the store
 * tells the next thing. */
const struct book_entry *driver_where(const struct driver *driver, const char *instance);
