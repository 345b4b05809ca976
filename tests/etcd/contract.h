/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of etcd and of its substitutes: the real one through libetcd, and the simulator's.
 * The suite knows only the table below; the store may hold other keys than its own.
 */
#pragma once

#include "mesh/etcd/etcd.h"
#include "rig.h"

struct contract {
    void *store;
    struct etcd_call *(*op)(void *store, const struct etcd_op *op, struct etcd_reply reply);
    struct etcd_call *(*txn)(void *store, const struct etcd_txn *txn, struct etcd_reply reply);
    struct etcd_call *(*compact)(void *store, int64_t revision, struct etcd_reply reply);
    struct etcd_call *(*grant)(void *store, int64_t ttl_s, int64_t lease_id,
                               struct etcd_reply reply);
    struct etcd_call *(*renew)(void *store, int64_t lease_id, struct etcd_reply reply);
    struct etcd_call *(*revoke)(void *store, int64_t lease_id, struct etcd_reply reply);
    void *(*watch)(void *store, const struct etcd_watch_options *options);
    void (*watch_close)(void *store, void *watch);
    /* Lets a little time pass. */
    void (*turn)(void *store);
};

/* All cases; at the end, without a name, what is to be run after each of them. */
struct contract_case {
    const char *name;
    void (*run)(const struct contract *contract);
};
extern const struct contract_case contract_cases[];
