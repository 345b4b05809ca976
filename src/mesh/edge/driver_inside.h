/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that the driver's files share. Fields of `struct driver` are under the lock, except
 * those of the first part, which do not change, and those of the loop thread. A function here that
 * is said to be locked is called with the lock, and does not let go of it.
 */
#pragma once

#include <pthread.h>

#include "base/clock.h"
#include "mesh/edge/book.h"
#include "mesh/edge/driver.h"
#include "mesh/edge/extras.h"
#include "mesh/edge/publish.h"
#include "mesh/edge/seats.h"
#include "mesh/store/store.h"

struct etcd_timer;
struct wake;

/* Lines of one kind about what goes on are so long apart. */
#define DRIVER_QUIET_NS (10 * NS_PER_S)

/* A ring with its head in the owner: something can leave it without knowing where it is. */
struct link {
    struct link *next;
    struct link *previous;
};

static inline void
link_init(struct link *head)
{
    head->next = head->previous = head;
}

static inline void
link_add_last(struct link *head, struct link *link)
{
    link->next = head;
    link->previous = head->previous;
    head->previous->next = link;
    head->previous = link;
}

static inline void
link_remove(struct link *link)
{
    link->next->previous = link->previous;
    link->previous->next = link->next;
}

/* Something for the loop thread. `run` is called there once, without the lock, and owns it. If the
 * driver ends before, `drop` is, if it is not NULL. */
struct work {
    struct work *next;
    void (*run)(struct driver *driver, struct work *work);
    void (*drop)(struct work *work);
};

enum { DRIVER_STRANGERS_MAX = 32, DRIVER_UNREADABLE_MAX = 1024 };

enum call_state { CALL_OVER, CALL_WAITING, CALL_SERVED, CALL_FORWARDED, CALL_LEFT };

/* A try that ended while the core's actions were carried out: it is told the core after them. */
struct ended {
    uint32_t call;
    uint32_t number;
    struct driver_end end;
};

enum load_kind { LOAD_SIZE, LOAD_LOAD, LOAD_UNLOAD, LOAD_KINDS };

struct driver {
    pthread_mutex_t lock;
    struct driver_options options; /* its texts are in `texts` */
    char *texts;
    struct wake *wake;
    struct etcd_timer *timer;
    int64_t start_ms; /* of the process, in mesh time as far as that was known (driver_self.c) */
    int64_t began_ms; /* the same, by the monotonic clock */

    /* The loop thread's. */
    struct store *store;                   /* NULL: not started, or closed */
    struct publish said;                   /* in this node's record */
    int64_t said_ns;                       /* when; 0: nothing yet */
    int64_t trouble_ns;                    /* when the store's was logged last */
    struct error trouble;                  /* the store's last */
    int64_t refused_ns;                    /* the same of a record that cannot be written */
    bool works;                            /* driver_work_run is under way */
    struct book book;                      /* where instances are */
    char *strangers[DRIVER_STRANGERS_MAX]; /* settings that nobody here knows, once logged */
    uint32_t stranger_count;

    /* Under the lock. */
    struct mesh *mesh;
    uint64_t steps;
    struct seats calls;
    struct seats orders;
    struct ended *ended;
    uint32_t ended_count;
    uint32_t ended_capacity;
    struct work *work_first;
    struct work **work_last;
    bool called; /* the loop thread, for this work */
    struct extras extras;
    struct extras unreadable;      /* records that are, and why: those of the first
                                    * DRIVER_UNREADABLE_MAX */
    struct link loads[LOAD_KINDS]; /* by deadline, as each kind has one time-out */
    struct link owing;             /* given up, or to be measured: an answer comes still */
    struct link txns;              /* that the store has */
    struct driver_capacity capacity[MESH_POOLS_MAX];
    struct driver_counts counts;
    uint64_t session;
    uint64_t full_below_units; /* P3, of records that do not say it */
    uint64_t revision;         /* that on_whole said last */
    int64_t heard_ms;          /* wall clock: the store's last word */
    int64_t bad_ns;            /* when a bad record was logged last */
    uint64_t bad_unsaid;
    int64_t full_ns;              /* when the store last had no space for a write; 0: never */
    struct error full;            /* what it said then */
    int64_t clearance_end_ns;     /* C1 */
    uint32_t clearance_failures;  /* C2 */
    bool member;                  /* a runtime was ready once: this node has a record */
    bool runtime[MESH_POOLS_MAX]; /* is ready */
    bool was_ready[MESH_POOLS_MAX];
    bool whole;
    bool leads;
    bool draining;
    bool drained;
    bool refuses; /* new calls */
    bool closed;
};

