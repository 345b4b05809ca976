/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A priority queue of small integers with changeable keys: least key first, ties by item, so the
 * order is total. An item occurs at most once. O(log n).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HEAP_NONE UINT32_MAX

struct heap_cell {
    int64_t key;
    uint32_t item;
};

struct heap {
    struct heap_cell *cells;
    uint32_t *position; /* by item: its cell + 1; 0: absent */
    uint32_t count;
    uint32_t cell_capacity;
    uint32_t item_capacity;
};

void heap_fini(struct heap *heap);

/* Inserts the item or changes its key. */
void heap_set(struct heap *heap, uint32_t item, int64_t key);
/* Does nothing if the item is absent. */
void heap_remove(struct heap *heap, uint32_t item);

/* Each cell is in order and its item's position points back. O(capacity). */
void heap_check(const struct heap *heap);

static inline bool
heap_has(const struct heap *heap, uint32_t item)
{
    return item < heap->item_capacity && heap->position[item] != 0;
}

/* The key of an item that it has. */
static inline int64_t
heap_key(const struct heap *heap, uint32_t item)
{
    return heap->cells[heap->position[item] - 1].key;
}

static inline uint32_t
heap_first(const struct heap *heap)
{
    return heap->count == 0 ? HEAP_NONE : heap->cells[0].item;
}

/* The first item's key; INT64_MAX: empty. */
static inline int64_t
heap_first_key(const struct heap *heap)
{
    return heap->count == 0 ? INT64_MAX : heap->cells[0].key;
}
