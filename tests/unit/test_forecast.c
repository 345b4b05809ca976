/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission as a pure function: the workers' words about their runs become a forecast (hostile and
 * outdated words included), and forecast, deadline, slots, priority and the caller's own share
 * become a verdict. The last tests play whole overloads on scripted time: a queue that is served at
 * the forecast's pace, callers that ask far too often, and each caller's part of it.
 */

#include "../test.h"
#include "base/clock.h"
#include "coordinator/pipeline/forecast.h"

enum { MS = NS_PER_MS };
static const int64_t NOW = 100 * NS_PER_S;

/* ---- forecasts ---- */

static struct forecast_words
words(int64_t fixed_ns, int64_t item_ns)
{
    return (struct forecast_words){
        .fixed_ns = (uint64_t)fixed_ns, .item_ns = (uint64_t)item_ns, .ran_ns = NOW - MS};
}

static struct forecast
forecast_of(struct forecast_words said, uint32_t batch_size, uint32_t workers)
{
    struct forecast_stage stage = {.batch_size = batch_size, .live = workers};
    for (uint32_t i = 0; i < workers; i++)
        forecast_receive(&stage, &said, NOW);
    struct forecast forecast = {0};
    forecast_add(&forecast, &stage);
    return forecast;
}

TEST_CASE(test_one_stage)
{
    struct forecast forecast = forecast_of(words(2 * MS, MS), 32, 1);
    assert_int_equal(forecast.item_ns, (2 * MS) / 32 + MS);
    assert_int_equal(forecast_take_ns(&forecast, 0), 3 * MS);
    assert_int_equal(forecast_take_ns(&forecast, 1), 2 * MS + 2 * MS + forecast.item_ns);
    /* its own batch is never larger than the stage's */
    assert_int_equal(forecast_take_ns(&forecast, 1000), 34 * MS + 1000 * forecast.item_ns);
}

TEST_CASE(test_workers_divide_the_queue_not_the_run)
{
    struct forecast one = forecast_of(words(8 * MS, 0), 0, 1);
    struct forecast four = forecast_of(words(8 * MS, 0), 0, 4);
    assert_int_equal(four.item_ns, one.item_ns / 4);
    assert_int_equal(forecast_take_ns(&four, 0), forecast_take_ns(&one, 0));
}

/* The slowest stage sets the pace; the way through all of them is their sum. */
TEST_CASE(test_bottleneck)
{
    struct forecast_stage fast = {.live = 1};
    struct forecast_stage slow = {.live = 1};
    struct forecast_words fast_words = words(MS, 0);
    struct forecast_words slow_words = words(5 * MS, 0);
    forecast_receive(&fast, &fast_words, NOW);
    forecast_receive(&slow, &slow_words, NOW);
    struct forecast forecast = {0};
    forecast_add(&forecast, &fast);
    forecast_add(&forecast, &slow);
    forecast_add(&forecast, &fast);
    assert_int_equal(forecast.item_ns, 5 * MS);
    assert_int_equal(forecast_take_ns(&forecast, 0), 7 * MS);
}

TEST_CASE(test_spread_is_a_margin)
{
    struct forecast_words said = words(8 * MS, 0);
    said.spread_ns = 3 * MS;
    struct forecast forecast = forecast_of(said, 0, 2);
    assert_int_equal(forecast_take_ns(&forecast, 0), 14 * MS);
    assert_int_equal(forecast.item_ns, 4 * MS);
}

/* Workers that have not run lately count as workers, and as fast as those that have. */
TEST_CASE(test_silent_workers)
{
    struct forecast_words said = words(8 * MS, 0);
    struct forecast_words silent = {0};
    struct forecast_stage stage = {.live = 2};
    forecast_receive(&stage, &said, NOW);
    forecast_receive(&stage, &silent, NOW);
    struct forecast forecast = {0};
    forecast_add(&forecast, &stage);
    assert_int_equal(forecast.item_ns, 4 * MS);
}

TEST_CASE(test_untested_words_are_left_out)
{
    struct forecast_words said = words(8 * MS, MS);
    said.ran_ns = NOW - 10 * NS_PER_S;
    assert_true(forecast_of(said, 4, 1).item_ns > 0);
    said.ran_ns--;
    assert_int_equal(forecast_of(said, 4, 1).item_ns, 0);
    assert_int_equal(forecast_take_ns(&(struct forecast){0}, 65535), 0);
    said.began_ns = NOW - MS; /* a run that takes long is a test, too */
    assert_true(forecast_of(said, 4, 1).item_ns > 0);
    said.ran_ns = 0;
    assert_int_equal(forecast_of(said, 4, 1).item_ns, 0);
    said.ran_ns = NOW + 1; /* a lie */
    assert_int_equal(forecast_of(said, 4, 1).item_ns, 0);
    said.ran_ns = INT64_MIN;
    assert_int_equal(forecast_of(said, 4, 1).item_ns, 0);
}

