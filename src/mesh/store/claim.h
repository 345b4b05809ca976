/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key in etcd that belongs to this process and lives with its lease: the instance's record, or
 * the candidate of the leader's election. It is created, kept at a value, and recreated when it is
 * lost.
 *
 *   1. Nothing waits for *its* write. After any answer, the next step follows from etcd's known
 * content. No key of ours: create it if there is none. Ours with another value: write it if its
 * revision is the one we know. A write whose answer was lost shows as a failed compare, and in what
 * the key then says.
 *   2. A key is ours if it has our lease.
 *   3. Another key is replaced if it has the lease before ours, or if this process has never held
 *      it: a predecessor of the same name has died and need not be waited for. A process that has
 *      held it and finds a stranger's key waits: of two nodes with one name the later one stays.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/etcd/etcd.h"

struct event_base;
struct store_claim;

struct claim_options {
    struct etcd *etcd;
    struct etcd_bytes key;
    const char *what; /* for texts, such as "the instance \"n1\"" */
    int64_t timeout_ns;
    /* Held since this revision, that of its creation; 0: no longer. */
    void (*on_held)(void *context, uint64_t revision);
    void (*on_trouble)(void *context, const struct error *error);
    void *context;
};

struct store_claim *claim_create(struct event_base *base, const struct claim_options *options);
/* NULL is ignored. The key stays. */
void claim_destroy(struct store_claim *claim);

void claim_set_value(struct store_claim *claim, const void *value, size_t value_bytes);
struct etcd_bytes claim_value(const struct store_claim *claim);
/* 0: no lease: the key is no longer held, without on_held, and nothing is done until there is one.
 */
void claim_set_lease(struct store_claim *claim, int64_t lease_id);
/* 0: not held. */
uint64_t claim_held(const struct store_claim *claim);

/* Notes the key as seen at a revision; `create_revision` 0: it was absent. */
void claim_seen(struct store_claim *claim, uint64_t create_revision, uint64_t revision);
