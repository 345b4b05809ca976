/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State shared by the runner's files. Fields of `struct mesh_runner` need the lock, except the
 * constant ones at the top and those of the loop thread. Functions marked "locked" are called with
 * the lock and keep it.
 */
#pragma once

#include <pthread.h>

#include "base/clock.h"
#include "base/id_table.h"
#include "mesh/edge/book.h"
#include "mesh/edge/runner.h"
#include "mesh/edge/unknown_fields.h"
#include "mesh/edge/publish.h"
#include "mesh/store/store.h"

struct loop_timer;
struct wake;

/* Least distance between two log lines of one kind. */
#define RUNNER_QUIET_NS (10 * NS_PER_S)

/* A doubly linked ring with its head in the owner; an element can leave without knowing its list.
 */
struct runner_link {
    struct runner_link *next;
    struct runner_link *previous;
};

static inline void
link_init(struct runner_link *head)
{
    head->next = head->previous = head;
}

static inline void
link_add_last(struct runner_link *head, struct runner_link *link)
{
    link->next = head;
    link->previous = head->previous;
    head->previous->next = link;
    head->previous = link;
}

static inline void
link_remove(struct runner_link *link)
{
    link->next->previous = link->previous;
    link->previous->next = link->next;
}

/* Work for the loop thread. `run` is called there once, without the lock, and owns it. If the
 * runner ends before, `drop` is called unless it is NULL. */
struct runner_work {
    struct runner_work *next;
    void (*run)(struct mesh_runner *runner, struct runner_work *work);
    void (*drop)(struct runner_work *work);
};

enum { RUNNER_UNKNOWN_SETTINGS_MAX = 32, RUNNER_UNREADABLE_MAX = 1024 };

enum runner_call_state { CALL_OVER, CALL_WAITING, CALL_SERVED, CALL_FORWARDED, CALL_LEFT };

/* A try that ended while actions were carried out; the core is notified afterwards. */
struct ended {
    uint32_t call;
    uint32_t number;
    struct runner_end end;
};

enum load_kind { LOAD_SIZE, LOAD_LOAD, LOAD_UNLOAD, LOAD_KINDS };

/* This node's record, as last written. */
struct own_record {
    struct publish published;
    int64_t published_ns; /* 0: never */
};

/* Times of the last log lines about the store, which limit their rate. */
struct store_log {
    int64_t trouble_ns;
    int64_t batches_ns; /* a smaller limit of batches */
    int64_t refused_ns; /* a record that cannot be written */
};

/* Unknown settings, each logged once. */
struct unknown_settings {
    char *names[RUNNER_UNKNOWN_SETTINGS_MAX];
    uint32_t count;
};

struct ended_tries {
    struct ended *items;
    uint32_t count;
    uint32_t capacity;
};

struct work_queue {
    struct runner_work *first;
    struct runner_work **last;
    bool called; /* the loop thread has been woken for it */
};

/* Parts of records that this version does not read. */
struct foreign_records {
    struct unknown_fields unknown_fields;
    struct unknown_fields unreadable; /* records and why, up to RUNNER_UNREADABLE_MAX */
    int64_t logged_ns;                /* when an unreadable record was last logged */
    uint64_t unlogged;                /* since then */
};

/* The last reports of the store. */
struct store_reports {
    uint64_t session;    /* 0: none */
    uint64_t revision;   /* of the last on_whole */
    int64_t reported_ms; /* wall clock of its last report */
    int64_t full_ns;     /* when it last had no space for a write; 0: never */
    struct error full;   /* its words */
    bool whole;
    bool leads;
};

struct runtimes {
    struct mesh_capacity capacity[MESH_POOLS_MAX];
    uint64_t full_below_units; /* P3, for records that do not say it */
    bool ready[MESH_POOLS_MAX];
    bool was_ready[MESH_POOLS_MAX];
    bool member; /* one has been ready: this node has a record */
};

struct clearance {
    int64_t end_ns;    /* C1 */
    uint32_t failures; /* C2 */
};

struct mesh_runner {
    pthread_mutex_t lock;
    struct runner_options options; /* its texts are in `texts` */
    char *texts;
    char *labels; /* those that runner_labels gave; NULL: none yet */
    struct wake *wake;
    struct loop_timer *timer;
    int64_t start_ms; /* of the process, in mesh time as far as known then (runner_self.c) */
    int64_t began_ms; /* the same on the monotonic clock */

    /* The loop thread's. */
    struct store *store; /* NULL: not started, or closed */
    struct own_record own_record;
    struct store_log store_log;
    struct book book; /* where instances are */
    struct unknown_settings unknown_settings;
    bool works; /* runner_work_run is active */