/* ---- driver_step.c ---- */

void driver_lock(struct driver *driver);
/* Calls the loop thread, if there is new work for it. */
void driver_unlock(struct driver *driver);
/* The same on the loop thread: does the work. */
void driver_unlock_and_work(struct driver *driver);

/* Locked. Steps, carries out, and steps again for what that ended. Times are filled in. */
void driver_step(struct driver *driver, struct mesh_event event);

/* Locked. */
void driver_measure(struct driver *driver, enum driver_measure measure, uint64_t value);

int64_t driver_wall_ms(void);
int64_t driver_deadline_ms(int64_t deadline_ns);

/* ---- driver.c: locked ---- */

static inline uint32_t
driver_pools(const struct driver *driver)
{
    return driver->options.pool_of == NULL ? 1 : MESH_POOLS_MAX;
}

/* ---- driver_work.c ---- */

/* Locked. */
void driver_work_add(struct driver *driver, struct work *work);
/* Loop thread, without the lock. */
void driver_work_run(struct driver *driver);
void driver_work_drop(struct driver *driver);

/* Locked: the actions that are the loop thread's. */
void driver_work_on_ensure(struct driver *driver, const struct mesh_action *action);
void driver_work_on_drained(struct driver *driver);
void driver_work_publish(struct driver *driver);

/* ---- driver_call.c, driver_order.c, driver_load.c, driver_txn.c: locked ---- */

void driver_call_do_serve(struct driver *driver, const struct mesh_action *action);
void driver_call_do_forward(struct driver *driver, const struct mesh_action *action);
/* The event that tells the core of it. */
struct mesh_event driver_call_end(struct driver *driver, const struct ended *ended);
void driver_call_do_answer(struct driver *driver, const struct mesh_action *action);
void driver_call_close_all(struct driver *driver);

/* It waits, and is answered so; figures are filled in. */
void driver_call_refuse(struct driver *driver, struct driver_call *call, struct driver_answer made);

void driver_order_do_reply(struct driver *driver, const struct mesh_action *action);
void driver_order_close_all(struct driver *driver);
void driver_order_refuse(struct driver *driver, struct driver_order *order,
                         const struct error *error);

void driver_load_do(struct driver *driver, const struct mesh_action *action, enum load_kind kind);
void driver_load_tick(struct driver *driver);
void driver_load_drop_all(struct driver *driver);

void driver_txn_do(struct driver *driver, const struct mesh_txn *txn);
void driver_txn_drop_all(struct driver *driver);

/* ---- driver_refuse.c: locked ---- */

/* A record could not be read, or (`text` "") was. */
void driver_refuse_record(struct driver *driver, enum store_table table, const char *id,
                          uint64_t revision, const char *text);
/* A transaction that compared these has ended without success: those who wait for it, and would
 * wait for nothing, are answered. `full`: the store has no space, in its words; NULL: it has. */
void driver_refuse_txn(struct driver *driver, const struct store_compare *compares, size_t count,
                       const struct error *full);
/* A call waits for a copy. It is answered, if the store would refuse the claim. */
void driver_refuse_call(struct driver *driver, struct driver_call *call);
/* The same of an order that waits for a load. */
void driver_refuse_order(struct driver *driver, struct driver_order *order);
/* The store takes no writes; `said` by it, or by a node that asked it. */
void driver_refuse_from_now(struct driver *driver, const char *said);

/* ---- driver_clearance.c: locked ---- */

/* A load ended so; before the core hears of it. */
void driver_clearance_failed(struct driver *driver, const char *model, const char *reason);
bool driver_is_clear(const struct driver *driver);

/* ---- driver_self.c: this node's record. Loop thread, without the lock ---- */

/* True: the start that this node's record says has changed. */
bool driver_self_correct(struct driver *driver);
enum self_when { SELF_IF_DUE, SELF_NOW };
void driver_self_publish(struct driver *driver, enum self_when when);
