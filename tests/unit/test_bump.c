/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bump allocator: random pieces are aligned, keep what is written to them until the reset, and
 * do not overlap (each is filled with a byte of its own); a round that repeats itself allocates
 * nothing; what is kept is bounded; sizes that cannot be had are refused.
 */
#include <stdalign.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/bump.h"

enum { PIECES = 400, ROUNDS = 50 };

TEST_CASE(pieces_keep_their_bytes_until_the_reset)
{
    uint64_t random = random_seed(11);
    struct bump bump = {0};
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char *pieces[PIECES];
        size_t sizes[PIECES];
        uint32_t count = (uint32_t)(random_draw(&random) % PIECES);
        for (uint32_t i = 0; i < count; i++) {
            sizes[i] = random_draw(&random) >> (50 + random_draw(&random) % 14);
            pieces[i] = i % 2 == 0 ? bump_take(&bump, sizes[i]) : bump_take_zeroed(&bump, sizes[i]);
            assert_int_equal((uintptr_t)pieces[i] % alignof(max_align_t), 0);
            for (size_t at = 0; i % 2 == 1 && at < sizes[i]; at++)
                assert_int_equal(pieces[i][at], 0);
            memset(pieces[i], (int)(i % 255 + 1), sizes[i]);
        }
        for (uint32_t i = 0; i < count; i++)
            for (size_t at = 0; at < sizes[i]; at++)
                assert_int_equal(pieces[i][at], i % 255 + 1);
        bump_reset(&bump);
        assert_true(bump.used == 0 && bump.total <= BUMP_BYTES_KEPT_MAX);
    }
    bump_fini(&bump);
    assert_null(bump.chunks);
}

TEST_CASE(a_repeated_round_allocates_nothing)
{
    struct bump bump = {0};
    struct bump_chunk *chunk = NULL;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 30; i++)
            (void)bump_take(&bump, 1000);
        assert_true(round == 0 || bump.chunks == chunk);
        bump_reset(&bump);
        chunk = bump.chunks;
    }
    assert_in_range(bump.total, 30 * 1000, BUMP_BYTES_KEPT_MAX);
    bump_fini(&bump);
}

TEST_CASE(one_large_round_is_not_kept)
{
    struct bump bump = {0};
    (void)bump_take(&bump, 1);
    assert_int_equal(bump.total, BUMP_BYTES_FIRST);
    memset(bump_take(&bump, 10 * BUMP_BYTES_KEPT_MAX), 1, 10 * BUMP_BYTES_KEPT_MAX);
    assert_int_equal(bump.total, BUMP_BYTES_FIRST + 10 * BUMP_BYTES_KEPT_MAX);
    bump_reset(&bump);
    assert_int_equal(bump.total, BUMP_BYTES_KEPT_MAX);
    bump_fini(&bump);
    bump_reset(&bump);
    assert_int_equal(bump.total, 0);
}

TEST_CASE(impossible_sizes_are_refused)
{
    struct bump bump = {0};
    assert_null(bump_try(&bump, SIZE_MAX));
    assert_null(bump_try(&bump, SIZE_MAX / 2 + 1));
    assert_non_null(bump_try(&bump, 0));
    char *piece = bump_try(&bump, 1);
    *piece = 'x';
    assert_null(bump_try(&bump, SIZE_MAX));
    assert_int_equal(*piece, 'x');
    bump_fini(&bump);
}

TEST_MAIN()
