/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The promises of jemalloc's hooks for the heaps of models, called as jemalloc calls them: pages
 * that were given up come again, as they are or as zeros, whichever is asked for; what is more than
 * is kept is refused; fresh memory is zero and lies as it was asked to. And that two threads which
 * meet there never have the same page.
 *
 * ctest: presets=tsan
 */
#include <pthread.h>
#include <string.h>

#include "../test.h"
#include "worker/model_pages.h"
#include "worker/page_pool.h"

enum { PAGE = 4096, MIB = 1 << 20, ZEROS = 1 };

/* As jemalloc asks; ZEROS: for bytes that are zero. */
static char *
ask(size_t bytes, size_t alignment, unsigned flags, bool *zero)
{
    bool commit = true;
    *zero = (flags & ZEROS) != 0;
    return model_pages_hooks.alloc(&model_pages_hooks, NULL, bytes, alignment, zero, &commit, 0);
}

static bool
give_up(void *pages, size_t bytes)
{
    return !model_pages_hooks.dalloc(&model_pages_hooks, pages, bytes, true, 0);
}

static void
assert_all(const char *pages, size_t bytes, char what)
{
    for (size_t i = 0; i < bytes; i++)
        if (pages[i] != what)
            fail_msg("byte %zu is %d, not %d", i, pages[i], what);
}

TEST_CASE(test_come_again)
{
    bool zero;
    char *first = ask(3 * MIB, PAGE, 0, &zero);
    assert_non_null(first);
    assert_true(zero);
    assert_all(first, 3 * MIB, 0);
    memset(first, 7, 3 * MIB);
    assert_true(give_up(first, 3 * MIB));
    assert_int_equal(model_pages_kept(), 3 * MIB);
    char *second = ask(MIB, PAGE, 0, &zero);
    assert_false(zero);
    assert_all(second, MIB, 7);
    assert_int_equal(model_pages_kept(), 2 * MIB);
    char *third = ask(2 * MIB, PAGE, ZEROS, &zero);
    assert_true(zero);
    assert_ptr_equal(third, second + MIB);
    assert_all(third, 2 * MIB, 0);
    assert_true(give_up(third, 2 * MIB) && give_up(second, MIB));
    assert_ptr_equal(ask(3 * MIB, PAGE, 0, &zero), first); /* whole again */
    assert_true(give_up(first, 3 * MIB));
}

TEST_CASE(test_refused)
{
    bool zero;
    bool commit = true;
    char *pages = ask(PAGE_POOL_BYTES_MAX + PAGE, PAGE, 0, &zero);
    assert_null(model_pages_hooks.alloc(&model_pages_hooks, pages + PAGE_POOL_BYTES_MAX + PAGE,
                                        PAGE, PAGE, &zero, &commit, 0));
    assert_false(give_up(pages, PAGE_POOL_BYTES_MAX + PAGE));
    memset(pages, 7, 2 * PAGE); /* and are the heap's still, which has them purged */
    assert_false(
        model_pages_hooks.purge_forced(&model_pages_hooks, pages, 4 * PAGE, PAGE, PAGE, 0));
    assert_all(pages, PAGE, 7);
    assert_all(pages + PAGE, PAGE, 0);
}

TEST_CASE(test_aligned)
{
    bool zero;
    for (size_t alignment = 2 * PAGE; alignment <= 4 * MIB; alignment *= 2) {
        char *pages = ask(2 * MIB, alignment, ZEROS, &zero);
        assert_non_null(pages);
        assert_int_equal((uintptr_t)pages % alignment, 0);
        assert_true(zero);
        memset(pages, 7, 2 * MIB); /* all of it is there */
    }
}

/* ---- two threads ---- */

enum { ROUNDS = 3000, HELD = 16 };

/* Writes its own number all over what it gets, and finds nothing else there when it gives it up. */
static void *
take_and_give(void *context)
{
    char mine = *(const char *)context;
    char *held[HELD] = {NULL};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        size_t bytes = (size_t)(1 + i * 7 % 5) * PAGE;
        char **place = &held[i % HELD];
        size_t was = (size_t)(1 + (i - HELD) * 7 % 5) * PAGE;
        for (size_t at = 0; *place != NULL && at < was; at += PAGE / 4)
            if ((*place)[at] != mine)
                return *place + at;
        if (*place != NULL)
            (void)give_up(*place, was);
        bool zero;
        *place = ask(bytes, PAGE, 0, &zero);
        memset(*place, mine, bytes);
    }
    return NULL;
}

TEST_CASE(test_two_threads)
{
    char numbers[2] = {1, 2};
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &numbers[i]), 0);
    for (size_t i = 0; i < 2; i++) {
        void *spoiled;
        assert_int_equal(pthread_join(threads[i], &spoiled), 0);
        assert_null(spoiled);
    }
}

TEST_MAIN()