/* ---- verdicts ---- */

/* Nothing in flight of 1000 slots, 1 ms for each, 100 ms left. */
static const struct forecast even = {.fixed_ns = MS, .item_ns = MS};
static const struct forecast_demand lone = {
    .priority = PRIORITY_NORMAL, .limit_ns = 101 * MS, .at_once = 1, .slots = 1000, .callers = 1};

static enum verdict
verdict(struct forecast_demand demand)
{
    return forecast_judge(&even, &demand).verdict;
}

static struct forecast_demand
with_waiting(uint32_t waiting, enum priority priority)
{
    struct forecast_demand demand = lone;
    demand.priority = priority;
    demand.waiting = demand.held = waiting;
    return demand;
}

TEST_CASE(test_late_is_refused_by_priority)
{
    static const struct {
        enum priority priority;
        uint32_t most; /* 100 ms of room; 1 ms each */
    } cases[] = {{PRIORITY_HIGH, 100}, {PRIORITY_NORMAL, 90}, {PRIORITY_LOW, 70}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(verdict(with_waiting(cases[i].most, cases[i].priority)), VERDICT_ADMIT);
        struct forecast_demand beyond = with_waiting(cases[i].most + 1, cases[i].priority);
        struct judgement judgement = forecast_judge(&even, &beyond);
        assert_int_equal(judgement.verdict, VERDICT_LATE);
        assert_int_equal(judgement.take_ns, (cases[i].most + 2) * (int64_t)MS);
        assert_true(judgement.retry_ms >= 1 && judgement.retry_ms <= RETRY_MS_MAX);
    }
}

/* A caller with at least half of a fair share leaves a little for callers with less. */
TEST_CASE(test_large_callers_leave_a_little)
{
    struct forecast_demand demand = with_waiting(86, PRIORITY_NORMAL);
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
    demand.own_held = 86;
    assert_int_equal(verdict(demand), VERDICT_LATE);
    demand.waiting = demand.own_held = 85;
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
}

TEST_CASE(test_no_limit_no_lateness)
{
    struct forecast_demand demand = with_waiting(899, PRIORITY_NORMAL);
    demand.limit_ns = TIME_NEVER_NS;
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
    struct forecast unknown = {0};
    demand.limit_ns = 1;
    assert_int_equal(forecast_judge(&unknown, &demand).verdict, VERDICT_ADMIT);
}

/* With a worker free it is tried against any estimate: else a wrong one could never be seen
 * to be wrong. */
TEST_CASE(test_idle_admits)
{
    struct forecast slow = {.fixed_ns = 3600 * NS_PER_S, .item_ns = 60 * NS_PER_S};
    struct forecast_demand demand = with_waiting(1, PRIORITY_LOW);
    demand.at_once = 2;
    assert_int_equal(forecast_judge(&slow, &demand).verdict, VERDICT_ADMIT);
    demand.waiting = 2;
    struct judgement judgement = forecast_judge(&slow, &demand);
    assert_int_equal(judgement.verdict, VERDICT_LATE);
    assert_int_equal(judgement.retry_ms, RETRY_MS_MAX);
}

TEST_CASE(test_slots_by_priority)
{
    static const struct {
        enum priority priority;
        uint32_t most;
    } cases[] = {{PRIORITY_NORMAL, 899}, {PRIORITY_LOW, 699}};
    for (size_t i = 0; i < 2; i++) {
        struct forecast_demand demand = with_waiting(cases[i].most, cases[i].priority);
        demand.limit_ns = TIME_NEVER_NS;
        assert_int_equal(verdict(demand), VERDICT_ADMIT);
        demand.held++;
        assert_int_equal(verdict(demand), VERDICT_FULL);
        demand.priority = PRIORITY_HIGH;
        demand.held = 999;
        assert_int_equal(verdict(demand), VERDICT_ADMIT);
    }
}

