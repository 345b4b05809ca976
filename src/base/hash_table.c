/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash_table.h"

#include <stdlib.h>

#include "base/check.h"

enum { SLOTS_FIRST = 16 };

void
hash_table_fini(struct hash_table *table)
{
    free(table->slots);
    *table = (struct hash_table){0};
}

static void
put(struct hash_table *table, struct hash_entry *entry)
{
    struct hash_entry **slot = &table->slots[hash_table_slot(table, entry->hash)];
    entry->next = *slot;
    *slot = entry;
}

static void
grow(struct hash_table *table)
{
    struct hash_table old = *table;
    CHECK(old.slot_count <= UINT32_MAX / 2);
    table->slot_count = old.slot_count == 0 ? SLOTS_FIRST : 2 * old.slot_count;
    table->slots = calloc(table->slot_count, sizeof(struct hash_entry *));
    CHECK(table->slots != NULL);
    for (uint32_t i = 0; i < old.slot_count; i++)
        for (struct hash_entry *entry = old.slots[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            put(table, entry);
        }
    free(old.slots);
}

void
hash_table_add(struct hash_table *table, struct hash_entry *entry, uint64_t hash)
{
    if (table->count == table->slot_count)
        grow(table);
    entry->hash = hash;
    put(table, entry);
    table->count++;
}

void
hash_table_remove(struct hash_table *table, struct hash_entry *entry)
{
    CHECK(table->count > 0);
    struct hash_entry **link = &table->slots[hash_table_slot(table, entry->hash)];
    while (*link != entry) {
        CHECK(*link != NULL);
        link = &(*link)->next;
    }
    *link = entry->next;
    table->count--;
}

struct hash_entry *
hash_table_walk(const struct hash_table *table, const struct hash_entry *before)
{
    if (before != NULL && before->next != NULL)
        return before->next;
    uint32_t slot = before == NULL ? 0 : hash_table_slot(table, before->hash) + 1;
    while (slot < table->slot_count && table->slots[slot] == NULL)
        slot++;
    return slot < table->slot_count ? table->slots[slot] : NULL;
}
