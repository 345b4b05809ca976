/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that come and go in a real worker, with the modelet `cache`: that each order has its
 * answer; that items are run with their model, and come back untouched where it is not held; that a
 * load which fails leaves nothing; that loads go on while `run` is busy, where the modelet can do
 * that, and between runs where it can't; that an unload waits for the last run; that the
 * process dies of a modelet that crashes in `load`, and ends in order although one is stuck in it.
 *
 * The gates of these tests are files that a load waits for, and requests that run until cancelled.
 *
 * ctest: timeout=120 presets=dev,tsan because loads run beside the batch thread
 */
#include "test_worker_model_rig.h"

static const struct rig_stage SHELF = {.modelet = "shelf"};
static const struct rig_stage MODEL_CACHE_ALONE = {.modelet = "shelf_alone"};

TEST_CASE(test_load_run_unload)
{
    const struct rig_stage *const stages[] = {&SHELF, &MODEL_CACHE_ALONE};
    for (int i = 0; i < 2; i++) {
        struct rig *rig = rig_start_models(*stages[i]);
        rig_runs_not(rig, 1);
        const struct handshake_model_said *said =
            rig_load(rig, 1, NULL, "describe=ok concurrency=3 size=4096");
        assert_int_equal(said->max_concurrency, 3);
        assert_int_equal(said->bytes, 4096);
        assert_int_equal(said->mapped_bytes, 0);
        assert_int_equal(said->input_count, 1);
        assert_string_equal(said->inputs[0].name, "probe");
        assert_string_equal(said->platform, "shelf");
        rig_load(rig, 2, NULL, "");
        for (int k = 0; k < 10; k++) {
            rig_runs(rig, 1);
            rig_runs(rig, 2);
        }
        rig_runs_not(rig, 3);
        rig_unload(rig, 1);
        rig_runs_not(rig, 1);
        rig_runs(rig, 2);
        rig_unload(rig, 1); /* no error, nor of one never heard of */
        rig_unload(rig, 999);
        rig_load(rig, 1, NULL, ""); /* the number is used again */
        rig_runs(rig, 1);
        assert_int_equal(rig_counter(rig, 0, WORKER_MODELS_LOADED), 3);
        assert_int_equal(rig_counter(rig, 0, WORKER_MODELS_UNLOADED), 1);
        rig_wait_counter(rig, 0, WORKER_ITEMS_NOT_HELD, 3);
        rig_wait_counter(rig, 0, WORKER_ITEMS, 25);
        rig_stop(rig); /* with models that are held */
    }
}

/* Another life is another model, though it has the number. */
TEST_CASE(test_life)
{
    struct rig *rig = rig_start_models(SHELF);
    rig_load(rig, 5, NULL, "");
    struct rig_request request = rig_ask(PROBE_ECHO, 0, 5);
    request.model = model_word(5, 2);
    assert_int_equal(rig_call(rig, request).status, SLOT_NOT_HELD);
    const uint64_t nonsense[] = {0, model_word(0, 1), model_word(65536, 1), model_word(5, 0),
                                 SLOT_MODEL_PROBE - 1};
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
        request.model = nonsense[i];
        assert_int_equal(rig_call(rig, request).status, SLOT_NOT_HELD);
    }
    struct handshake_model order = rig_order(rig, MODEL_UNLOAD, 5, NULL, "");
    order.life = 2;
    assert_int_equal(rig_order_and_receive(rig, 0, &order)->event, MODEL_UNLOADED);
    rig_runs(rig, 5); /* that was not meant */
    order.event = MODEL_LOAD;
    assert_int_equal(rig_order_and_receive(rig, 0, &order)->status, STATUS_ALREADY_EXISTS);
    rig_stop(rig);
}

TEST_CASE(test_loads_that_fail)
{
    const struct rig_stage *const stages[] = {&SHELF, &MODEL_CACHE_ALONE};
    for (int i = 0; i < 2; i++) {
        struct rig *rig = rig_start_models(*stages[i]);
        rig_load_fails(rig, 1, NULL, "fail", STATUS_OUT_OF_RANGE, "told to fail m1 at /tmp/");
        rig_load_fails(rig, 1, NULL, "silent", STATUS_OUT_OF_RANGE, "load failed (OUT_OF_RANGE)");
        rig_load_fails(rig, 1, NULL, "describe=fail", STATUS_FAILED_PRECONDITION,
                       "told not to describe");
        rig_load_fails(rig, 1, NULL, "describe=nonsense", STATUS_INVALID_ARGUMENT,
                       "no such datatype: 99");
        rig_load_fails(rig, 1, NULL, "size=999999999999999999", STATUS_INVALID_ARGUMENT,
                       "a model of");
        rig_load_fails(rig, 1, NULL, "map=../etc/passwd", STATUS_INVALID_ARGUMENT, "passwd");
        rig_runs_not(rig, 1);
        rig_load(rig, 1, NULL, "");
        rig_runs(rig, 1);
        rig_stop(rig);
    }
}

