/* SPDX-License-Identifier: Apache-2.0 */
/* The state shared by the two files of the etcd store: etcd_store.c (session, mirror, election) and
 * etcd_txn.c (transactions). */
#pragma once

#include <stdbool.h>

#include "base/bytes.h"
#include "mesh/etcd/etcd.h"
#include "mesh/record/keys.h"
#include "mesh/store/claim.h"
#include "mesh/store/kind.h"
#include "mesh/store/latches.h"
#include "mesh/store/table.h"

_Static_assert((int)STORE_MODELS == RECORD_MODELS && (int)STORE_VMODELS == RECORD_VMODELS &&
                   (int)STORE_INSTANCES == RECORD_INSTANCES && (int)STORE_CONFIG == RECORD_CONFIG,
               "a table is an area");

struct out; /* a batch that is out */

/* A key that a listing does not have any more: told when the listing's revision is known. */
struct missed {
    struct missed *next;
    enum record_area area;
    size_t id_bytes;
    char id[]; /* NUL behind it */
};

struct etcd_store {
    struct store store;
    struct event_base *base;
    struct etcd *etcd;
    struct bytes prefix;
    int64_t lease_s;
    int64_t timeout_ns;
    struct etcd_session *lease; /* NULL: no instance is wanted */
    struct etcd_mirror *mirror;
    struct claim *instance;
    struct claim *latch;
    struct etcd_call *leaving; /* the lease is being revoked */
    struct etcd_timer *whole_timer;
    struct etcd_timer *refused_timer;
    struct request_queue refused; /* lost before they were sent */
    struct request_queue waiting; /* for one that is out to be answered */
    size_t waiting_count;
    struct out *outs;
    size_t out_count;
    size_t ops_max; /* of a batch; fewer than BATCH_OPS_MAX if etcd has refused as many */
    struct latches latches;
    struct table told; /* keys and revisions that answers told of, and the mirror not yet */
    struct missed *missed;
    uint64_t session;   /* told */
    uint64_t whole;     /* the revision told */
    uint64_t histories; /* of etcd's figures, that were told of */
    bool emptied;       /* and not whole since */
    enum store_leadership leadership;
};

struct record_span etcd_store_prefix(const struct etcd_store *store);

/* An answer has shown a key as of a revision, of which the mirror will tell; or it is gone by then.
 */
void etcd_store_told(struct etcd_store *store, enum record_area area, const char *id,
                     uint64_t revision);

/* To be answered LOST, or tried. */
void etcd_store_txn(struct etcd_store *store, struct request *request);
/* Those that are out, and those that wait, are forgotten. */
void etcd_store_txns_drop(struct etcd_store *store);
