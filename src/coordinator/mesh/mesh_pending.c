/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_pending.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/id_table.h"

struct pending {
    pthread_mutex_t lock;
    struct id_table items;
};

struct pending *
pending_create(uint32_t count_max)
{
    struct pending *table = calloc(1, sizeof(*table));
    CHECK(table != NULL && count_max < UINT32_C(1) << 31);
    CHECK(pthread_mutex_init(&table->lock, NULL) == 0);
    id_table_init(&table->items, count_max);
    return table;
}

void
pending_destroy(struct pending *table)
{
    if (table == NULL)
        return;
    CHECK(table->items.count == 0);
    pthread_mutex_destroy(&table->lock);
    id_table_fini(&table->items);
    free(table);
}

uint64_t
pending_add(struct pending *table, struct pending_item *item)
{
    pthread_mutex_lock(&table->lock);
    uint32_t index = id_table_add(&table->items, item);
    uint64_t tag = 0;
    if (index != ID_NONE) {
        item->table = table;
        item->index = index;
        item->listed = true;
        atomic_store_explicit(&item->refs, 1, memory_order_relaxed);
        tag = (uint64_t)table->items.entries[index].generation << 32 | PENDING_TAG | index;
    }
    pthread_mutex_unlock(&table->lock);
    return tag;
}

void
pending_remove(struct pending_item *item)
{
    struct pending *table = item->table;
    pthread_mutex_lock(&table->lock);
    if (item->listed) {
        item->listed = false;
        id_table_remove(&table->items, item->index);
    }
    pthread_mutex_unlock(&table->lock);
}

struct pending_item *
pending_hold(struct pending *table, uint64_t tag)
{
    uint32_t index = (uint32_t)(tag & (PENDING_TAG - 1));
    if (!tag_is_pending(tag))
        return NULL;
    pthread_mutex_lock(&table->lock);
    struct pending_item *item = id_table_find(&table->items, index, (uint32_t)(tag >> 32));
    if (item != NULL)
        pending_ref(item);
    pthread_mutex_unlock(&table->lock);
    return item;
}

void
pending_cancel(struct pending *table, uint64_t tag)
{
    struct pending_item *item = pending_hold(table, tag);
    if (item == NULL)
        return;
    item->on_cancel(item);
    pending_unref(item);
}

void
pending_ref(struct pending_item *item)
{
    atomic_fetch_add_explicit(&item->refs, 1, memory_order_relaxed);
}

void
pending_unref(struct pending_item *item)
{
    if (atomic_fetch_sub_explicit(&item->refs, 1, memory_order_acq_rel) != 1)
        return;
    CHECK(!item->listed);
    item->destroy(item);
}

uint32_t
pending_count(struct pending *table)
{
    pthread_mutex_lock(&table->lock);
    uint32_t count = table->items.count;
    pthread_mutex_unlock(&table->lock);
    return count;
}
