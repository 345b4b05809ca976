/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a batch closes, on a scripted clock: each rule of worker/batch.h by itself with the cases
 * that batching services get wrong (the first item late, a trickle just under the wait, a burst
 * after idling, singletons, no wait, a deadline, draining, time that was spent in the ring while
 * the worker was busy), then random arrivals against an oracle that looks at every tick and knows
 * the rules only as they are written down, one item at a time.
 */

#include "../random.h"
#include "../test.h"
#include "base/clock.h"
#include "worker/batch.h"

enum { WAIT = 100, LATE = 1000000 };

static bool
offer(struct batch *batch, int64_t enqueued_ns, int64_t now_ns)
{
    return batch_offer(
        batch, (struct batch_item){.enqueued_ns = enqueued_ns, .deadline_ns = TIME_NEVER_NS},
        now_ns);
}

static struct batch_due
due(const struct batch *batch, int64_t now_ns)
{
    return batch_due(batch, (struct batch_moment){.now_ns = now_ns});
}

static void
assert_open(const struct batch *batch, int64_t now_ns, int64_t look_again_ns)
{
    struct batch_due answer = due(batch, now_ns);
    assert_int_equal(answer.state, BATCH_OPEN);
    assert_true(answer.look_again_ns == look_again_ns);
}

static void
assert_closed(const struct batch *batch, int64_t now_ns, enum batch_state reason)
{
    assert_int_equal(due(batch, now_ns).state, reason);
}

TEST_CASE(test_empty_is_never_due)
{
    struct batch batch;
    batch_init(&batch, 4, WAIT);
    assert_open(&batch, LATE, TIME_NEVER_NS);
    struct batch_moment draining = {.now_ns = LATE, .draining = true};
    assert_int_equal(batch_due(&batch, draining).state, BATCH_OPEN);
}

/* The worker idled for long before it: the window starts when the item arrives, whole. */
TEST_CASE(test_first_item_late)
{
    struct batch batch;
    batch_init(&batch, 4, WAIT);
    assert_true(offer(&batch, LATE, LATE + 3));
    assert_open(&batch, LATE + 3, LATE + WAIT);
    assert_open(&batch, LATE + WAIT - 1, LATE + WAIT);
    assert_closed(&batch, LATE + WAIT, BATCH_CLOSED_WAIT);
}

/* Each comes just before the wait for it alone would be over: the first waits no longer for that.
 */
TEST_CASE(test_trickle_does_not_extend_the_wait)
{
    struct batch batch;
    batch_init(&batch, 64, WAIT);
    int64_t now_ns = 0;
    for (int i = 0; i < 2; i++, now_ns += WAIT - 1) {
        assert_true(offer(&batch, now_ns, now_ns));
        assert_open(&batch, now_ns, WAIT);
    }
    assert_closed(&batch, WAIT, BATCH_CLOSED_WAIT);
    assert_int_equal(batch.count, 2);
}

TEST_CASE(test_burst_after_idle)
{
    struct batch batch;
    batch_init(&batch, 4, WAIT);
    for (int round = 0; round < 2; round++) {
        batch_begin(&batch);
        for (int i = 0; i < 4; i++) {
            assert_false(batch_full(&batch));
            assert_true(offer(&batch, LATE, LATE + 1));
        }
        assert_false(offer(&batch, LATE, LATE + 1));
        assert_closed(&batch, LATE + 1, BATCH_CLOSED_FULL);
        assert_int_equal(batch.count, 4);
    }
    batch_begin(&batch);
    assert_true(offer(&batch, LATE, LATE + 1));
    assert_open(&batch, LATE + 1, LATE + WAIT); /* the rest of the burst waits for company */
}

TEST_CASE(test_size_one)
{
    struct batch batch;
    batch_init(&batch, 1, WAIT);
    assert_true(offer(&batch, 5, 5));
    assert_closed(&batch, 5, BATCH_CLOSED_SINGLE);
    assert_false(offer(&batch, 6, 6));
}

TEST_CASE(test_no_wait_takes_what_is_there)
{
    struct batch batch;
    batch_init(&batch, 8, 0);
    assert_true(offer(&batch, 10, 10));
    assert_true(offer(&batch, 10, 10));
    assert_closed(&batch, 10, BATCH_CLOSED_WAIT);
    assert_int_equal(batch.count, 2);
}

