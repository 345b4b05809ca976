/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_pending.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"

struct place {
    struct pending_item *item; /* NULL: free */
    uint32_t generation;       /* of the last item; never 0 once there was one */
    uint32_t next_free;
};

struct pending {
    pthread_mutex_t lock;
    struct place *places;
    uint32_t count_max;
    uint32_t used; /* places that were ever taken */
    uint32_t free; /* the first of a list; count_max: none */
    uint32_t count;
};

struct pending *
pending_create(uint32_t count_max)
{
    struct pending *table = calloc(1, sizeof(*table));
    CHECK(table != NULL && count_max < UINT32_C(1) << 31);
    CHECK(pthread_mutex_init(&table->lock, NULL) == 0);
    table->places = calloc(count_max, sizeof(*table->places));
    CHECK(table->places != NULL);
    table->count_max = table->free = count_max;
    return table;
}

void
pending_destroy(struct pending *table)
{
    if (table == NULL)
        return;
    CHECK(table->count == 0);
    pthread_mutex_destroy(&table->lock);
    free(table->places);
    free(table);
}

uint64_t
pending_add(struct pending *table, struct pending_item *item)
{
    pthread_mutex_lock(&table->lock);
    uint32_t index = table->free;
    if (index < table->count_max)
        table->free = table->places[index].next_free;
    else if (table->used < table->count_max)
        index = table->used++;
    uint64_t tag = 0;
    if (index < table->count_max) {
        struct place *place = &table->places[index];
        place->generation += 1 + (place->generation == UINT32_MAX);
        place->item = item;
        item->table = table;
        item->index = index;
        item->generation = place->generation;
        item->listed = true;
        atomic_store_explicit(&item->refs, 1, memory_order_relaxed);
        table->count++;
        tag = (uint64_t)place->generation << 32 | PENDING_TAG | index;
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
        struct place *place = &table->places[item->index];
        item->listed = false;
        place->item = NULL;
        place->next_free = table->free;
        table->free = item->index;
        table->count--;
    }
    pthread_mutex_unlock(&table->lock);
}

struct pending_item *
pending_hold(struct pending *table, uint64_t tag)
{
    uint32_t index = (uint32_t)(tag & (PENDING_TAG - 1));
    if (!tag_is_pending(tag) || index >= table->count_max)
        return NULL;
    pthread_mutex_lock(&table->lock);
    struct pending_item *item = table->places[index].item;
    if (item != NULL && item->generation == (uint32_t)(tag >> 32))
        pending_ref(item);
    else
        item = NULL;
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
    if (atomic_fetch_sub_explicit(&item->refs, 1, memory_order_acq_rel) == 1)
        item->destroy(item);
}

uint32_t
pending_count(struct pending *table)
{
    pthread_mutex_lock(&table->lock);
    uint32_t count = table->count;
    pthread_mutex_unlock(&table->lock);
    return count;
}
