/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that one model has given up and the next may use: stretches of whole pages, which stay
 * resident meanwhile. Adjacent stretches are merged, so that small pieces can serve a large
 * request. Pure: addresses and sizes in bytes; no page is touched.
 *
 * The pool is bounded in bytes and in stretches, and refuses more, which stays the giver's.
 * Allocates nothing. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PAGE_POOL_BYTES_MAX = 8 << 20, PAGE_POOL_STRETCHES_MAX = 512 };

struct page_stretch {
    uintptr_t from;
    size_t bytes;
};

/* All zero: empty. */
struct page_pool {
    size_t bytes;
    uint32_t count;
    struct page_stretch stretches[PAGE_POOL_STRETCHES_MAX]; /* sorted by address; never adjacent */
};

/* Adds a stretch, which must not be in the pool already. False: no room. */
bool page_pool_give(struct page_pool *pool, uintptr_t from, size_t bytes);

/* Takes `bytes` (not 0) from the smallest stretch that has them. 0: none has. */
uintptr_t page_pool_take(struct page_pool *pool, size_t bytes);
