/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a stage is quarantined, on a scripted clock: each rule of coordinator/workers/quarantine.h
 * by itself, then random deaths against an oracle that counts the row anew from the whole history.
 */

#include "../random.h"
#include "../test.h"
#include "base/clock.h"
#include "coordinator/workers/quarantine.h"

enum { MAX = 4, LENGTH = 100 };

static struct quarantine quarantine;

static int
fresh(void **state)
{
    (void)state;
    quarantine_init(&quarantine, MAX, LENGTH);
    return 0;
}

static void
die(uint32_t times, enum death_blame blame)
{
    for (uint32_t i = 0; i < times; i++)
        assert_false(quarantine_on_death(&quarantine, blame, 0));
}

TEST_CASE(test_fruitless_deaths_in_a_row)
{
    die(MAX - 1, DEATH_FRUITLESS);
    assert_int_equal(quarantine.state, QUARANTINE_NONE);
    assert_true(quarantine_on_death(&quarantine, DEATH_FRUITLESS, 7));
    assert_int_equal(quarantine.state, QUARANTINE_ON);
    assert_int_equal(quarantine.deaths, MAX);
    assert_true(quarantine.until_ns == 7 + LENGTH);
}

TEST_CASE(test_a_fruitful_life_ends_the_row)
{
    for (int i = 0; i < 10; i++) {
        die(MAX - 1, DEATH_FRUITLESS);
        die(1, DEATH_FRUITFUL);
    }
    assert_int_equal(quarantine.deaths, 0);
    die(100, DEATH_FRUITFUL);
}

TEST_CASE(test_the_blameless_neither_count_nor_end_it)
{
    die(100, DEATH_BLAMELESS);
    die(MAX - 1, DEATH_FRUITLESS);
    die(100, DEATH_BLAMELESS);
    assert_true(quarantine_on_death(&quarantine, DEATH_FRUITLESS, 0));
}

TEST_CASE(test_never)
{
    quarantine_init(&quarantine, 0, LENGTH);
    die(100000, DEATH_FRUITLESS);
    assert_int_equal(quarantine.state, QUARANTINE_NONE);
}

static void
begin(int64_t now_ns)
{
    die(MAX - 1, DEATH_FRUITLESS);
    assert_true(quarantine_on_death(&quarantine, DEATH_FRUITLESS, now_ns));
}

TEST_CASE(test_it_lasts_its_length)
{
    begin(5);
    /* of the remaining workers: nothing more to do */
    assert_false(quarantine_on_death(&quarantine, DEATH_FRUITLESS, 50));
    assert_false(quarantine_on_death(&quarantine, DEATH_FRUITFUL, 50));
    assert_int_equal(quarantine.state, QUARANTINE_ON);
    assert_false(quarantine_try(&quarantine, 5 + LENGTH - 1));
    assert_true(quarantine_try(&quarantine, 5 + LENGTH));
    assert_int_equal(quarantine.state, QUARANTINE_TRIAL);
    assert_false(quarantine_try(&quarantine, 5 + LENGTH)); /* once */
}

TEST_CASE(test_death_in_the_trial_leads_back)
{
    begin(0);
    assert_true(quarantine_try(&quarantine, LENGTH));
    assert_false(quarantine_on_death(&quarantine, DEATH_BLAMELESS, LENGTH)); /* try another */
    assert_int_equal(quarantine.state, QUARANTINE_TRIAL);
    assert_true(quarantine_on_death(&quarantine, DEATH_FRUITLESS, LENGTH + 9));
    assert_int_equal(quarantine.deaths, MAX + 1);
    assert_false(quarantine_try(&quarantine, LENGTH + LENGTH + 8));
    assert_true(quarantine_try(&quarantine, LENGTH + LENGTH + 9));
}

TEST_CASE(test_life_restores_the_stage)
{
    begin(0);
    assert_true(quarantine_try(&quarantine, LENGTH));
    quarantine_lift(&quarantine, TRIAL_LIVED);
    assert_int_equal(quarantine.state, QUARANTINE_NONE);
    /* nothing has been finished yet: half of the row stays */
    die(MAX / 2 - 1, DEATH_FRUITLESS);
    assert_true(quarantine_on_death(&quarantine, DEATH_FRUITLESS, LENGTH));
    assert_true(quarantine_try(&quarantine, 2 * LENGTH));
    quarantine_lift(&quarantine, TRIAL_FRUITFUL);
    die(MAX - 1, DEATH_FRUITLESS);
}

TEST_CASE(test_fruit_in_the_trial_restores_it_too)
{
    begin(0);
    assert_true(quarantine_try(&quarantine, LENGTH));
    assert_false(quarantine_on_death(&quarantine, DEATH_FRUITFUL, LENGTH));
    assert_int_equal(quarantine.state, QUARANTINE_NONE);
    die(MAX - 1, DEATH_FRUITLESS);
}

enum { DEATHS = 2000, ROUNDS = 20 };

TEST_CASE_WITH(test_random_deaths, NULL, NULL)
{
    uint64_t random = random_seed((uint64_t)clock_now_ns());
    uint32_t quarantines = 0;
    for (int round = 0; round < ROUNDS; round++) {
        static enum death_blame history[DEATHS];
        quarantine_init(&quarantine, MAX, LENGTH);
        uint32_t count = 0;
        while (count < DEATHS && quarantine.state == QUARANTINE_NONE) {
            history[count] = (enum death_blame)(random_draw(&random) % 3);
            bool begins = quarantine_on_death(&quarantine, history[count], count);
            count++;
            uint32_t row = 0;
            for (uint32_t i = count; i > 0 && history[i - 1] != DEATH_FRUITFUL; i--)
                row += history[i - 1] == DEATH_FRUITLESS;
            bool last_counts = history[count - 1] == DEATH_FRUITLESS;
            assert_int_equal(begins, last_counts && row >= MAX);
        }
        quarantines += quarantine.state == QUARANTINE_ON;
    }
    assert_true(quarantines > 0);
}

TEST_MAIN(.setup = fresh)
