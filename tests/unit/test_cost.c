/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's estimate of its runs' cost, on scripted runs: a line through runs of different sizes,
 * exact and with noise; sizes that do not vary; a first run that was cold, one that was stopped; a
 * modelet that becomes slower; and that what no run has tested for a second is not acted upon.
 */

#include <math.h>

#include "../random.h"
#include "../test.h"
#include "base/clock.h"
#include "worker/cost.h"

enum { FIXED_NS = 2000000, ITEM_NS = 500000 };

static uint64_t seed = 1;

static int64_t
noisy(double ns, double sigma)
{
    double normal = sqrt(-2 * log(random_unit(&seed))) * cos(2 * M_PI * random_unit(&seed));
    return (int64_t)(ns * exp(sigma * normal - sigma * sigma / 2));
}

static void
assert_near(double value, double wanted, double part)
{
    if (fabs(value - wanted) > part * wanted)
        fail_msg("%g is not within %g of %g", value, part, wanted);
}

/* A cost that has had its cold run. */
static struct cost
warm(void)
{
    struct cost cost = {0};
    cost_learn(&cost, 1, 77, 1);
    return cost;
}

TEST_CASE(test_nothing_known)
{
    struct cost cost = {0};
    assert_int_equal(cost_expect_ns(&cost, 32), 0);
    assert_int_equal(cost_tested_ns(&cost, 32, 5), 0);
}

TEST_CASE(test_first_run_is_cold)
{
    struct cost cost = {0};
    cost_learn(&cost, 1, 3 * NS_PER_S, 10);
    assert_int_equal(cost_expect_ns(&cost, 1), 3 * NS_PER_S);
    cost_learn(&cost, 1, 1000, 20);
    assert_int_equal(cost_expect_ns(&cost, 1), 1000);
    cost_learn(&cost, 1, 3000, 20);
    assert_in_range(cost_expect_ns(&cost, 1), 1900, 2100);
}

TEST_CASE(test_line)
{
    struct cost cost = warm();
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t items = 1 + i * 7 % 32;
        cost_learn(&cost, items, FIXED_NS + (int64_t)ITEM_NS * items, i);
    }
    struct cost_line line = cost_line(&cost);
    assert_near(line.fixed_ns, FIXED_NS, 0.01);
    assert_near(line.item_ns, ITEM_NS, 0.01);
    assert_near((double)cost_expect_ns(&cost, 32), FIXED_NS + 32.0 * ITEM_NS, 0.01);
    assert_true(cost.spread_ns < FIXED_NS);
}

/* With sigma 0.5 one run in ten is off by more than a half: the line must hold all the same. */
TEST_CASE(test_line_through_noise)
{
    double off_sum = 0;
    for (int round = 0; round < 200; round++) {
        struct cost cost = warm();
        for (uint32_t i = 0; i < 300; i++) {
            uint32_t items = 1 + (uint32_t)(random_unit(&seed) * 31);
            cost_learn(&cost, items, noisy(FIXED_NS + (double)ITEM_NS * items, 0.5), i);
        }
        double expected = (double)cost_expect_ns(&cost, 32) / (FIXED_NS + 32.0 * ITEM_NS);
        assert_true(expected > 0.5 && expected < 2);
        off_sum += fabs(expected - 1);
        struct cost_line line = cost_line(&cost);
        assert_true(line.fixed_ns >= 0 && line.item_ns >= 0);
        assert_near(cost.spread_ns, 0.4 * (FIXED_NS + 16.0 * ITEM_NS), 0.5);
    }
    assert_true(off_sum / 200 < 0.15);
}

/* All alike: as if all of it were fixed, so the mean is right for that size, and small for more. */
TEST_CASE(test_one_size_only)
{
    struct cost cost = warm();
    for (uint32_t i = 0; i < 50; i++)
        cost_learn(&cost, 1, 100000, i);
    assert_near((double)cost_expect_ns(&cost, 1), 100000, 0.001);
    assert_near((double)cost_expect_ns(&cost, 32), 100000, 0.001);
}

