/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog with real workers: models are loaded, asked and unloaded while the pipeline serves,
 * and what each order and each request comes to when a load takes long, fails, hangs or kills its
 * worker. Requests are submitted as a front does it; models do what their keys say (shelf.h).
 */
#include "test_catalog_rig.h"

static void
test_load_ask_unload(void **state)
{
    struct rig *rig = *state;
    struct error error = ERROR_NONE;
    assert_int_equal(ask(rig, "m1", 0, PROBE_ECHO, 7, &error), STATUS_NOT_FOUND);
    struct order load = give(rig, ORDER_LOAD, "m1", "concurrency=3");
    assert_done(load);
    assert_int_equal(load.facts.max_concurrency, 3);
    assert_asked(rig, "m1", 0, PROBE_ECHO, 7);
    assert_answered(rig, 0, 1);
    assert_done(give(rig, ORDER_LOAD, "m1", "concurrency=3")); /* once more: it is there */
    assert_refused(give(rig, ORDER_LOAD, "m1", "other"), STATUS_ALREADY_EXISTS, "unload it first");
    assert_done(give(rig, ORDER_UNLOAD, "m1", ""));
    assert_int_equal(ask(rig, "m1", 0, PROBE_ECHO, 7, &error), STATUS_NOT_FOUND);
    assert_done(give(rig, ORDER_UNLOAD, "m1", ""));
    assert_done(give(rig, ORDER_UNLOAD, "never", ""));
    wait_returned(rig);
}

static void
test_waits_for_load(void **state)
{
    struct rig *rig = *state;
    char key[256];
    char gate[200];
    rig_path(rig, "gate", gate, sizeof(gate));
    snprintf(key, sizeof(key), "gate=%s", gate);
    assert_done(give(rig, ORDER_LIST, "m2", key));
    assert_done(give(rig, ORDER_LOAD, "m3", ""));
    for (uint32_t i = 0; i < 8; i++)
        assert_asked(rig, "m2", i, PROBE_ECHO, i);
    wait_state(rig, "m2", MODEL_IS_LOADING);
    assert_asked(rig, "m3", 20, PROBE_ECHO, 1); /* others go on */
    assert_answered(rig, 20, 3);
    assert_false(rig->calls[0].answered);
    rig_file(rig, "gate");
    for (uint32_t i = 0; i < 8; i++)
        assert_answered(rig, i, 2);
    wait_returned(rig);
    assert_true(count(rig, PIPELINE_MODEL_MISSES) >= 8);
}

static void
test_failing_load(void **state)
{
    struct rig *rig = *state;
    assert_refused(give(rig, ORDER_LOAD, "m4", "fail"), STATUS_OUT_OF_RANGE, "told to fail m4");
    struct error error = ERROR_NONE;
    assert_int_equal(ask(rig, "m4", 0, PROBE_ECHO, 0, &error), STATUS_NOT_FOUND);
    assert_done(give(rig, ORDER_LIST, "m5", "fail"));
    assert_asked(rig, "m5", 1, PROBE_ECHO, 0);
    assert_failed(rig, 1, STATUS_OUT_OF_RANGE, "told to fail m5");
    wait_state(rig, "m5", MODEL_IS_FAILED);
    assert_int_equal(ask(rig, "m5", 2, PROBE_ECHO, 0, &error), STATUS_OUT_OF_RANGE);
    assert_non_null(strstr(error.text, "told to fail m5"));
    wait_returned(rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_load_ask_unload, set_up, catalog_tear_down),
        cmocka_unit_test_setup_teardown(test_waits_for_load, set_up, catalog_tear_down),
        cmocka_unit_test_setup_teardown(test_failing_load, set_up, catalog_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
