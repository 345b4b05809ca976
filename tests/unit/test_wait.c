/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long an adaptive batch waits for company (worker/wait.h), rule by rule on a scripted clock: a
 * lone caller, callers in a loop whose number changes, gaps too long to be worth it, items that our
 * runs hold up and such that they don't, items that are seen late, another worker that gathers
 * meanwhile, and times and counts as nobody in his right mind would write them. test_wait_sim.c
 * judges the rules' use.
 */

#include "../random.h"
#include "../test.h"
#include "base/clock.h"
#include "worker/wait.h"

enum { FIXED_NS = 100000, ITEM_NS = 2000, BACK_NS = 30000, GAP_NS = 3000, START_NS = 1000000000 };

static struct wait_moment
moment(int64_t now_ns, uint32_t count, uint32_t flight)
{
    return (struct wait_moment){now_ns, count, flight, FIXED_NS, ITEM_NS, TIME_NEVER_NS};
}

static bool
waits(const struct wait *wait, int64_t now_ns, uint32_t count, uint32_t flight)
{
    struct wait_moment at = moment(now_ns, count, flight);
    return wait_until(wait, &at) > now_ns;
}

/* Closes and runs; returns when that is over. */
static int64_t
run(struct wait *wait, int64_t now_ns, uint32_t count, uint32_t flight, uint32_t arrived)
{
    struct wait_moment at = moment(now_ns, count, flight);
    wait_closed(wait, &at);
    int64_t ended_ns = now_ns + FIXED_NS + (int64_t)ITEM_NS * count;
    wait_ran(wait, now_ns, ended_ns, count, arrived);
    return ended_ns;
}

/* Those that came while the last run went on. */
static void
take_from_ring(struct wait *wait, int64_t now_ns, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        wait_arrived(wait, now_ns - 10, now_ns);
}

/*
 * One round of callers in a loop, all of which come back `GAP_NS` after one another. The batch
 * closes by the rules, and later callers come while it runs. Returns how many were in it; `vain_ns`
 * is for how long it stayed open after the last that it got.
 */
static uint32_t
round_of(struct wait *wait, int64_t *now_ns, uint32_t in_ring, uint32_t callers, int64_t *vain_ns)
{
    uint32_t count = in_ring;
    *vain_ns = 0;
    take_from_ring(wait, *now_ns, in_ring);
    int64_t next_ns = *now_ns + BACK_NS;
    if (count == 0) {
        *now_ns = next_ns;
        wait_arrived(wait, *now_ns, *now_ns);
        count = 1;
        next_ns += GAP_NS;
    }
    for (;;) {
        struct wait_moment at = moment(*now_ns, count, count);
        int64_t until_ns = wait_until(wait, &at);
        if (until_ns <= *now_ns)
            break;
        if (count < callers && next_ns <= until_ns) {
            *now_ns = next_ns;
            wait_arrived(wait, next_ns, *now_ns);
            next_ns += GAP_NS;
            count++;
            *vain_ns = 0;
        } else {
            *vain_ns += until_ns - *now_ns;
            *now_ns = until_ns;
        }
    }
    *now_ns = run(wait, *now_ns, count, count, callers - count);
    return count;
}

TEST_CASE(test_a_lone_caller_is_never_waited_with)
{
    struct wait wait = {0};
    int64_t now_ns = START_NS;
    for (int i = 0; i < 500; i++) {
        now_ns += i % 3 == 0 ? 1 : BACK_NS;
        wait_arrived(&wait, now_ns, now_ns);
        assert_false(waits(&wait, now_ns, 1, 1));
        now_ns = run(&wait, now_ns, 1, 1, 0);
    }
}

