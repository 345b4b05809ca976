/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which waiting transactions go to etcd as one. Pure.
 *
 *   B1. They are independent: none changes a key that another compares or changes. etcd judges all
 *       compares before it changes anything, so dependent ones would not see each other.
 *   B2. They are of one kind: those that put, those that only delete, those that only compare. etcd
 *       takes deletions and reads when it has no space, and a read may be asked for again.
 *   B3. Together they stay within etcd's limits: BATCH_OPS_MAX operations, BATCH_BYTES_MAX bytes.
 *   B4. One that goes again, because another of its batch was lost, goes only with such: each
 *       answer then makes that group smaller. One that goes alone, goes alone.
 *   B5. The first that waits is taken. Others may pass those that do not fit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "mesh/store/request.h"

enum {
    BATCH_OPS_MAX = 128,                /* etcd's default, --max-txn-ops */
    BATCH_BYTES_MAX = 256 << 10,        /* of ids and values; a sixth of etcd's default */
    BATCH_LOOKS_MAX = 4 * BATCH_OPS_MAX /* at those that wait */
};

struct batch {
    struct request *requests[BATCH_OPS_MAX];
    size_t count;
};

/* Takes the batch out of the queue, which is not empty. `ops_max`: at most BATCH_OPS_MAX. */
void batch_take(struct request_queue *queue, size_t ops_max, struct batch *batch);

/* A compare says that the record is not there: its creation is the transaction's revision. */
bool batch_creates(const struct store_txn *txn, const struct store_change *change);
