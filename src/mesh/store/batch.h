/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which waiting transactions go to etcd together. Pure.
 *
 *   B1. They are independent: none changes a key that another compares or changes. etcd evaluates
 *       all compares before any change, so dependent ones would not see each other.
 *   B2. They are of one kind: with puts, only deletions, or only compares. etcd accepts deletions
 *       and reads without space, and a read may be repeated.
 *   B3. Together they stay within etcd's limits: BATCH_OPS_MAX operations, BATCH_BYTES_MAX bytes.
 *   B4. A transaction sent again because another of its batch was lost goes only with such ones, so
 *       each answer shrinks that group. One marked alone goes alone.
 *   B5. The first waiting one is always taken. Others may pass those that do not fit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "mesh/store/request.h"

enum {
    BATCH_OPS_MAX = 128,                /* etcd's default, --max-txn-ops */
    BATCH_BYTES_MAX = 256 << 10,        /* of ids and values; a sixth of etcd's default */
    BATCH_LOOKS_MAX = 4 * BATCH_OPS_MAX /* waiting transactions examined */
};

struct store_batch {
    struct store_request *requests[BATCH_OPS_MAX];
    size_t count;
};

/* Removes a batch from the queue, which is not empty. `ops_max`: at most BATCH_OPS_MAX. */
void batch_take(struct request_queue *queue, size_t ops_max, struct store_batch *batch);

/* A compare requires the record to be absent: the transaction creates it. */
bool batch_creates(const struct store_txn *txn, const struct store_change *change);