/* The learned division stays when the sizes cease to vary, and only the level moves. */
TEST_CASE(test_division_is_kept)
{
    struct cost cost = warm();
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t items = 1 + i * 7 % 32;
        cost_learn(&cost, items, FIXED_NS + (int64_t)ITEM_NS * items, i);
    }
    for (uint32_t i = 0; i < 500; i++)
        cost_learn(&cost, 32, FIXED_NS + (int64_t)ITEM_NS * 32, i);
    for (uint32_t i = 0; i < 500; i++)
        cost_learn(&cost, 32, 2 * (FIXED_NS + (int64_t)ITEM_NS * 32), i);
    struct cost_line line = cost_line(&cost);
    assert_near(line.fixed_ns, 2.0 * FIXED_NS, 0.15);
    assert_near(line.item_ns, 2.0 * ITEM_NS, 0.05);
}

/* Costs that fall with the size make no negative part. */
TEST_CASE(test_no_negative_parts)
{
    struct cost cost = warm();
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t items = 1 + i % 10;
        cost_learn(&cost, items, 1000000 / items, i);
        assert_true(cost_expect_ns(&cost, 1) >= 0 && cost_expect_ns(&cost, 4096) >= 0);
    }
    cost = warm();
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t items = 1 + i % 10;
        cost_learn(&cost, items, (int64_t)items * items * 1000, i); /* the fit is below zero at 0 */
        struct cost_line line = cost_line(&cost);
        assert_true(line.fixed_ns >= 0 && line.item_ns >= 0);
    }
    cost_learn(&cost, 1, -5, 100);
    cost_learn(&cost, 1, 0, 101);
    assert_true(cost_expect_ns(&cost, 1) > 0);
}

TEST_CASE(test_a_stopped_run_counts_little)
{
    struct cost cost = warm();
    for (uint32_t i = 0; i < 100; i++)
        cost_learn(&cost, 1, 1000000, i);
    cost_learn(&cost, 1, 60 * NS_PER_S, 100);
    assert_true(cost_expect_ns(&cost, 1) < 2 * 1000000);
}

/* However few runs are known, before and after: one run later the expectation is what it was. */
TEST_CASE(test_a_stall_is_over_with_the_next_run)
{
    for (uint32_t before = 0; before < 10; before++) {
        struct cost cost = warm();
        for (uint32_t i = 0; i < before; i++)
            cost_learn(&cost, 1 + i % 4, 26 * NS_PER_MS, i);
        cost_learn(&cost, 4, 5 * NS_PER_S, before);
        cost_learn(&cost, 4, 26 * NS_PER_MS, before + 1);
        assert_true(cost_expect_ns(&cost, 1) < 27 * NS_PER_MS);
        assert_true(cost_expect_ns(&cost, 4) < 27 * NS_PER_MS);
        assert_true(cost.spread_ns < NS_PER_MS);
    }
}

TEST_CASE(test_sizes_that_vary_are_no_stalls)
{
    struct cost cost = warm();
    for (uint32_t i = 0; i < 50; i++) {
        cost_learn(&cost, 1, NS_PER_MS, i);
        cost_learn(&cost, 64, 64 * NS_PER_MS, i);
    }
    assert_near((double)cost_expect_ns(&cost, 64), 64 * NS_PER_MS, 0.1);
    assert_near((double)cost_expect_ns(&cost, 1), NS_PER_MS, 0.1);
}

TEST_CASE(test_slower_is_noticed)
{
    struct cost cost = warm();
    for (uint32_t i = 0; i < 100; i++)
        cost_learn(&cost, 1, 1000, i);
    for (uint32_t i = 0; i < 200; i++)
        cost_learn(&cost, 1, 1000000, i);
    assert_near((double)cost_expect_ns(&cost, 1), 1000000, 0.1);
    for (uint32_t i = 0; i < 400; i++)
        cost_learn(&cost, 1, 1000, i);
    assert_near((double)cost_expect_ns(&cost, 1), 1000, 0.1);
}

TEST_CASE(test_untested_is_not_acted_upon)
{
    struct cost cost = warm();
    int64_t ran_ns = 5 * NS_PER_S;
    cost_learn(&cost, 1, 1000, ran_ns);
    assert_int_equal(cost_tested_ns(&cost, 1, ran_ns + NS_PER_S), 1000);
    assert_int_equal(cost_tested_ns(&cost, 1, ran_ns + NS_PER_S + 1), 0);
    assert_int_equal(cost_expect_ns(&cost, 1), 1000);
}

TEST_MAIN()