/* An item that came while the worker was busy has used up its wait in the ring. */
TEST_CASE(test_time_in_the_ring_counts)
{
    struct batch batch;
    batch_init(&batch, 8, WAIT);
    assert_true(offer(&batch, 0, 60));
    assert_open(&batch, 60, WAIT); /* 40 left, not 100 */
    batch_begin(&batch);
    assert_true(offer(&batch, 0, WAIT + 50));
    assert_true(offer(&batch, WAIT + 49, WAIT + 50)); /* goes along: it is there */
    assert_closed(&batch, WAIT + 50, BATCH_CLOSED_WAIT);
    assert_int_equal(batch.count, 2);
}

/* A request that ran once already (its worker died) stands behind younger ones in the ring. */
TEST_CASE(test_the_oldest_need_not_be_the_first)
{
    struct batch batch;
    batch_init(&batch, 8, WAIT);
    assert_true(offer(&batch, 50, 60));
    assert_true(offer(&batch, 20, 60));
    assert_true(offer(&batch, 55, 60));
    assert_open(&batch, 60, 20 + WAIT);
}

TEST_CASE(test_arrival_in_the_future_is_now)
{
    struct batch batch;
    batch_init(&batch, 8, WAIT);
    assert_true(offer(&batch, INT64_MAX, 60));
    assert_open(&batch, 60, 60 + WAIT);
}

TEST_CASE(test_deadline)
{
    struct batch batch;
    batch_init(&batch, 8, WAIT);
    struct batch_item item = {.enqueued_ns = 0, .deadline_ns = TIME_NEVER_NS};
    assert_true(batch_offer(&batch, item, 0));
    item.deadline_ns = 70;
    assert_true(batch_offer(&batch, item, 0));
    item.deadline_ns = 90;
    assert_true(batch_offer(&batch, item, 0));
    struct batch_moment moment = {.now_ns = 0, .run_expected_ns = 30};
    assert_int_equal(batch_due(&batch, moment).state, BATCH_OPEN);
    assert_true(batch_due(&batch, moment).look_again_ns == 40);
    moment.now_ns = 39;
    assert_int_equal(batch_due(&batch, moment).state, BATCH_OPEN);
    moment.now_ns = 40;
    assert_int_equal(batch_due(&batch, moment).state, BATCH_CLOSED_DEADLINE);
    moment = (struct batch_moment){.now_ns = 0, .run_expected_ns = 80}; /* too late on arrival */
    assert_int_equal(batch_due(&batch, moment).state, BATCH_CLOSED_DEADLINE);
    batch_begin(&batch); /* and none of it is left in the next batch */
    assert_true(offer(&batch, 5, 5));
    assert_open(&batch, 5, 5 + WAIT);
}

TEST_CASE(test_draining)
{
    struct batch batch;
    batch_init(&batch, 8, WAIT);
    assert_true(offer(&batch, 5, 5));
    struct batch_moment moment = {.now_ns = 5, .draining = true};
    assert_int_equal(batch_due(&batch, moment).state, BATCH_CLOSED_DRAINING);
}

/* Rule 7 closes what the others leave open; the first of all times is the one to look again at. */
TEST_CASE(test_company)
{
    struct batch batch;
    batch_init(&batch, 8, WAIT);
    assert_true(batch_offer(&batch, (struct batch_item){.enqueued_ns = 5, .deadline_ns = 60}, 5));
    struct batch_moment moment = {.now_ns = 20};
    assert_int_equal(batch_due(&batch, moment).state, BATCH_OPEN); /* not adaptive */
    batch.adaptive = true;
    assert_int_equal(batch_due(&batch, moment).state, BATCH_CLOSED_ADAPTIVE);
    moment.company_until_ns = 20;
    assert_int_equal(batch_due(&batch, moment).state, BATCH_CLOSED_ADAPTIVE);
    moment.company_until_ns = 21;
    assert_int_equal(batch_due(&batch, moment).state, BATCH_OPEN);
    assert_true(batch_due(&batch, moment).look_again_ns == 21);
    moment.company_until_ns = 70;
    assert_true(batch_due(&batch, moment).look_again_ns == 60);
    moment.now_ns = 60;
    assert_int_equal(batch_due(&batch, moment).state, BATCH_CLOSED_DEADLINE);
    batch_begin(&batch);
    assert_true(offer(&batch, 5, 5));
    moment = (struct batch_moment){.now_ns = 5, .company_until_ns = TIME_NEVER_NS};
    assert_true(batch_due(&batch, moment).look_again_ns == 5 + WAIT);
    moment.now_ns = 5 + WAIT; /* the bound is named, not the company that does not come */
    moment.company_until_ns = 0;
    assert_int_equal(batch_due(&batch, moment).state, BATCH_CLOSED_WAIT);
}

