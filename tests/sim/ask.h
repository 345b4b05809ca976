/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's calls to etcd: on their way, carried out, answered or not. One that the node has given
 * up may arrive all the same. For registry.c and session.c.
 */
#pragma once

#include "codec.h"
#include "invariants.h"

enum { COMPARES_MAX = MESH_WRITES_MAX + 2 };

enum ask_kind { ASK_GRANT, ASK_RENEW, ASK_TXN, ASK_REFUSED };

/* A call to etcd. It may be over for the node, and arrive there all the same. */
struct ask {
    enum ask_kind kind;
    void (*done)(struct world *world, struct ask *ask, const struct etcd_answer *answer);
    uint32_t node;
    uint32_t life;
    bool over;
    int64_t sent_ms;
    int64_t lease_id;
    struct etcd_compare compares[COMPARES_MAX];
    struct etcd_op success[MESH_WRITES_MAX];
    struct etcd_op failure[MESH_WRITES_MAX];
    struct etcd_txn txn;
    const struct etcd_answer *answer;
    /* of a core's transaction */
    uint64_t number;
    uint64_t session;
    uint64_t history; /* of etcd, that it was computed from */
    const char *absent;
};

/* The tables' prefixes; a mirror's ranges in this order. */
enum table { TABLE_MODELS, TABLE_VMODELS, TABLE_NODES, TABLE_COUNT };
extern const char *const ask_prefixes[TABLE_COUNT];

struct etcd_range key_range(struct world *world, enum table table, const char *name);
struct etcd_range own_key(struct world *world, uint32_t node);
enum table table_of_key(const struct etcd_bytes *key);
uint32_t number_of_key(const struct etcd_bytes *key);

/* Copies its argument; `done` is called once, if the node still lives. */
void ask_etcd(struct world *world, uint32_t node, const struct ask *given);

/* session.c */
void session_start(struct world *world, uint32_t node);
void session_lost(struct world *world, uint32_t node);
