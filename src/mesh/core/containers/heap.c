/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/containers/heap.h"
#include "base/check.h"
#include "mesh/core/containers/scratch.h"

#include <stdlib.h>

void
heap_fini(struct heap *heap)
{
    free(heap->cells);
    free(heap->position);
    *heap = (struct heap){0};
}

static bool
before(struct heap_cell a, struct heap_cell b)
{
    return a.key != b.key ? a.key < b.key : a.item < b.item;
}

static void
put(struct heap *heap, uint32_t at, struct heap_cell cell)
{
    heap->cells[at] = cell;
    heap->position[cell.item] = at + 1;
}

/* Sifts the cell to its position, starting from the hole at `at`. */
static void
sift(struct heap *heap, uint32_t at, struct heap_cell cell)
{
    while (at > 0 && before(cell, heap->cells[(at - 1) / 2])) {
        put(heap, at, heap->cells[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(heap->cells[child + 1], heap->cells[child]))
            child++;
        if (!before(heap->cells[child], cell))
            break;
        put(heap, at, heap->cells[child]);
        at = child;
    }
    put(heap, at, cell);
}

void
heap_set(struct heap *heap, uint32_t item, int64_t key)
{
    CHECK(item != HEAP_NONE);
    scratch_grow((void **)&heap->position, &heap->item_capacity, item + 1, sizeof(*heap->position));
    uint32_t at = heap->position[item];
    if (at == 0) {
        scratch_grow((void **)&heap->cells, &heap->cell_capacity, heap->count + 1,
                     sizeof(*heap->cells));
        at = ++heap->count;
    }
    sift(heap, at - 1, (struct heap_cell){.key = key, .item = item});
}

void
heap_remove(struct heap *heap, uint32_t item)
{
    if (!heap_has(heap, item))
        return;
    uint32_t hole = heap->position[item] - 1;
    heap->position[item] = 0;
    struct heap_cell last = heap->cells[--heap->count];
    if (hole < heap->count)
        sift(heap, hole, last);
}

void
heap_check(const struct heap *heap)
{
    uint32_t items = 0;
    for (uint32_t item = 0; item < heap->item_capacity; item++)
        items += heap->position[item] != 0;
    CHECK(items == heap->count);
    for (uint32_t i = 0; i < heap->count; i++) {
        const struct heap_cell cell = heap->cells[i];
        CHECK(cell.item < heap->item_capacity && heap->position[cell.item] == i + 1);
        CHECK(i == 0 || before(heap->cells[(i - 1) / 2], cell));
    }
}
