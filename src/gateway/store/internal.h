/* SPDX-License-Identifier: Apache-2.0 */
/* State and functions shared by store.c (etcd, objects), nodes.c and report.c (reports). */
#pragma once

#include <stdbool.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash_table.h"
#include "gateway/store/store.h"
#include "loop/timer.h"
#include "mesh/etcd/etcd.h"

enum { STORE_NAME_BYTES = 256, STORE_ID_BYTES_MAX = 768 };

/* The wait before a report is written again that another has changed, or that could not be
 * written. */
#define STORE_AGAIN_NS ((int64_t)NS_PER_S)

/* A record: an object, this gateway's report on one, or a node. */
struct store_item {
    struct hash_entry entry; /* first */
    char *value;             /* NULL: absent; of a node: HOST, a line, ",label,label," */
    size_t value_bytes;
    uint64_t created; /* revisions */
    uint64_t changed;
    int64_t lease_id;
    char *wanted; /* of a report: as it is to be; NULL: absent */
    char id[];    /* "KIND/NAME", "KIND/NAME/gateway/GATEWAY" */
};

struct gateway_store {
    const struct gateway_settings *settings;
    struct gateway_store_handler handler;
    struct etcd *etcd;
    struct etcd_mirror *mirror;
    struct etcd_session *session;
    struct bytes prefix; /* of all keys of the mesh */
    struct loop_timer *change;
    struct loop_timer *notify;
    struct hash_table objects;
    struct hash_table reports;
    struct hash_table nodes;
    bool are_nodes_others; /* since on_nodes */
    bool are_objects_others;
    struct etcd_call *writing; /* NULL: no report is being written */
    struct store_item *written;
    bool is_read;
    bool is_emptied;    /* etcd lost its data, and no object has been put since */
    uint64_t histories; /* of etcd's figures, at the last on_synced */
    struct gateway_store_counts counts;
    char name[STORE_NAME_BYTES]; /* this gateway's */
};

/* ---- items.c ---- */

struct store_item *store_item_find(struct hash_table *table, const char *id);
struct store_item *store_item_make(struct hash_table *table, const char *id);
void store_item_drop(struct hash_table *table, struct store_item *item);
void store_items_free(struct hash_table *table);

/* ---- nodes.c ---- */

/* Takes a node's record. False: nothing has changed that matters here. */
bool store_node_take(struct gateway_store *store, struct store_item *node,
                     const struct etcd_kv *kv);

/* ---- report.c ---- */

/* Begins to write what is not as it is to be. */
void store_notify_begin(struct gateway_store *store);
void store_on_notify_time(void *context);
