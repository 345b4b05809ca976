/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model_pages.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/page_pool.h"

/* The least size to map, so that the pieces of one load are adjacent. */
enum { CHUNK_BYTES = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct page_pool pool; /* under the lock */

/* ---- the pool ---- */

static void *
take(size_t bytes)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return NULL;
    uintptr_t from = page_pool_take(&pool, bytes);
    pthread_mutex_unlock(&lock);
    return (void *)from; /* NOLINT(performance-no-int-to-ptr): an address given to the pool */
}

static bool
give(const void *from, size_t bytes)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return false;
    bool given = page_pool_give(&pool, (uintptr_t)from, bytes);
    pthread_mutex_unlock(&lock);
    return given;
}

size_t
model_pages_kept(void)
{
    pthread_mutex_lock(&lock);
    size_t bytes = pool.bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* ---- the machine ---- */

static void *
map(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

/* Maps more than requested; the untouched rest goes to the pool. */
static void *
map_chunk(size_t bytes)
{
    if (bytes >= CHUNK_BYTES)
        return map(bytes);
    char *pages = map(CHUNK_BYTES);
    if (pages != NULL && !give(pages + bytes, CHUNK_BYTES - bytes))
        munmap(pages + bytes, CHUNK_BYTES - bytes);
    return pages;
}

static void *
map_aligned(size_t bytes, size_t alignment)
{
    char *pages = map(bytes + alignment);
    if (pages == NULL)
        return NULL;
    size_t before = -(uintptr_t)pages & (alignment - 1);
    if (before > 0)
        munmap(pages, before);
    munmap(pages + before + bytes, alignment - before);
    return pages + before;
}

/* ---- jemalloc's side ---- */

/* `at` asks for an extension in place, which jemalloc can do without. */
static void *
pages_alloc(extent_hooks_t *hooks, void *at, size_t bytes, size_t alignment, bool *zero,
            bool *commit, unsigned arena) /* NOLINT(readability-non-const-parameter): its type */
{
    (void)hooks, (void)commit, (void)arena;
    if (at != NULL)
        return NULL;
    bool aligns = alignment > (size_t)sysconf(_SC_PAGESIZE);
    void *pages = aligns ? NULL : take(bytes);
    if (pages == NULL) {
        *zero = true;
        return aligns ? map_aligned(bytes, alignment) : map_chunk(bytes);
    }
    if (*zero)
        memset(pages, 0, bytes);
    return pages;
}

/* True: refused; the heap keeps the pages and purges them. */
static bool
pages_dalloc(extent_hooks_t *hooks, void *pages, size_t bytes, bool committed, unsigned arena)
{
    (void)hooks, (void)committed, (void)arena;
    return !give(pages, bytes);
}

static bool
pages_purge(extent_hooks_t *hooks, void *pages, size_t bytes, size_t offset, size_t length,
            unsigned arena)
{
    (void)hooks, (void)bytes, (void)arena;
    return madvise((char *)pages + offset, length, MADV_DONTNEED) != 0;
}

/* False (allowed): any adjacent pieces may be merged, and any piece split. */
static bool
pages_split(extent_hooks_t *hooks, void *pages, size_t bytes, size_t first, size_t second,
            bool committed, unsigned arena)
{
    (void)hooks, (void)pages, (void)bytes, (void)first, (void)second, (void)committed, (void)arena;
    return false;
}

static bool
pages_merge(extent_hooks_t *hooks, void *first, size_t first_bytes, void *second,
            size_t second_bytes, bool committed, unsigned arena)
{
    (void)hooks, (void)first, (void)first_bytes, (void)second, (void)second_bytes;
    (void)committed, (void)arena;
    return false;
}

extent_hooks_t model_pages_hooks = {
    .alloc = pages_alloc,
    .dalloc = pages_dalloc,
    .purge_forced = pages_purge,
    .split = pages_split,
    .merge = pages_merge,
};
