/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory a model takes: each is loaded in an arena of jemalloc of its own, and what the
 * arena has in use is counted in pages, which is what the machine has less of, and costs one load
 * to know. (What was asked for would be less: a model of a hundred small pieces takes six times as
 * many bytes in pages. And jemalloc only sums it up for all arenas at once, 10 ms where there are
 * 500.) Arenas are used again when their model is gone; what is left in one is a leak, and counted
 * as that from then on, whoever has the arena next.
 *
 * Seen is what the loading thread allocates. Beyond HEAPS_MAX, or what jemalloc allows, it is what
 * that thread has allocated and not freed. What other threads free is seen when their caches were
 * flushed (heap_flush). Threads that a modelet starts allocate elsewhere.
 *
 * Without jemalloc in the process (builds with a sanitizer) there are no arenas: the size is by how
 * much all that is allocated in the process has grown, where the sanitizer tells, and leaks are its
 * matter. Without either nothing is known, 0.
 *
 * For one thread, the loader, but heap_flush.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { HEAPS_MAX = 4000, HEAP_NONE = -1 };

struct heap;

struct heaps {
    struct heap *states; /* those that were made, HEAPS_MAX at most; NULL: no jemalloc */
    uint32_t count;
    uint64_t own_bytes; /* what an arena itself takes */
    unsigned outside;   /* where the thread that is in one of ours was before */
};

/* False: no memory. */
bool heaps_init(struct heaps *heaps);
void heaps_fini(struct heaps *heaps);

/* One for a model; HEAP_NONE: there is no jemalloc, or too many are in use. */
int32_t heap_acquire(struct heaps *heaps);
/* Its model is gone. */
void heap_release(struct heaps *heaps, int32_t heap);

/* From now until heap_leave this thread allocates there. */
void heap_enter(struct heaps *heaps, int32_t heap);
/* Unused pages go back to the machine. */
void heap_leave(const struct heaps *heaps, int32_t heap);

/* The bytes allocated there now, to compare with an earlier value. */
uint64_t heap_bytes(const struct heaps *heaps, int32_t heap);
/* In all that have no model, and what was there before those that have one. */
uint64_t heaps_leaked(const struct heaps *heaps);

/* Gives back what this thread has freed and its cache still holds. Any thread. */
void heap_flush(void);
