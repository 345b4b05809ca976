/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stamps of a trace become runs by the rules in trace.h: scripted cases of each rule, and
 * stamps of random words, as a hostile worker would write them, of which nothing may come that lies
 * outside the request or out of order.
 */
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "coordinator/telemetry/trace.h"

static struct trace trace;
static struct trace_run runs[STAMPS_MAX];

/* From 1,000 to 2,000, in three stages of two workers each and batches of up to four. */
static int
setup(void **state)
{
    (void)state;
    memset(&trace, 0, sizeof(trace));
    trace.admitted = true;
    trace.began_ns = 1000;
    trace.ended_ns = 2000;
    trace.failed_stage = TRACE_STAGE_NONE;
    trace.stage_count = 3;
    for (uint32_t i = 0; i < trace.stage_count; i++) {
        trace.stages[i].worker_count = 2;
        trace.stages[i].batch_size = 4;
    }
    return 0;
}

static void
stamp(uint32_t stage, int64_t enqueued_ns, int64_t began_ns, int64_t ended_ns)
{
    trace.stages[stage].stamped = true;
    trace.stages[stage].stamp = (struct stamp){.enqueued_ns = enqueued_ns,
                                               .began_ns = began_ns,
                                               .ended_ns = ended_ns,
                                               .batch_items = 3,
                                               .stage = stage,
                                               .worker = 1,
                                               .pid = 77};
}

static void
lose(uint32_t stage, int64_t enqueued_ns, int64_t began_ns, int64_t ended_ns)
{
    trace.lost[trace.lost_count++] = (struct stamp){
        .enqueued_ns = enqueued_ns, .began_ns = began_ns, .ended_ns = ended_ns, .stage = stage};
    trace.deaths++;
}

#define assert_times(run, enqueued, began, ended)                                                  \
    do {                                                                                           \
        assert_int_equal((run).enqueued_ns, enqueued);                                             \
        assert_int_equal((run).began_ns, began);                                                   \
        assert_int_equal((run).ended_ns, ended);                                                   \
    } while (0)

TEST_CASE(test_honest)
{
    stamp(0, 1010, 1100, 1200);
    stamp(1, 1200, 1250, 1500);
    stamp(2, 1500, 1500, 1990);
    assert_int_equal(trace_make_runs(&trace, runs), 3);
    assert_times(runs[0], 1010, 1100, 1200);
    assert_times(runs[1], 1200, 1250, 1500);
    assert_times(runs[2], 1500, 1500, 1990);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(runs[i].stage, i);
        assert_int_equal(runs[i].attempt, 1);
        assert_int_equal(runs[i].worker, 1);
        assert_int_equal(runs[i].batch_items, 3);
        assert_int_equal(runs[i].pid, 77);
        assert_true(runs[i].was_run && runs[i].has_worker);
        assert_false(runs[i].lost || runs[i].unfinished);
    }
}

TEST_CASE(test_not_admitted)
{
    stamp(0, 1010, 1100, 1200);
    trace.admitted = false;
    assert_int_equal(trace_make_runs(&trace, runs), 0);
}

TEST_CASE(test_lost_runs_come_first)
{
    lose(1, 1200, 1210, 1300);
    lose(1, 1200, 1310, 1400);
    stamp(0, 1010, 1100, 1200);
    stamp(1, 1200, 1450, 1500); /* it has waited since it came to the stage */
    assert_int_equal(trace_make_runs(&trace, runs), 4);
    assert_times(runs[1], 1200, 1210, 1300);
    assert_times(runs[2], 1300, 1310, 1400);
    assert_times(runs[3], 1400, 1450, 1500);
    assert_true(runs[1].lost && runs[2].lost);
    assert_false(runs[3].lost);
    for (uint32_t i = 1; i < 4; i++)
        assert_int_equal(runs[i].attempt, i);
}

/* Rule 1: a worker can forge lost runs, but not deaths. */
TEST_CASE(test_no_more_lost_than_died)
{
    for (uint32_t i = 0; i < STAMPS_LOST_MAX; i++)
        lose(0, 1010, 1020, 1030);
    trace.deaths = 2;
    assert_int_equal(trace_make_runs(&trace, runs), 2);
    trace.deaths = 0;
    assert_int_equal(trace_make_runs(&trace, runs), 0);
    trace.deaths = 1;
    trace.lost[0].stage = 3; /* which there is not */
    assert_int_equal(trace_make_runs(&trace, runs), 0);
}

