/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "gateway/store/internal.h"

static uint64_t
hash_of(const char *id)
{
    return hash_fnv1a(HASH_FNV1A_SEED, id, strlen(id));
}

struct store_item *
store_item_find(struct hash_table *table, const char *id)
{
    struct hash_entry *entry = hash_table_first(table, hash_of(id));
    while (entry != NULL && strcmp(((struct store_item *)(void *)entry)->id, id) != 0)
        entry = hash_table_next(entry);
    return (struct store_item *)(void *)entry;
}

struct store_item *
store_item_make(struct hash_table *table, const char *id)
{
    struct store_item *item = store_item_find(table, id);
    size_t bytes = strlen(id) + 1;
    if (item != NULL)
        return item;
    item = calloc(1, sizeof(*item) + bytes);
    CHECK(item != NULL);
    memcpy(item->id, id, bytes);
    hash_table_add(table, &item->entry, hash_of(id));
    return item;
}

void
store_item_drop(struct hash_table *table, struct store_item *item)
{
    hash_table_remove(table, &item->entry);
    free(item->value);
    free(item->wanted);
    free(item);
}

void
store_items_free(struct hash_table *table)
{
    struct hash_entry *entry;
    while ((entry = hash_table_walk(table, NULL)) != NULL)
        store_item_drop(table, (struct store_item *)(void *)entry);
    hash_table_fini(table);
}
