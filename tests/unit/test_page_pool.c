/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is kept for the next model: what is given can be had again, once, in other pieces
 * than it came in; the smallest stretch that will do is taken from; bytes and stretches are
 * bounded. By example, and by random gives and takes against a map that has a mark for every page.
 */
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/check.h"
#include "worker/page_pool.h"

enum { PAGE = 4096, FIRST = 16 * PAGE };

static uint64_t seed = 1;

static uint32_t
draw(uint32_t below)
{
    return (uint32_t)(random_draw(&seed) % below);
}

static bool
give(struct page_pool *pool, uint32_t from, uint32_t pages)
{
    return page_pool_give(pool, FIRST + (uintptr_t)from * PAGE, (size_t)pages * PAGE);
}

/* The number of the first page; UINT32_MAX: there is none. */
static uint32_t
take(struct page_pool *pool, uint32_t pages)
{
    uintptr_t from = page_pool_take(pool, (size_t)pages * PAGE);
    return from == 0 ? UINT32_MAX : (uint32_t)((from - FIRST) / PAGE);
}

TEST_CASE(test_neighbours_become_one)
{
    static struct page_pool pool;
    static const uint32_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}};
    assert_int_equal(take(&pool, 1), UINT32_MAX);
    for (size_t i = 0; i < ARRAY_COUNT(orders); i++) {
        for (size_t k = 0; k < 3; k++)
            assert_true(give(&pool, 100 + 2 * orders[i][k], 2));
        assert_int_equal(pool.count, 1);
        assert_int_equal(take(&pool, 7), UINT32_MAX);
        assert_int_equal(take(&pool, 6), 100);
        assert_int_equal(pool.bytes, 0);
        assert_int_equal(pool.count, 0);
    }
}

TEST_CASE(test_smallest_that_will_do)
{
    static struct page_pool pool;
    assert_true(give(&pool, 0, 9) && give(&pool, 20, 4) && give(&pool, 30, 5));
    assert_int_equal(take(&pool, 3), 20);
    assert_int_equal(take(&pool, 5), 30);
    assert_int_equal(take(&pool, 1), 23);
    assert_int_equal(take(&pool, 1), 0);
    assert_int_equal(take(&pool, 8), 1);
    assert_int_equal(take(&pool, 1), UINT32_MAX);
}

TEST_CASE(test_bounds)
{
    static struct page_pool pool;
    enum { PAGES_MAX = PAGE_POOL_BYTES_MAX / PAGE };
    assert_false(give(&pool, 0, PAGES_MAX + 1));
    assert_true(give(&pool, 0, PAGES_MAX));
    assert_false(give(&pool, PAGES_MAX, 1));
    assert_int_equal(take(&pool, PAGES_MAX), 0);
    for (uint32_t i = 0; i < PAGE_POOL_STRETCHES_MAX; i++)
        assert_true(give(&pool, 2 * i, 1));
    assert_false(give(&pool, 2 * PAGE_POOL_STRETCHES_MAX, 1));
    assert_true(give(&pool, 2 * PAGE_POOL_STRETCHES_MAX - 1, 1)); /* it joins the last */
    assert_true(give(&pool, 1, 1));                               /* and the first two */
    assert_true(give(&pool, 2 * PAGE_POOL_STRETCHES_MAX + 1, 1));
}

/* ---- against a map ---- */

enum { MAP_PAGES = 6000, KEPT = 1, LENT = 0 };

static uint32_t
length_from(const uint8_t *map, uint32_t at, uint8_t what)
{
    uint32_t end = at;
    while (end < MAP_PAGES && map[end] == what)
        end++;
    return end - at;
}

/* The pool equals the map, in as few stretches as possible. */
static void
compare(const struct page_pool *pool, const uint8_t *map)
{
    uint32_t count = 0;
    size_t bytes = 0;
    for (uint32_t at = 0; at < MAP_PAGES; at++) {
        uint32_t length = length_from(map, at, KEPT);
        if (length == 0)
            continue;
        assert_true(count < pool->count);
        assert_int_equal(pool->stretches[count].from, FIRST + (uintptr_t)at * PAGE);
        assert_int_equal(pool->stretches[count].bytes, (size_t)length * PAGE);
        bytes += (size_t)length * PAGE;
        count++;
        at += length;
    }
    assert_int_equal(pool->count, count);
    assert_int_equal(pool->bytes, bytes);
}

static void
random_give(struct page_pool *pool, uint8_t *map)
{
    uint32_t at = draw(MAP_PAGES);
    uint32_t length = length_from(map, at, LENT);
    if (length == 0)
        return;
    if (length > 40)
        length = 40;
    length = 1 + draw(length);
    if (give(pool, at, length))
        memset(map + at, KEPT, length);
    else
        assert_true(pool->bytes + (size_t)length * PAGE > PAGE_POOL_BYTES_MAX ||
                    pool->count == PAGE_POOL_STRETCHES_MAX);
}

static void
random_take(struct page_pool *pool, uint8_t *map)
{
    uint32_t pages = 1 + draw(draw(8) == 0 ? 200 : 8);
    uint32_t best = MAP_PAGES + 1;
    for (uint32_t at = 0; at < MAP_PAGES; at++) {
        uint32_t length = length_from(map, at, KEPT);
        if (length >= pages && length < best)
            best = length;
        at += length;
    }
    uint32_t from = take(pool, pages);
    assert_int_equal(from != UINT32_MAX, best <= MAP_PAGES);
    if (from == UINT32_MAX)
        return;
    assert_true(from == 0 || map[from - 1] == LENT); /* a stretch's beginning */
    assert_int_equal(length_from(map, from, KEPT), best);
    memset(map + from, LENT, pages);
}

TEST_CASE(test_random)
{
    static struct page_pool pool;
    static uint8_t map[MAP_PAGES];
    for (uint32_t i = 0; i < 6000; i++) {
        /* by turns rather full and rather empty */
        if (draw(8) < (i / 1500 % 2 == 0 ? 6u : 2u))
            random_give(&pool, map);
        else
            random_take(&pool, map);
        compare(&pool, map);
    }
}

TEST_MAIN()