TEST_CASE(test_outside)
{
    stamp(0, 1, INT64_MAX, 1200);
    stamp(1, 1100, 900, INT64_MAX);
    stamp(2, INT64_MIN, INT64_MIN, INT64_MIN);
    assert_int_equal(trace_make_runs(&trace, runs), 3);
    assert_times(runs[0], 1000, 1200, 1200);
    assert_times(runs[1], 1200, 1200, 2000);
    assert_times(runs[2], 2000, 2000, 2000);
}

TEST_CASE(test_unfinished)
{
    stamp(0, 1010, 1100, 0);
    assert_int_equal(trace_make_runs(&trace, runs), 1);
    assert_times(runs[0], 1010, 1100, 2000);
    assert_true(runs[0].unfinished && runs[0].was_run);
}

TEST_CASE(test_never_ran)
{
    stamp(0, 1010, 0, 1500);
    assert_int_equal(trace_make_runs(&trace, runs), 1);
    assert_times(runs[0], 1010, 1500, 1500);
    assert_false(runs[0].was_run || runs[0].unfinished);
    assert_int_equal(runs[0].batch_items, 0);
}

TEST_CASE(test_impossible_numbers)
{
    stamp(0, 1010, 1100, 1200);
    trace.stages[0].stamp.worker = 2;
    trace.stages[0].stamp.batch_items = 5;
    trace.stages[0].stamp.pid = -1;
    assert_int_equal(trace_make_runs(&trace, runs), 1);
    assert_false(runs[0].has_worker);
    assert_int_equal(runs[0].batch_items, 0);
    assert_int_equal(runs[0].pid, 0);
}

static uint64_t
draw(void)
{
    static uint64_t seed = 1;
    return random_draw(&seed);
}

/* Near what is right, and far from it. */
static int64_t
draw_time(void)
{
    uint64_t choice = draw() % 4;
    if (choice == 0)
        return 0;
    return choice == 1 ? (int64_t)draw() : (int64_t)(900 + draw() % 1200);
}

static struct stamp
draw_stamp(void)
{
    return (struct stamp){.enqueued_ns = draw_time(),
                          .began_ns = draw_time(),
                          .ended_ns = draw_time(),
                          .batch_items = (uint32_t)draw() >> draw() % 32,
                          .stage = (uint32_t)(draw() % 4),
                          .worker = (uint32_t)draw() >> draw() % 32,
                          .pid = (int32_t)draw()};
}

static void
check_run(const struct trace_run *run, int64_t since_ns)
{
    assert_true(run->enqueued_ns >= since_ns && run->enqueued_ns <= run->began_ns);
    assert_true(run->began_ns <= run->ended_ns && run->ended_ns <= trace.ended_ns);
    assert_true(run->stage < trace.stage_count && run->batch_items <= 4 && run->pid >= 0);
    assert_true(!run->has_worker || run->worker < 2);
}

TEST_CASE_WITH(test_random_words, NULL, NULL)
{
    for (uint32_t round = 0; round < 20000; round++) {
        setup(state);
        trace.lost_count = (uint32_t)(draw() % (STAMPS_LOST_MAX + 1));
        trace.deaths = (uint32_t)(draw() % 12);
        for (uint32_t i = 0; i < trace.stage_count; i++) {
            trace.stages[i].stamped = draw() % 4 != 0;
            trace.stages[i].stamp = draw_stamp();
        }
        for (uint32_t i = 0; i < trace.lost_count; i++)
            trace.lost[i] = draw_stamp();
        uint32_t count = trace_make_runs(&trace, runs);
        assert_true(count <= trace.stage_count + trace.lost_count);
        int64_t since_ns = trace.began_ns;
        for (uint32_t i = 0; i < count; i++) {
            check_run(&runs[i], since_ns);
            assert_true(i == 0 || runs[i].stage >= runs[i - 1].stage);
            since_ns = runs[i].ended_ns;
        }
    }
}

TEST_CASE_WITH(test_text_is_cut_between_characters, NULL, NULL)
{
    char text[8];
    (void)state;
    trace_copy_text(text, sizeof(text), "1234567");
    assert_string_equal(text, "1234567");
    trace_copy_text(text, sizeof(text), "12345678");
    assert_string_equal(text, "1234567");
    trace_copy_text(text, sizeof(text), "123456\xc3\xa4");
    assert_string_equal(text, "123456");
    trace_copy_text(text, sizeof(text), "12345\xf0\x9f\x98\x80xyz");
    assert_string_equal(text, "12345");
    trace_copy_text(text, sizeof(text), "");
    assert_string_equal(text, "");
    trace_copy_text(text, sizeof(text), "\x80\x80\x80\x80\x80\x80\x80\x80\x80");
    assert_string_equal(text, "");
}

TEST_MAIN(.setup = setup)
