/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the mesh keeps what it must not forget: records under a table and an id, each with two
 * revisions, that of its creation and that of its last change. Three kinds behind one interface:
 * in memory, in a file that survives everything but the disk, in etcd. Values are bytes that mean
 * nothing here. DESIGN.md has the rules of each kind.
 *
 * One writer of all decisions: a transaction says what it was computed from (revisions), and
 * happens as a whole, or not at all. This node's instance is a record, too, which lives as long as
 * its session; every transaction is of a session, and comes to nothing when that has ended.
 *
 * Order of events. Those of one key may come twice, and an older one after a newer: the larger
 * revision counts. Only between on_emptied and the next on_whole do revisions begin anew.
 *
 * Threads: none; all of it on the thread that turns the event base. Callbacks come from there,
 * never from within a function of this header; they may call anything here but store_close. What
 * they are shown is alive until they return. What is given to a function is copied.
 *
 * Out of memory ends the process.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

struct event_base; /* libevent's */
struct etcd;       /* libetcd's client */
struct store;

enum {
    STORE_ID_BYTES_MAX = 1024, /* longer ones are refused, and not shown when they are there */
    STORE_VALUE_BYTES_MAX = 1 << 20,
    STORE_COMPARES_MAX = 32, /* of one transaction */
    STORE_CHANGES_MAX = 32,
};

enum store_table {
    STORE_MODELS,
    STORE_VMODELS,
    STORE_INSTANCES,
    STORE_CONFIG, /* dynamic configuration: plain texts */
    STORE_TABLES,
};

struct store_record {
    enum store_table table;
    const char *id; /* any bytes but NUL */
    const void *value;
    size_t value_bytes;
    uint64_t create_revision;
    uint64_t revision;
};

enum store_leadership { STORE_FOLLOWS, STORE_LEADS };

struct store_events {
    void (*on_put)(void *context, const struct store_record *record);
    /* Not there as of `revision`, be it that it was deleted then or earlier. */
    void (*on_gone)(void *context, enum store_table table, const char *id, uint64_t revision);
    /* Everything up to the revision has been told, of all tables. Before the first, records of
     * which nothing was told may exist. Again after each trouble, and as revisions go on. */
    void (*on_whole)(void *context, uint64_t revision);
    /* The revision at which this node's instance was created: transactions are of this session
     * from now on. 0: the session has ended. Until then what is loaded is served, nothing more. A
     * new one is sought. */
    void (*on_session)(void *context, uint64_t session);
    /* Of all nodes one leads, or for a moment two. Never told without a session. */
    void (*on_leader)(void *context, enum store_leadership leadership);
    /* The store came back without what it held, or with something older. All revisions told so
     * far count for nothing, and the session has ended before. What is there follows as puts, then
     * on_whole; of what is not put by then nothing more is told: it was lost, nobody deleted it. */
    void (*on_emptied)(void *context);
    /* For people: it does not get on for now, and tries on. One line, what, where and what to do.
     */
    void (*on_trouble)(void *context, const struct error *error);
    void *context;
};

/* ---- opening ---- */

struct store_options {
    const char *instance;              /* this node's id */
    const struct store_events *events; /* copied */
};

/* Forgotten with the process. */
enum status store_open_memory(struct event_base *base, const struct store_options *options,
                              struct store **store, struct error *error) WARN_UNUSED;

/* UNAVAILABLE: another process has it open. DATA_LOSS: it is damaged other than by a sudden end;
 * the text says where and what to do. */
enum status store_open_file(struct event_base *base, const struct store_options *options,
                            const char *path, struct store **store,
                            struct error *error) WARN_UNUSED;

struct store_etcd_options {
    struct etcd *etcd;  /* stays the caller's, who closes the store first */
    const char *prefix; /* of all keys, such as "/root/mm/service/"; ends in "/" */
    int64_t lease_s;    /* 0: 25 */
    int64_t timeout_ns; /* of a transaction; 0: 3.5 s */
    int64_t page_keys;  /* of listings; 0: 4,096 */
};

enum status store_open_etcd(struct event_base *base, const struct store_options *options,
                            const struct store_etcd_options *etcd, struct store **store,
                            struct error *error) WARN_UNUSED;

/* No callback comes any more. The instance goes with its lease; who wants it gone at once leaves
 * before. Transactions that are out may happen. NULL is left alone. */
void store_close(struct store *store);

/* ---- this node's instance ---- */

/* The record's value, from now on. The first call begins to seek a session; later ones change the
 * record, the last of several at once. While there is no session the value is kept for it. */
void store_set_instance(struct store *store, const void *value, size_t value_bytes);

/* Ends the session and does not seek another one until store_set_instance. The record is deleted;
 * on_session(0) comes when that is certain, or given up. */
void store_leave(struct store *store);
/* It is neither certain yet nor given up (after 2 s): the base is to be turned on. */
bool store_is_leaving(const struct store *store);

/* ---- transactions ---- */

struct store_compare {
    enum store_table table;
    const char *id;
    uint64_t revision; /* of its last change; 0: it is not there */
};

struct store_change {
    enum store_table table; /* not STORE_INSTANCES */
    const char *id;
    const void *value; /* NULL: it goes */
    size_t value_bytes;
};

enum store_txn_end {
    STORE_OK,
    STORE_LOST,    /* a compare did not hold, or the session is another: nothing was changed */
    STORE_UNKNOWN, /* it may have happened, may happen yet, or never */
    STORE_FULL /* UNKNOWN, and the store says that it has no space: it refuses all that writes */
};

struct store_txn {
    uint64_t session; /* that it is of */
    const struct store_compare *compares;
    size_t compare_count;
    const struct store_change *changes; /* no key twice */
    size_t change_count;
};

/* The records as they now are come before the answer, unless it is UNKNOWN: OK, those changed;
 * LOST, those compared, if the session is the one that it says. `error` says why, unless OK. */
struct store_reply {
    void (*on_end)(void *context, enum store_txn_end end, const struct error *error);
    void *context;
};

/* INVALID_ARGUMENT, and no reply: it has too many compares or changes, an id or value is too long,
 * or a key is changed twice. */
enum status store_txn(struct store *store, const struct store_txn *txn, struct store_reply reply,
                      struct error *error) WARN_UNUSED;

/* ---- looking at it ---- */

/* Appends the key that a record stands under; without an etcd, its end. */
void store_key_put(const struct store *store, enum store_table table, const char *id,
                   struct bytes *to);
/* "memory", "file", "etcd". */
const char *store_kind(const struct store *store);
/* 0: none. */
uint64_t store_session(const struct store *store);
/* Of all records told; 0: not whole yet. */
uint64_t store_revision(const struct store *store);
/* The instance that leads, as far as is known here. False: none does. */
bool store_leader(const struct store *store, char id[STORE_ID_BYTES_MAX + 1]);
