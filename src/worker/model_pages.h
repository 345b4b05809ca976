/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the heaps of models (model_heap.h) have their pages from, as jemalloc's extent hooks: pages
 * that a heap gives up are kept for the next (page_pool.h), up to PAGE_POOL_BYTES_MAX in a worker,
 * and go back to the machine beyond that. A load needs several times what is left of it in the end,
 * and an unload frees that: without this each load would begin with a page fault for every page,
 * and end with giving them back one by one, on a CPU that somebody else wants.
 *
 * Only without jemalloc's `retain` (main.c): with it an arena takes memory ahead, and takes what
 * lies behind its pieces for its own. So a heap gets exactly what it asks for, and what is in
 * memory is either in use by a model or here. Any thread: what `run` frees of a model it gives
 * back. Nobody waits for another: who finds somebody else at it goes to the kernel.
 */
#pragma once

#include <jemalloc/jemalloc.h>

extern extent_hooks_t model_pages_hooks;

/* How many bytes are kept. */
size_t model_pages_kept(void);
