/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model_heap.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/model_pages.h"

/* Functions of jemalloc and of the sanitizers; the linker decides which are present. */
__attribute__((weak)) __typeof__(mallctl) mallctl;
__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes(void); /* NOLINT: its name */

struct model_heap {
    unsigned index;      /* jemalloc's index */
    bool used;           /* in use by a model */
    const size_t *pages; /* pages in use, updated by jemalloc */
    uint64_t left_bytes; /* before the current model: leaked by earlier ones */
};

static bool
control(const char *name, void *old, size_t bytes)
{
    size_t got = bytes;
    return mallctl(name, old, &got, NULL, 0) == 0 && got == bytes;
}

static bool
control_one(const char *of, unsigned index, const char *what, void *old, size_t bytes)
{
    char name[64];
    snprintf(name, sizeof(name), "%s.%u.%s", of, index, what);
    if (bytes == 0)
        return mallctl(name, NULL, NULL, NULL, 0) == 0;
    return control(name, old, bytes);
}

static void
flush(void)
{
    (void)mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
}

void
heap_flush(void)
{
    if (mallctl != NULL)
        flush();
}

static uint64_t
page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- all of them ---- */

/* Makes jemalloc's figures include arenas created since the last call. */
static bool
look_again(void)
{
    uint64_t epoch = 1;
    size_t bytes = sizeof(epoch);
    return mallctl("epoch", &epoch, &bytes, &epoch, sizeof(epoch)) == 0;
}

/* Creates an arena that uses the page pool. Not with `retain`, under which jemalloc assumes that
 * memory behind a piece of an arena belongs to the same arena. */
static bool
heap_make(struct model_heap *heap)
{
    extent_hooks_t *hooks = &model_pages_hooks;
    size_t bytes = sizeof(heap->index);
    bool retains = true;
    if (!control("opt.retain", &retains, sizeof(retains)) || retains)
        return control("arenas.create", &heap->index, sizeof(heap->index));
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): passes a pointer */
    return mallctl("arenas.create", &heap->index, &bytes, &hooks, sizeof(hooks)) == 0;
}

/* Creates several at once, a quarter of the existing ones, because refreshing the figures takes 20
 * µs per arena. */
static bool
heaps_grow(struct heaps *heaps)
{
    enum { GROWTH_LEAST = 4 };
    uint32_t from = heaps->count;
    uint32_t to = from + GROWTH_LEAST + from / 4;
    uint32_t made = from;
    for (; made < to && made < HEAPS_MAX; made++) {
        if (!heap_make(&heaps->states[made]))
            break;
    }
    if (made == from || !look_again())
        return false;
    for (; heaps->count < made; heaps->count++) {
        struct model_heap *heap = &heaps->states[heaps->count];
        if (!control_one("experimental.arenas", heap->index, "pactivep", &heap->pages,
                         sizeof(heap->pages)))
            break;
    }
    return heaps->count > from;
}

/* Measures the overhead of the first heap, which each one has. */
static void
measure_own(struct heaps *heaps)
{
    size_t own = 0;
    if (control_one("stats.arenas", heaps->states[0].index, "base", &own, sizeof(own)))
        heaps->own_bytes = own;
}

bool
heaps_init(struct heaps *heaps)
{
    *heaps = (struct heaps){.states = NULL};
    if (mallctl == NULL)
        return true;
    heaps->states = calloc(HEAPS_MAX, sizeof(heaps->states[0]));
    if (heaps->states == NULL)
        return false;
    if (heaps_grow(heaps))
        measure_own(heaps);
    else
        heaps_fini(heaps); /* another jemalloc, without this counter */
    return true;
}

void
heaps_fini(struct heaps *heaps)
{
    free(heaps->states);
    *heaps = (struct heaps){.states = NULL};
}

/* ---- one ---- */

/* Returns this thread's net allocations, in any arena. */
static uint64_t
thread_bytes(void)
{
    uint64_t allocated = 0;
    uint64_t freed = 0;
    if (!control("thread.allocated", &allocated, sizeof(allocated)) ||
        !control("thread.deallocated", &freed, sizeof(freed)))
        return 0;
    return allocated - freed;
}

uint64_t
heap_bytes(const struct heaps *heaps, int32_t heap)
{
    if (heap != HEAP_NONE)
        return *heaps->states[heap].pages * page_bytes();
    if (mallctl != NULL)
        return thread_bytes();
    return __sanitizer_get_current_allocated_bytes != NULL
               ? __sanitizer_get_current_allocated_bytes()
               : 0;
}

/* Purges explicitly: jemalloc purges while allocating, and nothing allocates there any more. */
static void
heap_purge(const struct model_heap *state)
{
    (void)control_one("arena", state->index, "purge", NULL, 0);
}

int32_t
heap_acquire(struct heaps *heaps)
{
    if (heaps->states == NULL)
        return HEAP_NONE;
    uint32_t free_one = 0;
    while (free_one < heaps->count && heaps->states[free_one].used)
        free_one++;
    if (free_one == HEAPS_MAX || (free_one == heaps->count && !heaps_grow(heaps)))
        return HEAP_NONE;
    struct model_heap *state = &heaps->states[free_one];
    state->used = true;
    state->left_bytes = heap_bytes(heaps, (int32_t)free_one);
    return (int32_t)free_one;
}

void
heap_release(struct heaps *heaps, int32_t heap)
{
    if (heap == HEAP_NONE)
        return;
    heaps->states[heap].used = false;
    heap_purge(&heaps->states[heap]);
}

void
heap_enter(struct heaps *heaps, int32_t heap)
{
    if (heap == HEAP_NONE)
        return;
    flush(); /* or the cache would serve allocations from another arena */
    unsigned index = heaps->states[heap].index;
    size_t bytes = sizeof(heaps->outside);
    (void)mallctl("thread.arena", &heaps->outside, &bytes, &index, sizeof(index));
}

void
heap_leave(const struct heaps *heaps, int32_t heap)
{
    if (heap == HEAP_NONE)
        return;
    flush();
    unsigned outside = heaps->outside;
    (void)mallctl("thread.arena", NULL, NULL, &outside, sizeof(outside));
    heap_purge(&heaps->states[heap]);
}

uint64_t
heaps_leaked(const struct heaps *heaps)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; heaps->states != NULL && i < heaps->count; i++) {
        const struct model_heap *state = &heaps->states[i];
        bytes += state->used ? state->left_bytes : heap_bytes(heaps, (int32_t)i);
    }
    return bytes;
}
