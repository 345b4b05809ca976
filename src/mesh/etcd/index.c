/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

/* Hashes with the client's seed, so that keys cannot be chosen to collide. */
static uint64_t
hash_of(const struct etcd_index *index, struct etcd_bytes key)
{
    return hash_fnv1a(HASH_FNV1A_SEED ^ index->seed, key.data, key.bytes);
}

struct etcd_index_entry *
etcd_index_walk(const struct etcd_index *index, const struct etcd_index_entry *before)
{
    return (struct etcd_index_entry *)hash_table_walk(&index->all,
                                                      before == NULL ? NULL : &before->entry);
}

void
etcd_index_fini(struct etcd_index *index)
{
    for (struct etcd_index_entry *at = etcd_index_walk(index, NULL), *next; at != NULL; at = next) {
        next = etcd_index_walk(index, at);
        free(at);
    }
    hash_table_fini(&index->all);
}

struct etcd_index_entry *
etcd_index_find(const struct etcd_index *index, struct etcd_bytes key)
{
    struct hash_entry *at = hash_table_first(&index->all, hash_of(index, key));
    for (; at != NULL; at = hash_table_next(at)) {
        struct etcd_index_entry *entry = (struct etcd_index_entry *)at;
        if (entry->key_bytes == key.bytes && memcmp(entry->key, key.data, key.bytes) == 0)
            return entry;
    }
    return NULL;
}

struct etcd_index_entry *
etcd_index_add(struct etcd_index *index, struct etcd_bytes key)
{
    struct etcd_index_entry *entry = etcd_index_find(index, key);
    if (entry != NULL)
        return entry;
    CHECK(key.bytes <= UINT32_MAX);
    entry = calloc(1, sizeof(*entry) + key.bytes);
    CHECK(entry != NULL);
    entry->key_bytes = (uint32_t)key.bytes;
    memcpy(entry->key, key.data, key.bytes);
    hash_table_add(&index->all, &entry->entry, hash_of(index, key));
    return entry;
}

void
etcd_index_remove(struct etcd_index *index, struct etcd_index_entry *entry)
{
    hash_table_remove(&index->all, &entry->entry);
}
