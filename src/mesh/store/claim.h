/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key in etcd that is this process's, and lives with its lease: the instance's record, and the
 * latch of the leader's election. It is created, kept at a value, and created anew when it is lost.
 *
 *   1. Nothing waits for *its* write. Whatever an answer says, or fails to say, the next step is
 *      taken from what etcd is known to hold: no key of ours: create it if there is none; ours with
 *      another value: write it, if its revision is the one we know. A write whose answer was lost
 *      shows itself as a compare that fails, and by what the key then says.
 *   2. A key is ours if it has our lease.
 *   3. One that has not is taken away if it has the lease before ours; or if this process
 *      never held it yet: a predecessor of the same name has died, and need not be waited for. Who
 * has held it before, and finds a stranger's, waits: two nodes of one name, of which the later one
 * stays.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/etcd/etcd.h"

struct event_base;
struct claim;

struct claim_options {
    struct etcd *etcd;
    struct etcd_bytes key;
    const char *what; /* for texts, such as "the instance \"n1\"" */
    int64_t timeout_ns;
    /* Held since this revision, which is its creation's; 0: not any more. */
    void (*on_held)(void *context, uint64_t revision);
    void (*on_trouble)(void *context, const struct error *error);
    void *context;
};

struct claim *claim_create(struct event_base *base, const struct claim_options *options);
/* NULL is left alone. The key stays. */
void claim_destroy(struct claim *claim);

void claim_set_value(struct claim *claim, const void *value, size_t value_bytes);
struct etcd_bytes claim_value(const struct claim *claim);
/* 0: there is none: it is not held any more, without on_held, and nothing is done until there is.
 */
void claim_set_lease(struct claim *claim, int64_t lease_id);
/* 0: not held. */
uint64_t claim_held(const struct claim *claim);

/* Notes the key as seen at a revision; `create_revision` 0: it was not there. */
void claim_seen(struct claim *claim, uint64_t create_revision, uint64_t revision);
