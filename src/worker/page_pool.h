/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that one model has given up and the next may have: stretches of whole pages, which stay in
 * memory meanwhile. Neighbours become one, so that a large piece can be had of what was given in
 * small ones. Pure: addresses and sizes, in bytes; no page is looked at.
 *
 * Its content is bounded, in bytes and in stretches; it does not take more, which stays the
 * giver's. Takes no memory. Not thread-safe.
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
    struct page_stretch stretches[PAGE_POOL_STRETCHES_MAX]; /* by address; none touches the next */
};

/* False: there is no room for it. It must not be there already. */
bool page_pool_give(struct page_pool *pool, uintptr_t from, size_t bytes);

/* Takes so many bytes, more than none, of the smallest stretch that has them. 0: none has. */
uintptr_t page_pool_take(struct page_pool *pool, size_t bytes);