TEST_CASE(test_no_cost_no_wait)
{
    struct wait wait = {0};
    wait_arrived(&wait, START_NS, START_NS);
    struct wait_moment at = moment(START_NS, 1, 9);
    assert_true(wait_until(&wait, &at) > START_NS); /* nothing seen yet: tried */
    at.fixed_ns = 0;
    assert_true(wait_until(&wait, &at) <= START_NS);
    at.fixed_ns = 1; /* as good as nothing is to be gained */
    assert_true(wait_until(&wait, &at) <= START_NS);
}

/* Only an item that joins others of its model saves a run. */
TEST_CASE(test_items_of_other_models_are_no_company)
{
    struct wait wait = {0};
    wait_arrived(&wait, START_NS, START_NS);
    assert_true(waits(&wait, START_NS, 1, 9));
    for (int i = 0; i < 1000; i++)
        wait_met(&wait, WAIT_STRANGER);
    assert_false(waits(&wait, START_NS, 1, 9));
    for (int i = 0; i < 100000; i++)
        wait_met(&wait, WAIT_JOINS);
    assert_true(waits(&wait, START_NS, 1, 9));
}

/* Arrivals after the batch closes anyway are never seen, and must not be hoped for: else a
 * batch would be held open to its bound each time. */
TEST_CASE(test_nothing_is_expected_beyond_the_bound)
{
    enum { BOUND_NS = 20000 };
    struct wait wait = {0};
    int64_t now_ns = START_NS;
    int waited = 0;
    for (int i = 0; i < 200; i++) {
        now_ns += NS_PER_MS;
        wait_arrived(&wait, now_ns, now_ns);
        struct wait_moment at = moment(now_ns, 1, 9);
        at.close_ns = now_ns + BOUND_NS;
        int64_t until_ns = wait_until(&wait, &at);
        assert_true(until_ns <= at.close_ns);
        waited += until_ns > now_ns;
        now_ns = run(&wait, until_ns > now_ns ? until_ns : now_ns, 1, 9, 0);
    }
    assert_in_range(waited, 1, 100); /* it is tried now and then */
}

/* All of them in each batch, which closes in the moment in which the last has come. */
TEST_CASE(test_callers_in_a_loop)
{
    for (uint32_t callers = 2; callers <= 16; callers *= 2) {
        struct wait wait = {0};
        int64_t now_ns = START_NS;
        int64_t vain_ns;
        uint32_t count = 0;
        for (int i = 0; i < 20; i++)
            count = round_of(&wait, &now_ns, (callers - count) % callers, callers, &vain_ns);
        for (int i = 0; i < 200; i++) {
            assert_int_equal(round_of(&wait, &now_ns, 0, callers, &vain_ns), callers);
            assert_int_equal(vain_ns, 0);
        }
    }
}

/* Arrivals during the run reveal more of them, a wait without an arrival fewer. */
TEST_CASE(test_callers_come_and_go)
{
    struct wait wait = {0};
    int64_t now_ns = START_NS;
    int64_t vain_ns;
    for (int i = 0; i < 100; i++)
        round_of(&wait, &now_ns, 0, 4, &vain_ns);
    assert_int_equal(round_of(&wait, &now_ns, 0, 8, &vain_ns), 4);
    assert_int_equal(round_of(&wait, &now_ns, 4, 8, &vain_ns), 8);
    for (int i = 0; i < 100; i++)
        assert_int_equal(round_of(&wait, &now_ns, 0, 8, &vain_ns), 8);
    assert_int_equal(round_of(&wait, &now_ns, 0, 2, &vain_ns), 2);
    assert_true(vain_ns > 0 && vain_ns < FIXED_NS);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(round_of(&wait, &now_ns, 0, 2, &vain_ns), 2);
        assert_int_equal(vain_ns, 0);
    }
}

/* When the batch closes if nothing comes. */
static int64_t
alone_until(const struct wait *wait, int64_t now_ns, uint32_t count, uint32_t flight)
{
    for (;;) {
        struct wait_moment at = moment(now_ns, count, flight);
        int64_t until_ns = wait_until(wait, &at);
        if (until_ns <= now_ns)
            return now_ns;
        now_ns = until_ns;
    }
}

