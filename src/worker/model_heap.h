/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of models. Each model is loaded in a jemalloc arena of its own, and its size is the
 * arena's pages in use: that is what the machine has less of, and reading it costs one load. (The
 * bytes requested would be fewer: a model of a hundred small pieces takes six times as many bytes
 * in pages. And jemalloc sums them only for all arenas at once, 10 ms for 500.) Arenas are reused
 * when their model is gone. Memory left in one is a leak, and counted as such from then on,
 * whichever model has the arena next.
 *
 * Only the loading thread's allocations are seen. Without a free arena (HEAPS_MAX, or jemalloc's
 * limit) the size is what that thread has allocated and not freed. Memory that other threads free
 * is seen when their caches are flushed (heap_flush). Threads that a modelet starts allocate
 * elsewhere.
 *
 * Without jemalloc (builds with a sanitizer) there are no arenas: the size is the growth of all
 * allocations in the process, as reported by the sanitizer, which also finds the leaks. Without
 * either the size is 0.
 *
 * One thread, the loader, may use it, except heap_flush.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { HEAPS_MAX = 4000, HEAP_NONE = -1 };

struct model_heap;

struct heaps {
    struct model_heap *states; /* those created so far, at most HEAPS_MAX; NULL: no jemalloc */
    uint32_t count;
    uint64_t own_bytes; /* overhead of an arena */
    unsigned outside;   /* the arena that the thread used before heap_enter */
};

/* Allocates. False: no memory. */
bool heaps_init(struct heaps *heaps);
void heaps_fini(struct heaps *heaps);

/* Returns an arena for a model; HEAP_NONE: no jemalloc, or too many in use. */
int32_t heap_acquire(struct heaps *heaps);
/* Makes an arena whose model is gone available. */
void heap_release(struct heaps *heaps, int32_t heap);

/* Makes this thread allocate in the arena until heap_leave. */
void heap_enter(struct heaps *heaps, int32_t heap);
/* Leaves the arena and purges its unused pages. */
void heap_leave(const struct heaps *heaps, int32_t heap);

/* Returns the bytes in use now, for comparison with an earlier value. */
uint64_t heap_bytes(const struct heaps *heaps, int32_t heap);
/* Returns the bytes in use in arenas without a model, and those from before the current model in
 * the others. */
uint64_t heaps_leaked(const struct heaps *heaps);

/* Flushes this thread's cache of freed memory. Any thread. */
void heap_flush(void);
