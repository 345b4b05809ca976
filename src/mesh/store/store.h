/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mesh's persistent records: a table, an id, and two revisions, that of the record's creation
 * and that of its last change. Three kinds share one interface: in memory, in a file that survives
 * everything but the disk, in etcd. Values are opaque bytes. DESIGN.md has the rules of each kind.
 *
 * Every decision is a transaction: it names the revisions that it was computed from and applies
 * completely or not at all. This node's instance is a record as well and lives as long as its
 * session; each transaction belongs to a session and is void when that has ended.
 *
 * Order of events. Events of one key may repeat, and an older one may follow a newer: the larger
 * revision counts. Only between on_emptied and the next on_whole do revisions restart.
 *
 * Threads: none; everything runs on the thread of the event base. Callbacks come from there, never
 * from within a function of this header; they may call anything here but store_close. Their
 * arguments live until they return. Arguments are copied.
 *
 * Running out of memory ends the process.
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
    STORE_ID_BYTES_MAX = 1024, /* longer ones are refused, and not reported if they exist */
    STORE_VALUE_BYTES_MAX = 1 << 20,
    STORE_COMPARES_MAX = 32, /* of one transaction */
    STORE_CHANGES_MAX = 32,
};

enum store_table {
    STORE_MODELS,
    STORE_VMODELS,
    STORE_INSTANCES,
    STORE_CONFIG,    /* dynamic configuration: plain texts */
    STORE_MANIFESTS, /* src/serving */
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
    /* Absent as of `revision`, deleted then or earlier. */
    void (*on_gone)(void *context, enum store_table table, const char *id, uint64_t revision);
    /* Everything up to the revision has been reported, for all tables. Before the first time,
     * unreported records may exist. Called again after each trouble, and as revisions advance. */
    void (*on_whole)(void *context, uint64_t revision);
    /* The revision at which this node's instance was created, which names the session of
     * transactions from now on. 0: the session has ended; until the next one, loaded models are
     * served and nothing else happens. A new session is sought. */
    void (*on_session)(void *context, uint64_t session);
    /* One node leads, for a moment perhaps two. Never reported without a session. */
    void (*on_leader)(void *context, enum store_leadership leadership);
    /* The store returned without its content or with older content. All reported revisions are
     * void, and the session ended before. Existing records follow as puts, then on_whole; missing
     * ones are not reported: they were lost, not deleted. */
    void (*on_emptied)(void *context);
    /* The store makes no progress for now and keeps trying. The error is one line for people: what,
     * where, what to do. */
    void (*on_trouble)(void *context, const struct error *error);
    /* The store has no space and refused this node's lease or record; `error` has its text.
     * Reported at each refusal. Transactions end STORE_FULL instead. */
    void (*on_full)(void *context, const struct error *error);
    /* etcd refused a batch for its size: from now on a batch has at most `operations`. */
    void (*on_batch_limit)(void *context, size_t operations, const struct error *error);
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

/* UNAVAILABLE: another process has it open. DATA_LOSS: it is damaged other than by a crash; the
 * text says where and what to do. */
enum status store_open_file(struct event_base *base, const struct store_options *options,
                            const char *path, struct store **store,
                            struct error *error) WARN_UNUSED;

struct store_etcd_options {
    struct etcd *etcd;  /* the caller's, which closes the store first */
    const char *prefix; /* of all keys, such as "/root/mm/service/"; ends in "/" */
    int64_t lease_s;    /* 0: 25 */
    int64_t timeout_ns; /* of a transaction; 0: 3.5 s */
    int64_t page_keys;  /* of listings; 0: 4,096 */
    size_t waiting_max; /* transactions that wait for answers to others; 0: 4,096 */
};

enum status store_open_etcd(struct event_base *base, const struct store_options *options,
                            const struct store_etcd_options *etcd, struct store **store,
                            struct error *error) WARN_UNUSED;

/* No callback follows. The instance ends with its lease; call store_leave before to end it at once.
 * Transactions that are out may happen. NULL is ignored. */
void store_close(struct store *store);

/* ---- this node's instance ---- */

/* Sets the record's value. The first call begins to seek a session; later ones change the record,
 * the last of several at once. Without a session the value is kept for the next. */
void store_set_instance(struct store *store, const void *value, size_t value_bytes);

/* Ends the session and seeks no other until store_set_instance. The record is deleted;
 * on_session(0) comes when that is certain or given up. */
void store_leave(struct store *store);
/* Neither certain nor given up yet (after 2 s): keep running the base. */
bool store_is_leaving(const struct store *store);

/* ---- transactions ---- */

struct store_compare {
    enum store_table table;
    const char *id;
    uint64_t revision; /* of its last change; 0: absent */
};

struct store_change {
    enum store_table table; /* not STORE_INSTANCES */
    const char *id;
    const void *value; /* NULL: delete */
    size_t value_bytes;
};

enum store_txn_end {
    STORE_OK,
    STORE_LOST,    /* a compare failed or the session is another: nothing was changed */
    STORE_UNKNOWN, /* it may have happened, may still happen, or never */
    STORE_FULL,    /* UNKNOWN, and the store has no space: it refuses all writes */
    STORE_BUSY     /* nothing was changed or asked: waiting_max transactions are waiting */
};

struct store_txn {
    uint64_t session; /* the session it belongs to */
    const struct store_compare *compares;
    size_t compare_count;
    const struct store_change *changes; /* no key twice */
    size_t change_count;
};

/* Unless the end is UNKNOWN, current records are reported before it: with OK those changed; with
 * LOST those compared, if the session is the current one; with BUSY none. `error` says why, unless
 * OK. */
struct store_reply {
    void (*on_end)(void *context, enum store_txn_end end, const struct error *error);
    void *context;
};

/* INVALID_ARGUMENT, without a reply: too many compares or changes, an id or value is too long, or a
 * key is changed twice. */
enum status store_txn(struct store *store, const struct store_txn *txn, struct store_reply reply,
                      struct error *error) WARN_UNUSED;

/* ---- looking at it ---- */

/* Appends the key of a record; without etcd, only its end. */
void store_key_put(const struct store *store, enum store_table table, const char *id,
                   struct bytes *to);
/* "memory", "file", "etcd". */
const char *store_kind(const struct store *store);
/* 0: none. */
uint64_t store_session(const struct store *store);
/* The leading instance as far as known here. False: none. */
bool store_leader(const struct store *store, char id[STORE_ID_BYTES_MAX + 1]);

struct store_figures {
    uint64_t waiting;   /* transactions that wait for answers to others */
    uint64_t busy;      /* transactions that ended BUSY */
    uint64_t batch_max; /* operations of a batch */
};

/* All 0 without etcd. */
void store_look(const struct store *store, struct store_figures *figures);
