/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id_table.h"

#include <stdlib.h>

#include "base/check.h"

enum { ENTRIES_FIRST = 64 };

void
id_table_init(struct id_table *table, uint32_t max)
{
    CHECK(max < ID_NONE);
    *table = (struct id_table){.max = max, .first_free = ID_NONE};
}

void
id_table_fini(struct id_table *table)
{
    free(table->entries);
    id_table_init(table, table->max);
}

static void
grow(struct id_table *table)
{
    uint64_t wanted = table->capacity == 0 ? ENTRIES_FIRST : 2 * (uint64_t)table->capacity;
    table->capacity = wanted < table->max ? (uint32_t)wanted : table->max;
    table->entries = reallocarray(table->entries, table->capacity, sizeof(*table->entries));
    CHECK(table->entries != NULL);
}

/* ID_NONE: all are in use. */
static uint32_t
take(struct id_table *table)
{
    uint32_t id = table->first_free;
    if (id != ID_NONE) {
        table->first_free = table->entries[id].next_free;
        return id;
    }
    if (table->used == table->max)
        return ID_NONE;
    if (table->used == table->capacity)
        grow(table);
    table->entries[table->used] = (struct id_entry){0};
    return table->used++;
}

uint32_t
id_table_add(struct id_table *table, void *object)
{
    CHECK(object != NULL);
    uint32_t id = take(table);
    if (id == ID_NONE)
        return ID_NONE;
    struct id_entry *entry = &table->entries[id];
    entry->object = object;
    entry->generation += 1 + (entry->generation == UINT32_MAX);
    table->count++;
    return id;
}

void
id_table_remove(struct id_table *table, uint32_t id)
{
    CHECK(id_table_at(table, id) != NULL);
    struct id_entry *entry = &table->entries[id];
    entry->object = NULL;
    entry->next_free = table->first_free;
    table->first_free = id;
    table->count--;
}