/* One comes in each run, `back_ns` after the one before it ended, so two are about. Returns in how
 * many rounds they met; `vain_ns` is what was waited when they did not. */
static int
alternate(struct wait *wait, int64_t back_ns, int rounds, int64_t *now_ns, int64_t *vain_ns)
{
    int met = 0;
    *vain_ns = 0;
    for (int i = 0; i < rounds; i++) {
        int64_t began_ns = *now_ns;
        take_from_ring(wait, began_ns, 1);
        *now_ns = alone_until(wait, began_ns, 1, 2);
        if (*now_ns >= began_ns + back_ns) {
            *now_ns = began_ns + back_ns;
            wait_arrived(wait, *now_ns, *now_ns);
            met++;
        } else {
            *vain_ns += *now_ns - began_ns;
        }
        *now_ns = run(wait, *now_ns, 1, 2, 1);
    }
    return met;
}

/* Two callers, one of which waits while the other is served: together, if that is sooner. */
TEST_CASE(test_two_in_turn)
{
    struct wait wait = {0};
    int64_t now_ns = run(&wait, START_NS, 1, 2, 1);
    int64_t vain_ns;
    assert_true(alternate(&wait, FIXED_NS / 8, 100, &now_ns, &vain_ns) >= 99);
    assert_true(alternate(&wait, 4 * FIXED_NS, 100, &now_ns, &vain_ns) == 0); /* it finds out */
    assert_true(alternate(&wait, 4 * FIXED_NS, 1000, &now_ns, &vain_ns) == 0);
    assert_true(vain_ns < (int64_t)1000 * FIXED_NS / 50); /* and tries again now and then */
    assert_true(alternate(&wait, FIXED_NS / 8, 1000, &now_ns, &vain_ns) >= 800);
}

/* Half of the gaps are short, half are long: after the first stretch it is not worth the second,
 * but a worker that wakes up late, when that is nearly over, waits for its end. */
TEST_CASE(test_passed_time_counts)
{
    struct wait wait = {0};
    int64_t now_ns = START_NS;
    wait_arrived(&wait, now_ns, now_ns);
    for (int i = 0; i < 200; i++) {
        now_ns += i % 2 == 0 ? 1500 : 100000;
        wait_arrived(&wait, now_ns, now_ns);
    }
    struct wait_moment at = moment(now_ns, 1, 2);
    assert_true(wait_until(&wait, &at) == now_ns + 2048);
    assert_false(waits(&wait, now_ns + 2048, 1, 2));
    assert_true(waits(&wait, now_ns + 65000, 1, 2));
}

/* A batch of which nobody was left to be run ends no run, and is no second gap. */
/* The same wait, if others had our CPU: then nobody knows whether more would have come. */
TEST_CASE(test_unseen_time_does_not_count)
{
    struct wait wait = {0};
    int64_t now_ns = START_NS;
    int64_t vain_ns;
    for (int i = 0; i < 200; i++)
        round_of(&wait, &now_ns, 0, 8, &vain_ns);
    int64_t came_ns = now_ns + BACK_NS;
    struct wait on_time = wait;
    wait_arrived(&on_time, came_ns, came_ns + GAP_NS);
    assert_true(waits(&on_time, came_ns + GAP_NS, 1, 8));
    assert_false(waits(&on_time, came_ns + 2000000, 1, 8));
    wait_arrived(&wait, came_ns, came_ns + 2000000);
    assert_true(waits(&wait, came_ns + 2000000, 1, 8));
    assert_false(waits(&wait, came_ns + 4000000, 1, 8)); /* that we saw */
    /* one that had come meanwhile is a gap like any other: none of those that the next is late */
    wait_arrived(&wait, came_ns + GAP_NS, came_ns + 2000000);
    assert_int_equal(wait.gaps[WAIT_AFTER_ARRIVAL].ended[2],
                     on_time.gaps[WAIT_AFTER_ARRIVAL].ended[2] + 1);
}

