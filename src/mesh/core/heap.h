/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items, which are small numbers, in the order of a key that may change: the least first, ties by
 * number, so that the order is total. An item is in it at most once. O(log n).
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
    uint32_t *position; /* by item: its cell + 1, 0: not in it */
    uint32_t count;
    uint32_t cell_capacity;
    uint32_t item_capacity;
};

void heap_fini(struct heap *heap);

/* Puts the item in, or moves it to its new key. */
void heap_set(struct heap *heap, uint32_t item, int64_t key);
/* Nothing happens if it is not in it. */
void heap_remove(struct heap *heap, uint32_t item);

static inline bool
heap_has(const struct heap *heap, uint32_t item)
{
    return item < heap->item_capacity && heap->position[item] != 0;
}

static inline uint32_t
heap_first(const struct heap *heap)
{
    return heap->count == 0 ? HEAP_NONE : heap->cells[0].item;
}

/* The first one's key; INT64_MAX: there is none. */
static inline int64_t
heap_first_key(const struct heap *heap)
{
    return heap->count == 0 ? INT64_MAX : heap->cells[0].key;
}