    /* Guarded by the lock. */
    struct mesh *mesh;
    uint64_t steps;
    bool in_step; /* nothing that a step calls may step */
    struct id_table calls;
    struct id_table orders;
    struct ended_tries ended;
    struct work_queue work;
    struct foreign_records records;
    struct runner_link loads[LOAD_KINDS]; /* by deadline */
    struct runner_link owing;             /* given up or to be measured: an answer is still due */
    struct runner_link txns;              /* at the store */
    struct runtimes runtimes;
    struct store_reports reported;
    struct clearance clearance;
    struct runner_counts counts;
    bool draining;
    bool drained;
    bool refuses; /* new calls */
    bool closed;
};

/* ---- runner_step.c ---- */

void runner_lock(struct mesh_runner *runner);
/* Unlocks and wakes the loop thread if there is new work for it. */
void runner_unlock(struct mesh_runner *runner);
/* Like runner_unlock(), on the loop thread: does the work. */
void runner_unlock_and_work(struct mesh_runner *runner);

/* Locked. Steps, carries out the actions, and steps again for tries that ended meanwhile. Times are
 * filled in. */
void runner_step(struct mesh_runner *runner, struct mesh_event event);

/* Locked. */
void runner_measure(struct mesh_runner *runner, enum runner_measure measure, uint64_t value);

int64_t runner_wall_ms(void);
int64_t runner_deadline_ms(int64_t deadline_ns);

/* ---- runner.c: locked ---- */

static inline uint32_t
runner_pools(const struct mesh_runner *runner)
{
    return runner->options.core.pool_count == 0 ? 1 : runner->options.core.pool_count;
}

/* ---- runner_work.c ---- */

/* Locked. */
void runner_work_add(struct mesh_runner *runner, struct runner_work *work);
/* Loop thread, without the lock. */
void runner_work_run(struct mesh_runner *runner);
void runner_work_drop(struct mesh_runner *runner);

/* Locked: actions of the loop thread. */
void runner_work_on_ensure(struct mesh_runner *runner, const struct mesh_action *action);
void runner_work_on_drained(struct mesh_runner *runner);
void runner_work_publish(struct mesh_runner *runner);

/* ---- runner_call.c, runner_order.c, runner_load.c, runner_txn.c: locked ---- */

void runner_call_do_serve(struct mesh_runner *runner, const struct mesh_action *action);
void runner_call_do_forward(struct mesh_runner *runner, const struct mesh_action *action);
/* The event that reports it to the core. */
struct mesh_event runner_call_end(struct mesh_runner *runner, const struct ended *ended);
void runner_call_do_answer(struct mesh_runner *runner, const struct mesh_action *action);
void runner_call_close_all(struct mesh_runner *runner);

/* Answers a waiting call; figures are filled in. */
void runner_call_refuse(struct mesh_runner *runner, struct runner_call *call,
                        struct runner_answer made);

void runner_order_do_reply(struct mesh_runner *runner, const struct mesh_action *action);
void runner_order_close_all(struct mesh_runner *runner);
void runner_order_refuse(struct mesh_runner *runner, struct runner_order *order,
                         const struct error *error);

void runner_load_do(struct mesh_runner *runner, const struct mesh_action *action,
                    enum load_kind kind);
void runner_load_do_admit(struct mesh_runner *runner, const struct mesh_action *action,
                          enum runner_admission admission);
void runner_load_tick(struct mesh_runner *runner);
void runner_load_drop_all(struct mesh_runner *runner);

void runner_txn_do(struct mesh_runner *runner, const struct mesh_txn *txn);
void runner_txn_drop_all(struct mesh_runner *runner);

/* ---- runner_refuse.c: locked ---- */

/* A record could not be read, or with `text` "" was read. */
void runner_refuse_record(struct mesh_runner *runner, enum store_table table, const char *id,
                          uint64_t revision, const char *text);
/* A transaction with these compares ended without success: answers calls and orders that wait for
 * it. `error`: the store's; NULL: the transaction did not reach it. */
void runner_refuse_txn(struct mesh_runner *runner, const struct store_compare *compares,
                       size_t count, enum store_txn_end end, const struct error *error);
/* The store has no space for the session, without which no transaction is sent. */
void runner_refuse_writes(struct mesh_runner *runner, const char *said);
/* A call waits for a copy. Answers it if the store would refuse the claim. */
void runner_refuse_call(struct mesh_runner *runner, struct runner_call *call);
/* Like runner_refuse_call(), for an order that waits for a load. */
void runner_refuse_order(struct mesh_runner *runner, struct runner_order *order);
/* The store takes no writes, in its own words or those of a peer. */
void runner_refuse_from_now(struct mesh_runner *runner, const char *said);

/* ---- runner_clearance.c: locked ---- */

/* A load failed; called before the core gets the event. */
void runner_clearance_failed(struct mesh_runner *runner, const char *model, const char *reason);
bool runner_is_clear(const struct mesh_runner *runner);

/* ---- runner_self.c: this node's record. Loop thread, without the lock ---- */

/* Returns true if the start in this node's record has changed. */
bool runner_self_correct(struct mesh_runner *runner);
enum self_when { SELF_IF_DUE, SELF_NOW };
void runner_self_publish(struct mesh_runner *runner, enum self_when when);