TEST_CASE(test_closed_and_not_run)
{
    struct wait wait = {0};
    wait_arrived(&wait, START_NS, START_NS);
    struct wait_moment at = moment(START_NS + 5000, 1, 9);
    wait_closed(&wait, &at);
    assert_int_equal(wait.gaps[WAIT_AFTER_ARRIVAL].count, 1);
    wait_arrived(&wait, START_NS + 9000, START_NS + 9000);
    assert_int_equal(wait.gaps[WAIT_AFTER_ARRIVAL].count, 1);
}

/* The joiner's own part delays all the others: where that is most of a run it is not worth it. */
TEST_CASE(test_long_items)
{
    struct wait wait = {0};
    wait_arrived(&wait, START_NS, START_NS);
    wait.looked_ns = 1; /* nothing is held up, by what was seen */
    struct wait_moment at = moment(START_NS, 4, 9);
    assert_true(wait_until(&wait, &at) > START_NS);
    at.item_ns = FIXED_NS / 4;
    assert_true(wait_until(&wait, &at) <= START_NS);
}

/* Items come at a steady rate, three to a batch, `others` in flight elsewhere; in a run come
 * `in_run`, and after each nobody comes for `idle_ns`. */
static int64_t
steady(struct wait *wait, int64_t gap_ns, uint32_t others, uint32_t in_run, int64_t idle_ns)
{
    int64_t now_ns = START_NS;
    for (int i = 0; i < 200; i++) {
        now_ns += idle_ns;
        for (uint32_t n = 0; n < 3; n++) {
            now_ns += gap_ns;
            wait_arrived(wait, now_ns, now_ns);
        }
        now_ns = run(wait, now_ns, 3, 3 + others, in_run);
    }
    return now_ns;
}

static bool
steady_waits(int64_t gap_ns, uint32_t others, uint32_t in_run, int64_t idle_ns)
{
    struct wait wait = {0};
    int64_t now_ns = steady(&wait, gap_ns, others, in_run, idle_ns) + gap_ns;
    wait_arrived(&wait, now_ns, now_ns);
    return waits(&wait, now_ns, 8, 8 + others);
}

/* After a batch of 30 the callers are at home, none is in flight but those in hand. */
static bool
home_waits(int64_t gap_ns, uint32_t in_run)
{
    struct wait wait = {0};
    int64_t now_ns = steady(&wait, gap_ns, 40, in_run, 0);
    now_ns = run(&wait, now_ns, 30, 70, 0) + gap_ns;
    wait_arrived(&wait, now_ns, now_ns);
    return waits(&wait, now_ns, 8, 8);
}

TEST_CASE(test_runs_that_hold_up_the_others)
{
    const int64_t gap_ns = FIXED_NS / 5;
    assert_true(steady_waits(gap_ns, 40, 0, 0));        /* our CPU is theirs, too */
    assert_true(steady_waits(gap_ns, 40, 0, NS_PER_S)); /* in bursts, with long rests between */
    assert_false(steady_waits(gap_ns, 40, 5, 0));       /* they come anyway */
    assert_false(steady_waits(gap_ns, 0, 0, 0));        /* there are none to hold up */
    assert_false(steady_waits(100 * gap_ns, 9, 0, 0));  /* not worth it even so */
    assert_true(home_waits(gap_ns, 0));                 /* the callers' CPU is ours, too */
    assert_false(home_waits(gap_ns, 5));
}

