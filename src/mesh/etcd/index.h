/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that a mirror has reported, with their revisions, for comparison with a new listing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/hash_table.h"
#include "mesh/etcd/etcd.h"

struct etcd_index_entry {
    struct hash_entry entry;
    int64_t mod_revision;
    uint32_t listing; /* the last one that contained the key */
    uint32_t key_bytes;
    uint32_t range_index;
    unsigned char key[];
};

struct etcd_index {
    struct hash_table all;
    uint64_t seed;
};

void etcd_index_fini(struct etcd_index *index);
struct etcd_index_entry *etcd_index_find(const struct etcd_index *index, struct etcd_bytes key);
/* The existing entry, or a new one with all numbers 0. */
struct etcd_index_entry *etcd_index_add(struct etcd_index *index, struct etcd_bytes key);
/* The entry after `before` (NULL: the first); NULL: none. As hash_table_walk. */
struct etcd_index_entry *etcd_index_walk(const struct etcd_index *index,
                                         const struct etcd_index_entry *before);
/* Removes the entry; the caller frees it with free(). */
void etcd_index_remove(struct etcd_index *index, struct etcd_index_entry *entry);
