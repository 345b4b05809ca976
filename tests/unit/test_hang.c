/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts on a place's word about its run, honest, late or garbage, on a scripted clock; and
 * when to look again. An impossible word is a run that began when it was first seen, through all
 * changes, until a possible one stands there.
 */

#include "../test.h"
#include "base/clock.h"
#include "coordinator/workers/hang.h"

enum { READY = 1000 };

TEST_CASE(test_honest_times_are_believed)
{
    struct run_watch watch = {0};
    assert_true(run_since_ns(&watch, 0, READY, 5000) == TIME_NEVER_NS);
    assert_true(run_since_ns(&watch, 4000, READY, 5000) == 4000);
    assert_true(run_since_ns(&watch, 4000, READY, 9000) == 4000);
    assert_true(run_since_ns(&watch, 9000, READY, 9000) == 9000);
    assert_true(run_since_ns(&watch, READY, READY, 9000) == READY);
    assert_true(run_since_ns(&watch, 0, READY, 9001) == TIME_NEVER_NS);
}

TEST_CASE(test_impossible_start_time_counts_from_first_sight)
{
    static const int64_t lies[] = {6000, INT64_MAX, -1, INT64_MIN, 1, READY - 1, INT64_MAX - 1};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct run_watch watch = {0};
        assert_true(run_since_ns(&watch, lies[i], READY, 5000) == 5000);
        /* it goes on, and is as old as the first of them */
        for (size_t k = 0; k < sizeof(lies) / sizeof(lies[0]); k++)
            assert_true(run_since_ns(&watch, lies[k], READY, 5001) == 5000);
    }
}

TEST_CASE(test_a_possible_word_ends_a_lie)
{
    struct run_watch watch = {0};
    assert_true(run_since_ns(&watch, INT64_MAX, READY, 5000) == 5000);
    assert_true(run_since_ns(&watch, 0, READY, 6000) == TIME_NEVER_NS);
    assert_true(run_since_ns(&watch, INT64_MAX, READY, 7000) == 7000);
    assert_true(run_since_ns(&watch, 7500, READY, 8000) == 7500);
    assert_true(run_since_ns(&watch, -5, READY, 9000) == 9000);
}

TEST_CASE(test_looks)
{
    const int64_t ms = NS_PER_MS;
    /* nothing runs: a quarter of the limit, at most 250 ms, at least 1 */
    assert_true(hang_look_after_ns(400 * ms, TIME_NEVER_NS, 0) == 100 * ms);
    assert_true(hang_look_after_ns(60000 * ms, TIME_NEVER_NS, 0) == 250 * ms);
    assert_true(hang_look_after_ns(ms, TIME_NEVER_NS, 0) == ms);
    /* something does: when it is over, if that is sooner */
    assert_true(hang_look_after_ns(400 * ms, 1070 * ms, 1000 * ms) == 70 * ms);
    assert_true(hang_look_after_ns(400 * ms, 1170 * ms, 1000 * ms) == 100 * ms);
    assert_true(hang_look_after_ns(400 * ms, 900 * ms, 1000 * ms) == ms);
    assert_true(hang_look_after_ns(400 * ms, INT64_MIN / 2, 1000 * ms) == ms);
}

/* A word that stands still: SIGCONT after the limit, SIGKILL after as long again; not for one that
 * moves, that is excused, or that moved after SIGCONT. */
TEST_CASE(test_silence)
{
    struct beat_watch watch = {0};
    assert_int_equal(beat_judge(&watch, 7, BEAT_DUE, 100, 1000), BEAT_FINE);
    assert_int_equal(beat_judge(&watch, 7, BEAT_DUE, 100, 1099), BEAT_FINE);
    assert_int_equal(beat_judge(&watch, 8, BEAT_DUE, 100, 5000), BEAT_FINE);
    assert_int_equal(beat_judge(&watch, 8, BEAT_EXCUSED, 100, 6000), BEAT_FINE);
    assert_int_equal(beat_judge(&watch, 8, BEAT_DUE, 100, 6100), BEAT_CONTINUE);
    assert_int_equal(beat_judge(&watch, 8, BEAT_DUE, 100, 6199), BEAT_FINE);
    assert_int_equal(beat_judge(&watch, 9, BEAT_DUE, 100, 6300), BEAT_FINE);
    assert_int_equal(beat_judge(&watch, 9, BEAT_DUE, 100, 6400), BEAT_CONTINUE);
    assert_int_equal(beat_judge(&watch, 9, BEAT_DUE, 100, 6500), BEAT_KILL);
}

TEST_MAIN()