TEST_CASE(test_predict)
{
    struct rig *rig = rig_start_models(SHELF);
    struct handshake_model order = rig_order(rig, MODEL_PREDICT, 1, NULL, "predict=12345");
    const struct handshake_model_said *said = rig_order_and_receive(rig, 0, &order);
    assert_int_equal(said->event, MODEL_PREDICTED);
    assert_int_equal(said->bytes, 12345);
    rig_runs_not(rig, 1);
    rig_stop(rig);
    const struct rig_stage echo = {.modelet = "probe"}; /* which loads, and predicts nothing */
    rig = rig_start_models(echo);
    assert_int_equal(rig_order_and_receive(rig, 0, &order)->bytes, 0);
    rig_stop(rig);
}

/* `run` and `load` at the same time: each is seen to go on while the other one is not over. */
TEST_CASE(test_load_while_run_is_busy)
{
    struct rig *rig = rig_start_models(SHELF);
    rig_load(rig, 1, NULL, "");
    struct shm_ticket busy = rig_submit(rig, rig_ask(PROBE_WAIT, 0, 1));
    rig_wait_counter(rig, 0, WORKER_BATCHES, 1);
    rig_load(rig, 2, NULL, "");
    char key[160];
    snprintf(key, sizeof(key), "gate=%s", rig_file(rig, "gate"));
    struct handshake_model order = rig_order(rig, MODEL_LOAD, 3, NULL, key);
    rig_notify(rig, 0, &order);
    slot_cancel(&rig->region, busy);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    for (int i = 0; i < 100; i++)
        rig_runs(rig, 1 + (uint32_t)i % 2);
    rig_runs_not(rig, 3);
    rig_write_file(rig, "gate", "", 0);
    assert_int_equal(rig_receive_said(rig, 0)->event, MODEL_LOADED);
    rig_runs(rig, 3);
    unlink(rig_file(rig, "gate"));
    rig_stop(rig);
}

/* Without the ability nothing is run while it loads, and the order is received by a worker that
 * sleeps, by one that runs, and by one that has not begun. */
TEST_CASE(test_load_between_runs)
{
    struct rig *rig = rig_start_models(MODEL_CACHE_ALONE);
    rig_load(rig, 1, NULL, "");
    struct shm_ticket busy = rig_submit(rig, rig_ask(PROBE_WAIT, 0, 1));
    rig_wait_counter(rig, 0, WORKER_BATCHES, 1);
    struct handshake_model order = rig_order(rig, MODEL_LOAD, 2, NULL, "");
    rig_notify(rig, 0, &order);
    slot_cancel(&rig->region, busy);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    assert_int_equal(rig_receive_said(rig, 0)->event, MODEL_LOADED);
    for (int i = 0; i < 5; i++) {
        rig_wait_asleep(rig, 0, 0);
        order = rig_order(rig, MODEL_LOAD, 3 + (uint32_t)i, NULL, "");
        assert_int_equal(rig_order_and_receive(rig, 0, &order)->event, MODEL_LOADED);
    }
    rig_runs(rig, 7);
    rig_stop(rig);
}

TEST_CASE(test_unload_waits_for_the_last_run)
{
    struct rig *rig = rig_start_models(SHELF);
    rig_load(rig, 1, NULL, "");
    rig_load(rig, 2, NULL, "");
    struct shm_ticket busy = rig_submit(rig, rig_ask(PROBE_WAIT, 0, 1));
    rig_wait_counter(rig, 0, WORKER_BATCHES, 1);
    struct handshake_model order = rig_order(rig, MODEL_UNLOAD, 2, NULL, "");
    assert_int_equal(rig_order_and_receive(rig, 0, &order)->event,
                     MODEL_UNLOADED); /* not that one */
    order.number = 1;
    rig_notify(rig, 0, &order);
    struct pollfd answer = {.fd = rig->workers[0][0].models, .events = POLLIN};
    assert_int_equal(poll(&answer, 1, 50), 0); /* it may not come, however long one waits */
    slot_cancel(&rig->region, busy);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    assert_int_equal(rig_receive_said(rig, 0)->event, MODEL_UNLOADED);
    rig_runs_not(rig, 1);
    rig_stop(rig);
}