/* Of few slots nothing is kept: a lone caller may have them all. */
TEST_CASE(test_few_slots)
{
    struct forecast_demand demand = with_waiting(15, PRIORITY_LOW);
    demand.limit_ns = TIME_NEVER_NS;
    demand.slots = 16;
    demand.own_held = 15;
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
    demand.held = demand.own_held = 16; /* none is left: the ring of free slots will say so */
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
}

/* No other caller is there; the next one is to find room. */
TEST_CASE(test_one_caller_may_not_have_all_slots)
{
    struct forecast_demand demand = with_waiting(999, PRIORITY_NORMAL);
    demand.limit_ns = TIME_NEVER_NS;
    demand.own_held = 999;
    assert_int_equal(verdict(demand), VERDICT_FULL);
    demand.held = demand.own_held = 849; /* of 1000: 85 of 100 */
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
    demand.held = demand.own_held = 850;
    assert_int_equal(verdict(demand), VERDICT_FULL);
    demand.own_held = 0;
    demand.callers = 2;
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
}

TEST_CASE(test_fair_share)
{
    struct forecast_demand demand = with_waiting(60, PRIORITY_HIGH);
    demand.callers = 4;
    demand.own_held = 23;
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
    demand.own_held = 24; /* a quarter of 95 */
    assert_int_equal(verdict(demand), VERDICT_SHARE);
    demand.waiting = 50; /* not crowded */
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
    demand.waiting = 60;
    demand.callers = 1; /* alone */
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
    demand.limit_ns = TIME_NEVER_NS;
    demand.callers = 2;
    demand.held = 700;
    demand.own_held = 474;
    assert_int_equal(verdict(demand), VERDICT_ADMIT);
    demand.own_held = 475;
    assert_int_equal(verdict(demand), VERDICT_SHARE);
}

/* For any words of a worker: an answer, and no overflow (this runs under UBSan). */
TEST_CASE(test_hostile_words)
{
    static const uint64_t wild[] = {0, 1, NS_PER_S, INT64_MAX, UINT64_MAX, UINT64_MAX / 2 + 1};
    static const int64_t limits[] = {1, MS, NS_PER_S, INT64_MAX - 1, INT64_MAX};
    static const uint32_t counts[] = {0, 1, 255, 65535, UINT32_MAX};
    for (size_t i = 0; i < 6 * 6 * 6 * 5 * 5 * 3; i++) {
        struct forecast_words said = {.fixed_ns = wild[i % 6],
                                      .item_ns = wild[i / 6 % 6],
                                      .spread_ns = wild[i / 36 % 6],
                                      .ran_ns = NOW};
        struct forecast forecast = {0};
        struct forecast_stage stage = {.batch_size = 4096, .live = counts[i % 5]};
        for (uint32_t k = 0; k < 64; k++)
            forecast_receive(&stage, &said, NOW);
        for (uint32_t k = 0; k < 16; k++)
            forecast_add(&forecast, &stage);
        uint32_t waiting = counts[i / 216 % 5] < 65535 ? counts[i / 216 % 5] : 65535;
        struct forecast_demand demand = {
            .priority = (enum priority)(1 + i % 3),
            .limit_ns = limits[i / 1080 % 5],
            .waiting = waiting,
            .held = waiting,
            .own_held = waiting,
            .slots = 65535,
            .callers = 256,
        };
        struct judgement judgement = forecast_judge(&forecast, &demand);
        assert_true(judgement.take_ns >= 0);
        assert_true(judgement.retry_ms <= RETRY_MS_MAX);
        assert_true(judgement.verdict == VERDICT_ADMIT || judgement.retry_ms >= 1);
    }
}

/* A request that finds all slots taken gets the forecast; without one, by the run that is under
 * way. */
TEST_CASE(test_full_is_reported_when_to_come_back)
{
    struct forecast slow = forecast_of(words(100 * MS, 0), 0, 1);
    assert_int_equal(forecast_retry_ms(&slow, 0), 100 + 50 + 1);
    assert_int_equal(forecast_retry_ms(&slow, 8), 100 + 450 + 1);
    assert_int_equal(forecast_retry_ms(&slow, 60000), RETRY_MS_MAX);
    struct forecast_words running = {0};
    struct forecast unknown = forecast_of(running, 0, 2);
    assert_int_equal(forecast_retry_ms(&unknown, 8), RETRY_UNKNOWN_MS);
    running.began_ns = NOW - 3 * NS_PER_S;
    unknown = forecast_of(running, 0, 2);
    assert_int_equal(forecast_retry_ms(&unknown, 8), 3001);
    running.began_ns = 1;
    unknown = forecast_of(running, 0, 2);
    assert_int_equal(forecast_retry_ms(&unknown, 8), RETRY_MS_MAX);
    running.began_ns = NOW + MS; /* from the future: nothing is known */
    unknown = forecast_of(running, 0, 2);
    assert_int_equal(forecast_retry_ms(&unknown, 8), RETRY_UNKNOWN_MS);
}

