/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { SLOTS_START = 64 };

/* FNV-1a from a seed of the client's, so that keys cannot be chosen to collide; then mixed, because
 * the low bits choose the slot. */
static uint64_t
hash_of(const struct etcd_index *index, struct etcd_bytes key)
{
    const unsigned char *data = key.data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ index->seed;
    for (size_t i = 0; i < key.bytes; i++)
        hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    hash = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

void
etcd_index_fini(struct etcd_index *index)
{
    for (size_t i = 0; i < index->slot_count; i++) {
        while (index->slots[i] != NULL) {
            struct etcd_index_entry *next = index->slots[i]->next;
            free(index->slots[i]);
            index->slots[i] = next;
        }
    }
    free(index->slots);
    *index = (struct etcd_index){.seed = index->seed};
}

static struct etcd_index_entry *
find(const struct etcd_index *index, struct etcd_bytes key, uint64_t hash)
{
    if (index->slot_count == 0)
        return NULL;
    struct etcd_index_entry *entry = index->slots[hash & (index->slot_count - 1)];
    while (entry != NULL && (entry->hash != hash || entry->key_bytes != key.bytes ||
                             memcmp(entry->key, key.data, key.bytes) != 0))
        entry = entry->next;
    return entry;
}

struct etcd_index_entry *
etcd_index_find(const struct etcd_index *index, struct etcd_bytes key)
{
    return find(index, key, hash_of(index, key));
}

static void
grow(struct etcd_index *index)
{
    size_t slot_count = index->slot_count == 0 ? SLOTS_START : index->slot_count * 2;
    struct etcd_index_entry **slots = calloc(slot_count, sizeof(struct etcd_index_entry *));
    CHECK(slots != NULL);
    for (size_t i = 0; i < index->slot_count; i++) {
        while (index->slots[i] != NULL) {
            struct etcd_index_entry *entry = index->slots[i];
            index->slots[i] = entry->next;
            entry->next = slots[entry->hash & (slot_count - 1)];
            slots[entry->hash & (slot_count - 1)] = entry;
        }
    }
    free(index->slots);
    index->slots = slots;
    index->slot_count = slot_count;
}

struct etcd_index_entry *
etcd_index_add(struct etcd_index *index, struct etcd_bytes key)
{
    uint64_t hash = hash_of(index, key);
    struct etcd_index_entry *entry = find(index, key, hash);
    if (entry != NULL)
        return entry;
    if (index->count >= index->slot_count)
        grow(index);
    CHECK(key.bytes <= UINT32_MAX);
    entry = calloc(1, sizeof(*entry) + key.bytes);
    CHECK(entry != NULL);
    entry->hash = hash;
    entry->key_bytes = (uint32_t)key.bytes;
    memcpy(entry->key, key.data, key.bytes);
    struct etcd_index_entry **slot = &index->slots[hash & (index->slot_count - 1)];
    entry->next = *slot;
    *slot = entry;
    index->count++;
    return entry;
}

void
etcd_index_remove(struct etcd_index *index, struct etcd_index_entry *entry)
{
    struct etcd_index_entry **link = &index->slots[entry->hash & (index->slot_count - 1)];
    while (*link != entry) {
        CHECK(*link != NULL);
        link = &(*link)->next;
    }
    *link = entry->next;
    index->count--;
}

struct etcd_index_entry *
etcd_index_unlisted(const struct etcd_index *index, uint32_t listing, size_t *at)
{
    for (; *at < index->slot_count; (*at)++)
        for (struct etcd_index_entry *entry = index->slots[*at]; entry != NULL; entry = entry->next)
            if (entry->listing != listing)
                return entry;
    return NULL;
}