TEST_CASE(test_crashes)
{
    static const char *const keys[] = {"crash", "exit", "crash_unload"};
    for (int i = 0; i < 3; i++) {
        struct rig *rig = rig_start_models(SHELF);
        struct handshake_model order = rig_order(rig, MODEL_LOAD, 1, NULL, keys[i]);
        if (i == 2) {
            rig_load(rig, 1, NULL, keys[i]);
            order.event = MODEL_UNLOAD;
        }
        rig_notify(rig, 0, &order);
        int status = rig_wait_worker(rig, 0, 0);
        assert_true(i == 1 ? WIFEXITED(status) && WEXITSTATUS(status) == 7 : status != 0);
        rig_close(rig);
    }
}

/* An orderly end, though the loader never comes back from the modelet. */
TEST_CASE(test_stop_while_stuck)
{
    struct rig *rig = rig_start_models(SHELF);
    rig_load(rig, 1, NULL, "");
    struct handshake_model order = rig_order(rig, MODEL_LOAD, 2, NULL, "stuck");
    rig_notify(rig, 0, &order);
    rig_runs(rig, 1);
    rig_stop(rig);
}

/* In one batch of orders, none is lost or mixed up. */
TEST_CASE(test_many_orders)
{
    enum { ORDERS = 200, AHEAD = 8 };
    const struct rig_stage *const stages[] = {&SHELF, &MODEL_CACHE_ALONE};
    for (int i = 0; i < 2; i++) {
        struct rig *rig = rig_start_models(*stages[i]);
        for (uint32_t k = 0; k < ORDERS + AHEAD; k++) {
            if (k < ORDERS) {
                struct handshake_model order =
                    rig_order(rig, k % 2 == 0 ? MODEL_LOAD : MODEL_UNLOAD, 1 + k / 2, NULL, "");
                rig_notify(rig, 0, &order);
            }
            if (k < AHEAD)
                continue;
            const struct handshake_model_said *said = rig_receive_said(rig, 0);
            assert_int_equal(said->number, 1 + (k - AHEAD) / 2);
            assert_int_equal(said->event, (k - AHEAD) % 2 == 0 ? MODEL_LOADED : MODEL_UNLOADED);
        }
        rig_stop(rig);
    }
}

/* `map_file` lends nothing outside of a load. */
TEST_CASE(test_map_outside_of_load)
{
    struct rig *rig = rig_start_models(SHELF);
    rig_load(rig, 1, NULL, "thief");
    rig_unload(rig, 1);
    rig_runs_not(rig, 1);
    rig_stop(rig);
}

/* In the sandbox: what a load needs is granted while the worker serves, and nothing else. */
TEST_CASE(test_sandbox)
{
    const struct rig_stage *const stages[] = {&SHELF, &MODEL_CACHE_ALONE};
    for (int i = 0; i < 2; i++) {
        struct rig_stage stage = *stages[i];
        stage.sandboxed = true;
        struct rig *rig = rig_start_models(stage);
        const char *path = rig_write_file(rig, "weights", "*", 1);
        uint64_t parts = rig_counter(rig, 0, WORKER_SANDBOX);
        if ((parts & SANDBOX_PART_LANDLOCK_FILES) && (parts & SANDBOX_PART_CALLS_SERVING)) {
            struct handshake_model order = rig_order(rig, MODEL_LOAD, 1, path, "escape");
            assert_string_equal(rig_order_and_receive(rig, 0, &order)->text,
                                "granted: read library thread");
        }
        rig_load(rig, 1, path, "map");
        assert_int_equal(rig_runs(rig, 1).words[PROBE_PARAMETER_VALUE], '*');
        rig_unload(rig, 1);
        unlink(path);
        rig_stop(rig);
    }
}

/* A stage whose modelet has no models of its own runs everybody's items. */
TEST_CASE(test_stage_that_wants_none)
{
    const struct rig_stage echo = {.modelet = "lib/shoal/libecho.so"};
    struct rig *rig = rig_start_models(echo);
    for (uint32_t i = 1; i < 4; i++)
        assert_int_equal(rig_call(rig, rig_ask(PROBE_ECHO, 0, i)).status, STATUS_OK);
    struct handshake_model order = rig_order(rig, MODEL_LOAD, 1, NULL, "");
    const struct handshake_model_said *said;
    rig_notify(rig, 0, &order);
    said = rig_receive_said(rig, 0);
    assert_int_equal(said->event, MODEL_FAILED);
    assert_int_equal(said->status, STATUS_UNIMPLEMENTED);
    rig_stop(rig);
}

TEST_MAIN()
