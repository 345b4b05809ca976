/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/table.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Followed by the id and the value. */
struct table_item {
    struct store_record record;
    char text[];
};

static int
compare(const void *a, const void *b)
{
    const struct store_record *one = &((const struct table_item *)a)->record;
    const struct store_record *other = &((const struct table_item *)b)->record;
    if (one->table != other->table)
        return one->table < other->table ? -1 : 1;
    return strcmp(one->id, other->id);
}

static void
count_out(struct record_table *table, const struct table_item *item)
{
    size_t bytes = strlen(item->record.id) + item->record.value_bytes;
    CHECK(table->count > 0 && table->bytes >= bytes);
    table->count--;
    table->bytes -= bytes;
    CHECK(table->count > 0 || table->bytes == 0);
}

void
table_fini(struct record_table *table)
{
    tdestroy(table->root, free);
    *table = (struct record_table){0};
}

void
table_put(struct record_table *table, const struct store_record *record)
{
    size_t id_bytes = strlen(record->id) + 1;
    struct table_item *item = malloc(sizeof(*item) + id_bytes + record->value_bytes);
    CHECK(item != NULL);
    item->record = *record;
    item->record.id = memcpy(item->text, record->id, id_bytes);
    item->record.value = item->text + id_bytes;
    if (record->value_bytes > 0)
        memcpy(item->text + id_bytes, record->value, record->value_bytes);
    struct table_item **node = tsearch(item, &table->root, compare);
    CHECK(node != NULL);
    if (*node != item) { /* the key is the same, so it can be replaced in place */
        count_out(table, *node);
        free(*node);
        *node = item;
    }
    table->count++;
    table->bytes += id_bytes - 1 + record->value_bytes;
}

static struct table_item *
find(const struct record_table *table, enum store_table of, const char *id)
{
    const struct table_item key = {.record = {.table = of, .id = id}};
    struct table_item **node = tfind(&key, &table->root, compare);
    return node == NULL ? NULL : *node;
}

void
table_delete(struct record_table *table, enum store_table of, const char *id)
{
    struct table_item *item = find(table, of, id);
    if (item == NULL)
        return;
    CHECK(tdelete(item, &table->root, compare) != NULL);
    count_out(table, item);
    free(item);
}

const struct store_record *
table_find(const struct record_table *table, enum store_table of, const char *id)
{
    const struct table_item *item = find(table, of, id);
    return item == NULL ? NULL : &item->record;
}

struct table_walk {
    void (*visit)(void *context, const struct store_record *record);
    void *context;
};

static void
on_node(const void *node, VISIT which, void *context)
{
    const struct table_walk *walk = context;
    if (which == postorder || which == leaf)
        walk->visit(walk->context, &(*(const struct table_item *const *)node)->record);
}

void
table_walk(const struct record_table *table,
           void (*visit)(void *context, const struct store_record *record), void *context)
{
    struct table_walk walk = {visit, context};
    twalk_r(table->root, on_node, &walk);
}