/* Another stage's batches come in clumps of equal times: there is no waiting for the next clump. */
TEST_CASE(test_clumps)
{
    struct wait wait = {0};
    int64_t now_ns = START_NS;
    int64_t vain_ns = 0;
    for (int i = 0; i < 110; i++) {
        int64_t clump_ns = now_ns + 20 * FIXED_NS;
        now_ns = clump_ns + 700;
        for (int n = 0; n < 8; n++)
            wait_arrived(&wait, clump_ns, now_ns);
        int64_t closed_ns = alone_until(&wait, now_ns, 8, 16);
        assert_true(closed_ns - now_ns < FIXED_NS);
        vain_ns += i < 10 ? 0 : closed_ns - now_ns;
        now_ns = run(&wait, closed_ns, 8, 16, 0);
    }
    assert_true(vain_ns < (int64_t)100 * FIXED_NS / 10);
}

/* An arrival while another worker gathers is not our gap. */
TEST_CASE(test_another_gathers)
{
    struct wait wait = {0};
    int64_t now_ns = run(&wait, START_NS, 2, 9, 0);
    struct wait before = wait;
    wait_looked_away(&wait);
    assert_false(waits(&wait, now_ns, 1, 9)); /* nothing to count from */
    wait_arrived(&wait, now_ns + NS_PER_S, now_ns + NS_PER_S);
    assert_memory_equal(wait.gaps, before.gaps, sizeof(wait.gaps));
    assert_true(wait.looked_ns <= before.looked_ns);
    wait_arrived(&wait, now_ns + NS_PER_S + 5, now_ns + NS_PER_S + 5);
    assert_int_equal(wait.gaps[WAIT_AFTER_ARRIVAL].count, 1);
}

/* ---- nonsense ---- */

static uint64_t random_state = 1;

static uint64_t
draw(void)
{
    return random_draw(&random_state);
}

static int64_t
draw_time(int64_t now_ns)
{
    switch (draw() % 6) {
    case 0: return INT64_MIN;
    case 1: return INT64_MAX;
    case 2: return (int64_t)draw();
    case 3: return now_ns - (int64_t)(draw() % 100000);
    case 4: return now_ns + (int64_t)(draw() % 100000);
    default: return now_ns;
    }
}

/* For any input: no overflow (the sanitizer looks on), counts within bounds, events never in the
 * future, and an answer within the last octave. */
TEST_CASE(test_nonsense)
{
    struct wait wait = {0};
    int64_t now_ns = START_NS;
    for (int i = 0; i < 200000; i++) {
        now_ns += (int64_t)(draw() % (draw() % 50 == 0 ? NS_PER_S : 20000));
        uint32_t count = 1 + (uint32_t)(draw() % (draw() % 2 == 0 ? 4 : 65535));
        uint32_t flight = draw() % 3 == 0 ? (uint32_t)draw() : count + (uint32_t)(draw() % 9);
        struct wait_moment at = moment(now_ns, count, flight);
        at.fixed_ns = draw() % 9 == 0 ? INT64_MAX : (int64_t)(draw() % (2 * FIXED_NS));
        at.item_ns = draw() % 9 == 0 ? INT64_MAX : ITEM_NS;
        wait_arrived(&wait, draw_time(now_ns), now_ns);
        int64_t until_ns = wait_until(&wait, &at);
        assert_true(until_ns >= 0 && until_ns < now_ns + (INT64_C(1) << 38));
        assert_true(wait.event_ns <= now_ns);
        if (draw() % 3 == 0) {
            wait_closed(&wait, &at);
            wait_ran(&wait, now_ns - (int64_t)(draw() % 9999), now_ns, count,
                     draw() % 9 == 0 ? UINT32_MAX : (uint32_t)(draw() % 99));
        }
        assert_true(wait.gaps[0].count <= 100 && wait.gaps[1].count <= 100);
        assert_true(wait.came_items <= wait.due_items);
    }
    /* and sense prevails soon after */
    int64_t vain_ns;
    for (int i = 0; i < 300; i++)
        round_of(&wait, &now_ns, 0, 4, &vain_ns);
    assert_int_equal(round_of(&wait, &now_ns, 0, 4, &vain_ns), 4);
    assert_int_equal(vain_ns, 0);
}

TEST_MAIN()
