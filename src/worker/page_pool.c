/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page_pool.h"

#include <string.h>

/* Returns how many stretches begin before `from`. */
static uint32_t
count_before(const struct page_pool *pool, uintptr_t from)
{
    uint32_t least = 0;
    uint32_t most = pool->count;
    while (least < most) {
        uint32_t middle = least + (most - least) / 2;
        if (pool->stretches[middle].from < from)
            least = middle + 1;
        else
            most = middle;
    }
    return least;
}

static void
insert(struct page_pool *pool, uint32_t at, uintptr_t from, size_t bytes)
{
    struct page_stretch *stretch = &pool->stretches[at];
    memmove(stretch + 1, stretch, (pool->count++ - at) * sizeof(*stretch));
    *stretch = (struct page_stretch){from, bytes};
}

static void
remove_one(struct page_pool *pool, uint32_t at)
{
    struct page_stretch *stretch = &pool->stretches[at];
    memmove(stretch, stretch + 1, (--pool->count - at) * sizeof(*stretch));
}

bool
page_pool_give(struct page_pool *pool, uintptr_t from, size_t bytes)
{
    if (bytes > PAGE_POOL_BYTES_MAX - pool->bytes)
        return false;
    uint32_t at = count_before(pool, from);
    struct page_stretch *before = at > 0 ? &pool->stretches[at - 1] : NULL;
    struct page_stretch *behind = at < pool->count ? &pool->stretches[at] : NULL;
    bool joins_before = before != NULL && before->from + before->bytes == from;
    bool joins_behind = behind != NULL && from + bytes == behind->from;
    if (joins_before) {
        before->bytes += bytes;
        if (joins_behind) {
            before->bytes += behind->bytes;
            remove_one(pool, at);
        }
    } else if (joins_behind) {
        *behind = (struct page_stretch){from, behind->bytes + bytes};
    } else if (pool->count < PAGE_POOL_STRETCHES_MAX) {
        insert(pool, at, from, bytes);
    } else {
        return false;
    }
    pool->bytes += bytes;
    return true;
}

uintptr_t
page_pool_take(struct page_pool *pool, size_t bytes)
{
    struct page_stretch *best = NULL;
    for (uint32_t i = 0; i < pool->count; i++) {
        struct page_stretch *stretch = &pool->stretches[i];
        if (stretch->bytes >= bytes && (best == NULL || stretch->bytes < best->bytes))
            best = stretch;
        if (stretch->bytes == bytes)
            break;
    }
    if (best == NULL)
        return 0;
    uintptr_t from = best->from;
    *best = (struct page_stretch){from + bytes, best->bytes - bytes};
    if (best->bytes == 0)
        remove_one(pool, (uint32_t)(best - pool->stretches));
    pool->bytes -= bytes;
    return from;
}
