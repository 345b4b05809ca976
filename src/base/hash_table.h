/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table of entries that are embedded in their owners, as the first member: adding one
 * allocates nothing but slots, and entries never move. Chaining; the slots double when there are as
 * many entries as slots, and never shrink.
 *
 * The owner hashes keys (hash.h; seeded where others choose the keys) and compares them: the table
 * knows the hashes alone. Entries with equal hashes, and even equal keys, may be in it together.
 *
 * A table of zeros is empty. Entries remain their owner's. Not locked; several threads may read at
 * once. A failed allocation ends the process (CHECK).
 *
 *     struct hash_entry *entry = hash_table_first(&table, hash);
 *     while (entry != NULL && strcmp(((struct thing *)entry)->key, key) != 0)
 *         entry = hash_table_next(entry);
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hash_entry {
    struct hash_entry *next; /* in its slot's chain */
    uint64_t hash;
};

struct hash_table {
    struct hash_entry **slots;
    uint32_t slot_count; /* a power of two; 0 before the first entry */
    uint32_t count;
};

/* Frees the slots, not the entries. The table is empty afterwards. */
void hash_table_fini(struct hash_table *table);

void hash_table_add(struct hash_table *table, struct hash_entry *entry, uint64_t hash);
/* The entry is in the table (CHECK). */
void hash_table_remove(struct hash_table *table, struct hash_entry *entry);

/* Fibonacci hashing: the upper bits of the product depend on all bits of the hash. */
static inline uint32_t
hash_table_slot(const struct hash_table *table, uint64_t hash)
{
    return (uint32_t)(hash * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (table->slot_count - 1);
}

/* The next entry with the same hash; NULL: none. */
static inline struct hash_entry *
hash_table_next(const struct hash_entry *entry)
{
    struct hash_entry *next = entry->next;
    while (next != NULL && next->hash != entry->hash)
        next = next->next;
    return next;
}

/* The first entry with that hash; NULL: none. */
static inline struct hash_entry *
hash_table_first(const struct hash_table *table, uint64_t hash)
{
    struct hash_entry *entry =
        table->slot_count == 0 ? NULL : table->slots[hash_table_slot(table, hash)];
    while (entry != NULL && entry->hash != hash)
        entry = entry->next;
    return entry;
}

/* Walks over all entries in no order: the first one after NULL, NULL after the last. Adding ends
 * the walk; `before` may only be removed once its successor is known. */
struct hash_entry *hash_table_walk(const struct hash_table *table, const struct hash_entry *before);
