/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An etcd as a model of the real one: revisions and their history, transactions with compares,
 * leases, watches, compaction; and what an etcd can suffer as a whole: no leader, no answer at all,
 * its data gone. It passes the contract suite of tests/etcd that the real one passes
 * (sim.fake_etcd).
 *
 * It has neither a network nor a clock. Each call is answered at once, with the same structures as
 * libetcd's; what may happen to a question or an answer on its way is the caller's to play. Time is
 * what fake_etcd_advance was last told. One thread.
 *
 * Its results live as long as it does.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/etcd/etcd.h"

struct fake_etcd;

enum fake_health {
    FAKE_WELL,
    FAKE_NO_LEADER, /* everything is refused, and has certainly not happened */
    FAKE_SILENT,    /* nobody answers */
};

struct fake_etcd *fake_etcd_create(void);
void fake_etcd_destroy(struct fake_etcd *etcd);

/* Milliseconds since it was made. Leases that are over end, while there is a leader. */
void fake_etcd_advance(struct fake_etcd *etcd, int64_t now_ms);

/* Back to FAKE_WELL: a new leader, which gives all leases their full time once more. */
void fake_etcd_set_health(struct fake_etcd *etcd, enum fake_health health);
/* All data, leases and revisions are gone; watches find out. */
void fake_etcd_empty(struct fake_etcd *etcd);

/* NULL: it is silent. */
const struct etcd_answer *fake_etcd_op(struct fake_etcd *etcd, const struct etcd_op *op);
const struct etcd_answer *fake_etcd_txn(struct fake_etcd *etcd, const struct etcd_txn *txn);
const struct etcd_answer *fake_etcd_compact(struct fake_etcd *etcd, int64_t revision);
const struct etcd_answer *fake_etcd_grant(struct fake_etcd *etcd, int64_t ttl_s, int64_t lease_id);
const struct etcd_answer *fake_etcd_renew(struct fake_etcd *etcd, int64_t lease_id);
const struct etcd_answer *fake_etcd_revoke(struct fake_etcd *etcd, int64_t lease_id);

int64_t fake_etcd_revision(const struct fake_etcd *etcd);
int64_t fake_etcd_compacted(const struct fake_etcd *etcd);
/* As answers have it: another one each time that it was emptied. */
uint64_t fake_etcd_history(const struct fake_etcd *etcd);

/* The key as of a revision, compacted or not: for checkers. False: it was not there. */
bool fake_etcd_look(const struct fake_etcd *etcd, struct etcd_bytes key, int64_t revision,
                    struct etcd_kv *kv);
/* All keys that are there now, in order. */
const struct etcd_kv *fake_etcd_all(struct fake_etcd *etcd, size_t *count);

/* ---- watches ---- */

struct fake_watch;

enum fake_news {
    FAKE_NOTHING, /* everything was shown */
    FAKE_EVENTS,
    FAKE_COMPACTED, /* what comes next is forgotten */
    FAKE_BEHIND,    /* it was emptied since */
};

/* Events of one revision that are in one range. */
struct fake_events {
    size_t range_index;
    const struct etcd_event *events;
    size_t count;
};

/* `revision` is the first that is shown; 0: the next one. The ranges are copied. */
struct fake_watch *fake_watch_open(struct fake_etcd *etcd, const struct etcd_range *ranges,
                                   size_t count, int64_t revision);
void fake_watch_close(struct fake_watch *watch);
enum fake_news fake_watch_next(struct fake_watch *watch, struct fake_events *events);
/* Everything up to it was shown. */
int64_t fake_watch_revision(const struct fake_watch *watch);