TEST_CASE(test_one_model_per_batch)
{
    struct batch batch;
    batch_init(&batch, 8, WAIT);
    struct batch_item item = {.model = 3, .enqueued_ns = 5, .deadline_ns = TIME_NEVER_NS};
    assert_true(batch_offer(&batch, item, 5));
    assert_true(batch_offer(&batch, item, 5));
    assert_open(&batch, 5, 5 + WAIT);
    struct batch_item other = {.model = 4, .enqueued_ns = 5, .deadline_ns = 6};
    assert_false(batch_offer(&batch, other, 5));
    assert_closed(&batch, 5, BATCH_CLOSED_FULL);
    assert_false(batch_offer(&batch, item, 5)); /* those behind it don't overtake it */
    assert_int_equal(batch.count, 2);
    batch_begin(&batch);
    assert_true(batch_offer(&batch, other, 5));
    assert_true(batch.model == 4);
}

/* Nothing overflows at the ends of time. */
TEST_CASE(test_extremes)
{
    struct batch batch;
    batch_init(&batch, 8, INT64_MAX);
    assert_true(offer(&batch, LATE, LATE));
    assert_open(&batch, LATE, TIME_NEVER_NS);
    batch_begin(&batch);
    struct batch_item item = {.enqueued_ns = 0, .deadline_ns = INT64_MIN};
    assert_true(batch_offer(&batch, item, 0));
    struct batch_moment moment = {.now_ns = 0, .run_expected_ns = INT64_MAX};
    assert_int_equal(batch_due(&batch, moment).state, BATCH_CLOSED_DEADLINE);
    batch_begin(&batch);
    assert_true(offer(&batch, INT64_MIN, 0));
    assert_closed(&batch, 0, BATCH_CLOSED_WAIT);
}

static bool
offer_alone(struct batch *batch)
{
    return batch_offer(batch, (struct batch_item){.alone = true, .deadline_ns = TIME_NEVER_NS}, 0);
}

TEST_CASE(test_alone)
{
    struct batch batch;
    batch_init(&batch, 4, WAIT);
    /* it is due at once, and has no company */
    assert_true(offer_alone(&batch));
    assert_true(batch_full(&batch));
    assert_false(offer(&batch, 0, 0));
    assert_false(offer_alone(&batch));
    assert_int_equal(batch.count, 1);
    assert_closed(&batch, 0, BATCH_CLOSED_SINGLE);
    /* it closes the batch before it, whether it is offered or seen in the ring */
    for (int seen = 0; seen < 2; seen++) {
        batch_begin(&batch);
        assert_true(offer(&batch, 0, 0));
        assert_open(&batch, 0, WAIT);
        if (seen)
            batch_refuse(&batch);
        else
            assert_false(offer_alone(&batch));
        assert_closed(&batch, 0, BATCH_CLOSED_FULL);
        assert_false(offer(&batch, 0, 0));
    }
    /* and leaves no trace in the next one */
    batch_begin(&batch);
    assert_true(offer(&batch, 0, 0));
    assert_true(offer(&batch, 0, 0));
    assert_open(&batch, 0, WAIT);
}

/* ---- random arrivals against an oracle ---- */

enum { ITEMS = 40, HORIZON = 2000, CASES = 20000 };

struct script {
    uint32_t size;
    int64_t wait_ns;
    int64_t run_ns;                 /* how long the worker is busy with a batch */
    int64_t expected_ns;            /* how long it is thought to be */
    int64_t drain_ns;               /* draining from here on */
    struct batch_item items[ITEMS]; /* by time of arrival */
};

struct closing {
    int64_t at_ns;
    enum batch_state reason;
    uint32_t count;
};

struct closings {
    uint32_t count;
    struct closing list[ITEMS];
};

static uint64_t random_state;

static int64_t
random_below(int64_t limit)
{
    return (int64_t)(random_draw(&random_state) % (uint64_t)limit);
}

static void
script_draw(struct script *script)
{
    script->size = 1 + (uint32_t)random_below(random_below(2) == 0 ? 4 : ITEMS);
    script->wait_ns = random_below(4) == 0 ? 0 : random_below(60);
    script->run_ns = random_below(50);
    script->expected_ns = random_below(20);
    script->drain_ns = random_below(4) == 0 ? random_below(HORIZON / 4) : TIME_NEVER_NS;
    int64_t gap = 1 + random_below(40);
    int64_t at_ns = 0;
    for (int i = 0; i < ITEMS; i++) {
        at_ns += random_below(3) == 0 ? 0 : random_below(gap);
        bool hurried = random_below(4) == 0;
        script->items[i] = (struct batch_item){
            .enqueued_ns = at_ns,
            .deadline_ns = hurried ? at_ns + random_below(80) : TIME_NEVER_NS,
        };
    }
}