/* ---- whole overloads ---- */

enum { CLIENTS = 4, QUEUE = 2048 };

/* A queue served in order, one every millisecond, and clients that ask at even intervals. */
struct play {
    uint32_t callers[CLIENTS]; /* which caller a client is: several may be one */
    uint32_t queue[QUEUE];     /* waiting callers, oldest first */
    uint32_t first, count;
    uint32_t held[CLIENTS]; /* by callers */
    uint32_t asked[CLIENTS];
    uint32_t admitted[CLIENTS];
};

static void
play_ask(struct play *play, uint32_t client, enum priority priority)
{
    uint32_t caller = play->callers[client];
    struct forecast_demand demand = lone;
    demand.priority = priority;
    demand.waiting = demand.held = play->count;
    demand.own_held = play->held[caller];
    demand.callers = 0;
    for (uint32_t i = 0; i < CLIENTS; i++)
        demand.callers += play->held[i] > 0 || i == caller;
    play->asked[client]++;
    if (forecast_judge(&even, &demand).verdict != VERDICT_ADMIT)
        return;
    play->queue[(play->first + play->count++) % QUEUE] = caller;
    play->held[caller]++;
    play->admitted[client]++;
}

/* `rates`: requests in ten milliseconds, of which the service answers ten. */
static void
play_run(struct play *play, const uint32_t rates[CLIENTS], const enum priority priorities[CLIENTS])
{
    for (uint32_t step = 0; step < 100000; step++) { /* of a tenth of a millisecond */
        for (uint32_t i = 0; i < CLIENTS; i++)
            if ((step * rates[i]) % 100 + rates[i] >= 100)
                for (uint32_t k = 0; k <= rates[i] / 100; k++)
                    play_ask(play, i, priorities[i]);
        if (step % 10 == 0 && play->count > 0) {
            play->held[play->queue[play->first % QUEUE]]--;
            play->first++;
            play->count--;
        }
    }
}

static double
admitted_part(const struct play *play, uint32_t client)
{
    return (double)play->admitted[client] / play->asked[client];
}

TEST_CASE(test_small_caller_beside_a_large_one)
{
    struct play play = {.callers = {0, 1, 2, 3}};
    static const enum priority priorities[] = {PRIORITY_NORMAL, PRIORITY_NORMAL, PRIORITY_NORMAL,
                                               PRIORITY_NORMAL};
    play_run(&play, (const uint32_t[]){99, 3, 0, 0}, priorities);
    assert_true(admitted_part(&play, 1) > 0.99);
    assert_true(play.admitted[0] + play.admitted[1] > 9900); /* and nothing is wasted */
    struct play rare = {.callers = {0, 1, 2, 3}}; /* one that often has nothing in flight */
    static const uint32_t rates[] = {99, 1, 1, 1};
    play_run(&rare, rates, priorities);
    for (uint32_t i = 1; i < CLIENTS; i++)
        assert_true(admitted_part(&rare, i) > 0.95);
}

TEST_CASE(test_equals_get_equal_parts)
{
    struct play play = {.callers = {0, 1, 2, 3}};
    static const enum priority priorities[] = {PRIORITY_NORMAL, PRIORITY_NORMAL, PRIORITY_NORMAL,
                                               PRIORITY_NORMAL};
    play_run(&play, (const uint32_t[]){30, 45, 60, 99}, priorities);
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_true(play.admitted[i] > 2000 && play.admitted[i] < 3100);
}

TEST_CASE(test_low_goes_first_high_still_gets_in)
{
    struct play play = {.callers = {0, 0, 0, 0}};
    static const enum priority priorities[] = {PRIORITY_HIGH, PRIORITY_NORMAL, PRIORITY_LOW,
                                               PRIORITY_LOW};
    play_run(&play, (const uint32_t[]){2, 12, 12, 12}, priorities);
    assert_true(admitted_part(&play, 0) > 0.99);
    assert_true(admitted_part(&play, 1) > 0.6); /* 8 of the 12 that it asks for are left */
    assert_true(admitted_part(&play, 2) < 0.05);
}

TEST_MAIN()
