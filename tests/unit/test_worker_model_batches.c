/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches by model in real workers, with the modelet `cache`: that each run has items of one model,
 * in any order of arrival; that a worker alone keeps what it holds of other models, and one of
 * several hands it back before it runs; that what is held is dropped when nobody waits for it, and
 * goes back when its model was unloaded; and that all comes back once in the middle of loads and
 * unloads.
 *
 * ctest: timeout=120 presets=dev,tsan because loads run beside the batch thread
 */
#include "test_worker_model_rig.h"

static const struct rig_stage BATCHES = {
    .modelet = "shelf", .batch_size = 4, .batch_wait_ns = 20 * NS_PER_S};

static void
load_all(struct rig *rig, uint32_t models)
{
    for (uint32_t k = 0; k < rig_worker_count(rig, 0); k++) {
        for (uint32_t i = 1; i <= models; i++) {
            struct handshake_model order = rig_order(rig, MODEL_LOAD, i, NULL, "");
            assert_int_equal(rig_order_and_receive(rig, k, &order)->event, MODEL_LOADED);
        }
    }
}

/* As many as were sent come back, each from its own model, in a run of `batch`. */
static void
assert_answers(struct rig *rig, uint32_t count, int64_t batch)
{
    for (uint32_t i = 0; i < count; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        if (outcome.status != STATUS_OK)
            fail_msg("%d: %s", (int)outcome.status, outcome.text);
        assert_int_equal(outcome.words[PROBE_MODEL], outcome.words[2]);
        if (batch > 0)
            assert_int_equal(outcome.words[PROBE_BATCH_COUNT], batch);
    }
}

TEST_CASE(test_full_batches_of_two_models)
{
    struct rig *rig = rig_start_models(BATCHES);
    load_all(rig, 2);
    for (int round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 8; i++)
            rig_submit(rig, rig_ask(PROBE_ECHO, 0, 1 + i % 2));
        assert_answers(rig, 8, 4);
    }
    rig_wait_counter(rig, 0, WORKER_CLOSED_FULL, 20);
    rig_wait_counter(rig, 0, WORKER_BATCHES, 20);
    rig_wait_counter(rig, 0, WORKER_ITEMS, 80);
    rig_stop(rig);
}

/* Eight models, an item each: no more can be held, so one goes after the other. */
TEST_CASE(test_crowded)
{
    struct rig *rig = rig_start_models(BATCHES);
    load_all(rig, 9);
    for (uint32_t i = 1; i <= 9; i++)
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, i));
    struct rig_outcome first = rig_wait_outcome(rig);
    assert_int_equal(first.words[PROBE_MODEL], 1); /* the oldest */
    rig_wait_counter(rig, 0, WORKER_CLOSED_CROWDED, 2);
    assert_int_equal(rig_wait_outcome(rig).words[PROBE_MODEL], 2);
    rig_wait_counter(rig, 0, WORKER_ITEMS, 9);
    kill(rig->workers[0][0].pid, SIGTERM); /* and the rest goes now */
    assert_answers(rig, 7, 1);
    rig_wait_counter(rig, 0, WORKER_CLOSED_DRAINING, 7);
    rig_stop(rig);
}

/* While one worker runs a batch that takes long, the other has what the first held beside it. */
TEST_CASE(test_hand_back)
{
    struct rig_stage stage = BATCHES;
    stage.workers = 2;
    struct rig *rig = rig_start_models(stage);
    load_all(rig, 2);
    rig_submit(rig, rig_ask(PROBE_ECHO, 0, 2)); /* waits for company in one of them */
    rig_wait_counter(rig, 0, WORKER_ITEMS, 1);
    struct shm_ticket busy = rig_push(rig, rig_ask(PROBE_WAIT, 0, 1));
    for (uint32_t i = 0; i < 3; i++)
        rig_push(rig, rig_ask(PROBE_ECHO, 0, 1));
    stage_notify(&rig->region, 0);
    rig_wait_counter(rig, 0, WORKER_ITEMS_HANDED_BACK, 1);
    for (uint32_t i = 0; i < 3; i++)
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, 2));
    for (uint32_t i = 0; i < 4; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_int_equal(outcome.status, STATUS_OK);
        assert_int_equal(outcome.words[PROBE_MODEL], 2);
        assert_int_equal(outcome.words[PROBE_BATCH_COUNT], 4);
    }
    rig_wait_counter(rig, 0, WORKER_BATCHES, 2);
    slot_cancel(&rig->region, busy);
    assert_answers(rig, 4, 4);
    rig_stop(rig);
}

/* It keeps its time of arrival, by which it is due. */
TEST_CASE(test_hand_back_keeps_the_time)
{
    struct rig_stage stage = BATCHES;
    stage.workers = 2;
    struct rig *rig = rig_start_models(stage);
    load_all(rig, 2);
    struct shm_ticket held = rig_submit(rig, rig_ask(PROBE_ECHO, 0, 2));
    int64_t came_ns = atomic_load(&region_slot(&rig->region, held.index)->enqueued_ns);
    rig_wait_counter(rig, 0, WORKER_ITEMS, 1);
    for (uint32_t i = 0; i < 4; i++)
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, 1));
    rig_wait_counter(rig, 0, WORKER_ITEMS_HANDED_BACK, 1);
    assert_true(atomic_load(&region_slot(&rig->region, held.index)->enqueued_ns) == came_ns);
    for (uint32_t i = 0; i < 3; i++) /* nobody waits for its time */
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, 2));
    assert_answers(rig, 8, 4);
    rig_stop(rig);
}

