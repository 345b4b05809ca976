/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each caller's share in flight: that the hash depends on its key and on every bit of a name, and
 * spreads; the counts by hand, and with threads that take and give at random, after which nothing
 * is left.
 *
 * ctest: presets=tsan
 */
#include <stdio.h>
#include <stdlib.h>

#include <pthread.h>

#include "../random.h"
#include "../test.h"
#include "coordinator/pipeline/share.h"

TEST_CASE(test_keys_differ)
{
    struct share_key one = share_key_draw();
    struct share_key two = share_key_draw();
    assert_memory_not_equal(&one, &two, sizeof(one));
    assert_true(share_hash(one, "caller", 6) != share_hash(two, "caller", 6));
    assert_true(share_hash(one, "caller", 6) == share_hash(one, "caller", 6));
}

/* Every bit of a name matters, at every length, and so does the length. */
TEST_CASE(test_hash_sees_every_bit)
{
    struct share_key key = {{1, 2}};
    unsigned char name[40] = {0};
    for (size_t length = 0; length <= sizeof(name); length++) {
        uint64_t whole = share_hash(key, name, length);
        if (length > 0)
            assert_true(whole != share_hash(key, name, length - 1));
        for (size_t bit = 0; bit < 8 * length; bit++) {
            name[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_true(share_hash(key, name, length) != whole);
            name[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
}

/* Numbered names fall evenly: with 64 for each place, none gets twice its part. */
TEST_CASE(test_hash_spreads)
{
    uint32_t counts[SHARE_PLACES] = {0};
    struct share_key key = share_key_draw();
    for (uint32_t i = 0; i < SHARE_PLACES * 64; i++) {
        char name[32];
        int length = snprintf(name, sizeof(name), "tenant-%u", i);
        counts[share_place(share_hash(key, name, (size_t)length))]++;
    }
    for (uint32_t i = 0; i < SHARE_PLACES; i++)
        assert_true(counts[i] > 16 && counts[i] < 128);
}

TEST_CASE(test_counts)
{
    struct share share = {0};
    assert_int_equal(share_callers(&share, 7), 1); /* the asking caller counts */
    share_take(&share, 7);
    share_take(&share, 7);
    share_take(&share, 9);
    assert_int_equal(share_held(&share, 7), 2);
    assert_int_equal(share_total(&share), 3);
    assert_int_equal(share_callers(&share, 7), 2);
    assert_int_equal(share_callers(&share, 8), 3);
    share_give(&share, 7);
    assert_int_equal(share_callers(&share, 7), 2);
    share_give(&share, 7);
    assert_int_equal(share_callers(&share, 9), 1);
    share_give(&share, 9);
    assert_int_equal(share_total(&share), 0);
    assert_int_equal(share_callers(&share, 0), 1);
}

static struct share common;

static void *
take_and_give(void *context)
{
    uint64_t random = (uint64_t)(uintptr_t)context;
    uint32_t places[64];
    for (int round = 0; round < 2000; round++) {
        for (int i = 0; i < 64; i++) {
            places[i] = random_draw(&random) & 7;
            share_take(&common, places[i]);
        }
        uint32_t callers = share_callers(&common, places[0]);
        if (callers < 1 || callers > SHARE_PLACES)
            abort();
        for (int i = 0; i < 64; i++)
            share_give(&common, places[i]);
    }
    return NULL;
}

TEST_CASE(test_threads)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)i), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(share_total(&common), 0);
    for (uint32_t i = 0; i < SHARE_PLACES; i++)
        assert_int_equal(share_held(&common, i), 0);
    assert_int_equal(share_callers(&common, 0), 1);
    share_take(&common, 1);
    assert_int_equal(share_callers(&common, 1), 1);
    share_give(&common, 1);
}

TEST_MAIN()
