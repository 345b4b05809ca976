/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by the files of the etcd store: etcd_store.c (session, mirror, election) and
 * etcd_txn.c (transactions). */
#pragma once

#include <stdbool.h>

#include "base/bytes.h"
#include "mesh/etcd/etcd.h"
#include "mesh/record/keys.h"
#include "mesh/store/claim.h"
#include "mesh/store/kind.h"
#include "mesh/store/candidates.h"
#include "mesh/store/table.h"

_Static_assert((int)STORE_MODELS == RECORD_MODELS && (int)STORE_VMODELS == RECORD_VMODELS &&
                   (int)STORE_INSTANCES == RECORD_INSTANCES && (int)STORE_CONFIG == RECORD_CONFIG &&
                   (int)STORE_MANIFESTS == RECORD_MANIFESTS,
               "a table is an area");

struct out; /* a batch at etcd */

/* A key missing from a listing: reported when the listing's revision is known. */
struct missed {
    struct missed *next;
    enum record_area area;
    size_t id_bytes;
    char id[]; /* NUL-terminated */
};

struct etcd_store {
    struct store store;
    struct event_base *base;
    struct etcd *etcd;
    struct bytes prefix;
    int64_t lease_s;
    int64_t timeout_ns;
    struct etcd_session *lease; /* NULL: no instance is set */
    struct etcd_mirror *mirror;
    struct store_claim *instance;
    struct store_claim *candidate;
    struct etcd_call *leaving; /* the lease is being revoked */
    struct loop_timer *whole_timer;
    struct loop_timer *refused_timer;
    struct request_queue refused; /* ended before they were sent */
    struct request_queue waiting; /* for an answer to a batch that is out */
    size_t waiting_count;
    size_t waiting_max;
    uint64_t busy_count; /* refused because waiting_max of them waited */
    struct out *outs;
    size_t out_count;
    size_t ops_max; /* of a batch; below BATCH_OPS_MAX if etcd has refused as many */
    struct candidates candidates;
    /* Keys and revisions that answers have reported and the mirror has not. */
    struct record_table reported;
    struct missed *missed;
    uint64_t session;   /* as reported */
    uint64_t whole;     /* revision reported by on_whole */
    uint64_t histories; /* of etcd's figures, as reported */
    uint64_t fulls;     /* likewise */
    bool emptied;       /* and not whole since */
    enum store_leadership leadership;
};

static inline struct record_span
etcd_store_prefix(const struct etcd_store *store)
{
    return (struct record_span){store->prefix.data, store->prefix.used};
}

/* Notes that all refusals for lack of space in etcd's figures so far have been reported. */
static inline void
etcd_store_fulls_reported(struct etcd_store *store)
{
    store->fulls = etcd_figures(store->etcd)->full;
}

/* ---- etcd_txn.c ---- */

/* An answer has shown a key as of a revision. The mirror will report it, or it is gone by then. */
void etcd_store_reported(struct etcd_store *store, enum record_area area, const char *id,
                         uint64_t revision);

/* Answers the request LOST or BUSY, or sends it. */
void etcd_store_txn(struct etcd_store *store, struct store_request *request);
/* Drops requests that are out or waiting. */
void etcd_store_txns_drop(struct etcd_store *store);