/* Every tick, every item, every rule: why the first `count` items from `first` on go now, if they
 * do. */
static enum batch_state
oracle_judge(const struct script *script, uint32_t first, uint32_t count, int64_t now_ns)
{
    bool waited = false;
    bool hurried = false;
    for (uint32_t i = first; i < first + count; i++) {
        const struct batch_item *item = &script->items[i];
        waited |= now_ns - item->enqueued_ns >= script->wait_ns;
        hurried |=
            item->deadline_ns != TIME_NEVER_NS && item->deadline_ns - now_ns <= script->expected_ns;
    }
    if (count == script->size)
        return count == 1 ? BATCH_CLOSED_SINGLE : BATCH_CLOSED_FULL;
    if (count > 0 && now_ns >= script->drain_ns)
        return BATCH_CLOSED_DRAINING;
    if (waited)
        return BATCH_CLOSED_WAIT;
    return hurried ? BATCH_CLOSED_DEADLINE : BATCH_OPEN;
}

static void
oracle_run(const struct script *script, struct closings *closings)
{
    uint32_t first = 0;
    int64_t free_ns = 0;
    for (int64_t now_ns = 0; first < ITEMS; now_ns++) {
        while (now_ns >= free_ns) {
            uint32_t count = 0;
            while (first + count < ITEMS && count < script->size &&
                   script->items[first + count].enqueued_ns <= now_ns)
                count++;
            enum batch_state reason = oracle_judge(script, first, count, now_ns);
            if (reason == BATCH_OPEN)
                break;
            closings->list[closings->count++] = (struct closing){now_ns, reason, count};
            first += count;
            free_ns = now_ns + script->run_ns;
        }
    }
}

/* The loop of a worker: offer what is there, ask, and look again only when it was told to or when
 * something arrives. */
static void
worker_run(const struct script *script, struct closings *closings)
{
    struct batch batch;
    batch_init(&batch, script->size, script->wait_ns);
    uint32_t next = 0;
    int64_t now_ns = 0;
    while (closings->count < ITEMS) {
        while (next < ITEMS && script->items[next].enqueued_ns <= now_ns && !batch_full(&batch))
            assert_true(batch_offer(&batch, script->items[next++], now_ns));
        struct batch_due answer =
            batch_due(&batch, (struct batch_moment){.now_ns = now_ns,
                                                    .run_expected_ns = script->expected_ns,
                                                    .draining = now_ns >= script->drain_ns});
        if (answer.state != BATCH_OPEN) {
            closings->list[closings->count++] = (struct closing){now_ns, answer.state, batch.count};
            batch_begin(&batch);
            now_ns += script->run_ns;
            continue;
        }
        if (batch.count == 0 && next == ITEMS)
            return;
        assert_true(answer.look_again_ns > now_ns);
        int64_t then_ns = answer.look_again_ns;
        if (next < ITEMS && script->items[next].enqueued_ns < then_ns)
            then_ns = script->items[next].enqueued_ns;
        if (script->drain_ns > now_ns && script->drain_ns < then_ns)
            then_ns = script->drain_ns;
        now_ns = then_ns;
    }
}

TEST_CASE(test_random_arrivals)
{
    random_state = random_seed((uint64_t)clock_now_ns());
    uint32_t reasons[BATCH_CLOSED_DRAINING + 1] = {0};
    for (int n = 0; n < CASES; n++) {
        static struct script script;
        script_draw(&script);
        struct closings expected = {.count = 0};
        struct closings found = {.count = 0};
        oracle_run(&script, &expected);
        worker_run(&script, &found);
        assert_int_equal(found.count, expected.count);
        for (uint32_t i = 0; i < found.count; i++) {
            assert_true(found.list[i].at_ns == expected.list[i].at_ns);
            assert_int_equal(found.list[i].reason, expected.list[i].reason);
            assert_int_equal(found.list[i].count, expected.list[i].count);
            reasons[found.list[i].reason]++;
        }
    }
    for (int i = BATCH_CLOSED_SINGLE; i <= BATCH_CLOSED_DRAINING; i++)
        assert_true(reasons[i] > 0); /* the scripts reach every rule */
}

TEST_MAIN()
