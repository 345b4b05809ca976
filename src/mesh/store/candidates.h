/* SPDX-License-Identifier: Apache-2.0 */
/* The candidates of the leader's election: keys and their creation revisions. The oldest one leads.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/etcd/etcd.h"

struct candidate {
    char *key;
    size_t key_bytes;
    uint64_t created;
};

struct candidates {
    struct candidate *at;
    size_t count;
    size_t capacity;
};

void candidates_fini(struct candidates *candidates);
void candidates_put(struct candidates *candidates, struct etcd_bytes key, uint64_t created);
void candidates_delete(struct candidates *candidates, struct etcd_bytes key);
/* The oldest one; NULL: none. */
const struct candidate *candidates_leader(const struct candidates *candidates);
/* Returns its creation revision; 0: none. */
uint64_t candidates_first(const struct candidates *candidates);
