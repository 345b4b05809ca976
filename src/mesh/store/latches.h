/* SPDX-License-Identifier: Apache-2.0 */
/* The candidates of the leader's election: keys and when they were created. The first one leads. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/etcd/etcd.h"

struct latch {
    char *key;
    size_t key_bytes;
    uint64_t created;
};

struct latches {
    struct latch *at;
    size_t count;
    size_t capacity;
};

void latches_fini(struct latches *latches);
void latches_put(struct latches *latches, struct etcd_bytes key, uint64_t created);
void latches_delete(struct latches *latches, struct etcd_bytes key);
/* The first one; NULL: there is none. */
const struct latch *latches_leader(const struct latches *latches);
/* When that was; 0: there is none. */
uint64_t latches_first(const struct latches *latches);
