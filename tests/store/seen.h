/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's reports, kept as its user would: of each record the newest, by revision. It
 * checks on the way what holds of all events: sessions and leadership come in turn, no record goes
 * back within one life of the store.
 */
#pragma once

#include "../etcd/rig.h"
#include "mesh/store/store.h"

enum { SEEN_RECORDS_MAX = 512, SEEN_TEXT_MAX = 1100 };

struct seen_record {
    enum store_table table;
    char id[SEEN_TEXT_MAX];
    char *value; /* NULL: it is gone */
    size_t value_bytes;
    uint64_t create_revision;
    uint64_t revision;
};

struct seen {
    struct store *store;
    struct seen_record records[SEEN_RECORDS_MAX];
    size_t record_count;
    uint64_t session;
    uint64_t whole;
    size_t sessions; /* gained */
    size_t wholes;
    size_t emptied;
    size_t troubles;
    size_t gones;
    size_t fulls;
    size_t batch_limits;
    size_t batch_max; /* as last reported */
    enum store_leadership leadership;
    size_t demotions;     /* changes to STORE_FOLLOWS */
    struct error trouble; /* the last */

    /* The last transaction. */
    size_t ends;
    enum store_txn_end end;
    struct error error;
};

/* Ready for store_options.events. */
struct store_events seen_events(struct seen *seen);
/* Forgets all; the store is closed before. */
void seen_fini(struct seen *seen);

/* Its value, "" also for an empty one; NULL: it is not there. */
const char *seen_value(const struct seen *seen, enum store_table table, const char *id);
/* 0: it is not there. */
uint64_t seen_revision(const struct seen *seen, enum store_table table, const char *id);
uint64_t seen_created(const struct seen *seen, enum store_table table, const char *id);

/* Begins a transaction of the session that was seen. */
void txn_begin(struct seen *seen, const struct store_txn *txn);
enum store_txn_end txn_run(struct seen *seen, const struct store_compare *compares,
                           size_t compare_count, const struct store_change *changes,
                           size_t change_count);
/* One model, over the revision; `value` NULL: it goes. */
enum store_txn_end model_set(struct seen *seen, const char *id, uint64_t revision,
                             const char *value);
/* The instance's record, and waits for a session. */
void seen_join(struct seen *seen, const char *value);
