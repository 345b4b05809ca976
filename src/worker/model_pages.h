/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of models' heaps (model_heap.h), as jemalloc's extent hooks. Pages that a heap gives up
 * are kept for the next heap (page_pool.h), up to PAGE_POOL_BYTES_MAX per worker, and returned to
 * the machine beyond that. A load needs several times the memory that remains in the end, and an
 * unload frees that: without the pool each load would begin with a page fault per page and end by
 * returning the pages one by one, on a CPU that other threads want.
 *
 * Requires jemalloc without `retain` (main.c), with which an arena takes memory ahead and merges
 * pieces with neighbouring memory. A heap then gets exactly what it asks for, and all resident
 * pages are either in use by a model or in the pool. Any thread, because `run` may free a model's
 * memory. No thread waits for another: one that finds the pool busy goes to the kernel.
 */
#pragma once

#include <jemalloc/jemalloc.h>

extern extent_hooks_t model_pages_hooks;

/* Returns the bytes kept in the pool. */
size_t model_pages_kept(void);
