/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small numbers for objects under way: ids below a limit, reused ones first, so that other tables
 * can be indexed by them. Each use of an id has a generation, by which a stale reference to its
 * former object is recognized. Memory doubles up to the largest number in use so far; a failed
 * allocation ends the process (CHECK).
 *
 * Objects remain their owner's. Not locked.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ID_NONE UINT32_MAX

struct id_entry {
    void *object;        /* NULL: free */
    uint32_t generation; /* of the last use; never 0 once there was one */
    uint32_t next_free;
};

struct id_table {
    struct id_entry *entries;
    uint32_t max;
    uint32_t capacity;
    uint32_t used; /* ids given out so far, including free ones */
    uint32_t first_free;
    uint32_t count;
};

/* The table holds at most `max` objects, and `max` is less than ID_NONE. */
void id_table_init(struct id_table *table, uint32_t max);
void id_table_fini(struct id_table *table);

/* Returns the object's id; ID_NONE: the table is full. `object` is not NULL. */
uint32_t id_table_add(struct id_table *table, void *object);
/* The id is in use (CHECK). */
void id_table_remove(struct id_table *table, uint32_t id);

/* NULL: the id is free, or beyond the table. */
static inline void *
id_table_at(const struct id_table *table, uint32_t id)
{
    return id < table->used ? table->entries[id].object : NULL;
}

/* Like id_table_at(), but also returns NULL if the id's object is of another generation. */
static inline void *
id_table_find(const struct id_table *table, uint32_t id, uint32_t generation)
{
    return id < table->used && table->entries[id].generation == generation
               ? table->entries[id].object
               : NULL;
}