/* Of a worker alone nothing goes back to the ring. */
TEST_CASE(test_single_worker_keeps)
{
    struct rig *rig = rig_start_models(BATCHES);
    load_all(rig, 2);
    rig_submit(rig, rig_ask(PROBE_ECHO, 0, 2));
    for (uint32_t i = 0; i < 4; i++)
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, 1));
    assert_answers(rig, 4, 4);
    for (uint32_t i = 0; i < 3; i++)
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, 2));
    assert_answers(rig, 4, 4);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_HANDED_BACK), 0);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS), 8);
    rig_stop(rig);
}

/* Nobody waits for it any more: it is not to wait for its batch to be told so. */
TEST_CASE(test_held_are_dropped)
{
    struct rig *rig = rig_start_models(BATCHES);
    load_all(rig, 2);
    struct shm_ticket held = rig_submit(rig, rig_ask(PROBE_ECHO, 0, 2));
    rig_wait_counter(rig, 0, WORKER_ITEMS, 1);
    slot_cancel(&rig->region, held);
    for (uint32_t i = 0; i < 4; i++)
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, 1));
    uint32_t cancelled = 0;
    for (uint32_t i = 0; i < 5; i++)
        cancelled += rig_wait_outcome(rig).status == STATUS_CANCELLED;
    assert_int_equal(cancelled, 1);
    rig_wait_counter(rig, 0, WORKER_ITEMS_CANCELLED, 1);
    rig_stop(rig);
}

/* The coordinator would not do that to a model with users; if it does, they come back. */
TEST_CASE(test_unloaded_while_held)
{
    struct rig *rig = rig_start_models(BATCHES);
    load_all(rig, 1);
    for (uint32_t i = 0; i < 3; i++)
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, 1));
    rig_wait_counter(rig, 0, WORKER_ITEMS, 3);
    rig_unload(rig, 1);
    kill(rig->workers[0][0].pid, SIGTERM);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rig_wait_outcome(rig).status, SLOT_NOT_HELD);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_NOT_HELD), 3);
    assert_int_equal(rig_counter(rig, 0, WORKER_BATCHES), 0);
    rig_stop(rig);
}

/* One that is to run alone waits until nothing is held, and nothing is run with it. */
TEST_CASE(test_alone)
{
    struct rig *rig = rig_start_models(BATCHES);
    load_all(rig, 3);
    rig_submit(rig, rig_ask(PROBE_ECHO, 0, 1));
    rig_submit(rig, rig_ask(PROBE_ECHO, 0, 2));
    rig_wait_counter(rig, 0, WORKER_ITEMS, 2);
    struct shm_ticket alone = rig_push(rig, rig_ask(PROBE_ECHO, 0, 3));
    slot_run_alone(&rig->region, alone);
    stage_notify(&rig->region, 0);
    for (uint32_t i = 1; i <= 3; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_int_equal(outcome.words[PROBE_MODEL], i);
        assert_int_equal(outcome.words[PROBE_BATCH_COUNT], 1);
    }
    rig_stop(rig);
}

/* It could wait for twenty seconds each time, for company or for another model's. */
TEST_CASE(test_lone_items_do_not_wait_adaptively)
{
    struct rig_stage stage = BATCHES;
    stage.wait_adaptive = true;
    struct rig *rig = rig_start_models(stage);
    load_all(rig, 3);
    for (uint32_t i = 0; i < 50; i++) {
        rig_submit(rig, rig_ask(PROBE_ECHO, 0, 1 + i % 3));
        assert_answers(rig, 1, 1);
    }
    rig_wait_counter(rig, 0, WORKER_CLOSED_ADAPTIVE, 50);
    assert_int_equal(rig_counter(rig, 0, WORKER_BATCHES), 50);
    rig_stop(rig);
}

/* Everything comes back once, and of its own model, with many models, several workers, and loads
 * and unloads all the time. */
static void
storm(bool adaptive)
{
    enum { MODELS = 12, ROUNDS = 60, AT_ONCE = 40 };
    struct rig_stage stage = BATCHES;
    stage.workers = 3;
    stage.batch_wait_ns = NS_PER_MS;
    stage.wait_adaptive = adaptive;
    struct rig *rig = rig_start_models(stage);
    load_all(rig, MODELS);
    uint32_t back = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct handshake_model order =
            rig_order(rig, round % 2 == 0 ? MODEL_UNLOAD : MODEL_LOAD, 1, NULL, "");
        rig_notify(rig, round / 2 % 3, &order);
        for (uint32_t i = 0; i < AT_ONCE; i++)
            rig_submit(rig, rig_ask(PROBE_ECHO, 0, 1 + (i * 7 + round) % MODELS));
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            struct rig_outcome outcome = rig_wait_outcome(rig);
            back += outcome.status == (enum status)SLOT_NOT_HELD;
            if (outcome.status == STATUS_OK)
                assert_int_equal(outcome.words[PROBE_MODEL], outcome.words[2]);
            else
                assert_int_equal(outcome.status, SLOT_NOT_HELD);
        }
        rig_receive_said(rig, round / 2 % 3);
    }
    rig_wait_counter(rig, 0, WORKER_ITEMS_NOT_HELD, back);
    uint64_t taken = rig_counter(rig, 0, WORKER_ITEMS);
    assert_int_equal(taken, rig_counter(rig, 0, WORKER_ITEMS_OK) + back +
                                rig_counter(rig, 0, WORKER_ITEMS_HANDED_BACK));
    rig_stop(rig);
}

TEST_CASE(test_storm)
{
    storm(false);
}

TEST_CASE(test_adaptive_storm)
{
    storm(true);
}

TEST_MAIN()
