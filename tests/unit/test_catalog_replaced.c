/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listed model whose files, path or key change, with real workers: the old version serves until
 * the new one can, and stays if the new one cannot; without room for both, or when the old one is
 * unloaded, requests wait for the new one. The first byte of its file says which version has
 * answered.
 *
 * ctest: timeout=240
 */
#include "test_catalog_rig.h"

static void
list(struct rig *rig, const char *path, const char *key)
{
    struct order order = {.rig = rig, .kind = ORDER_LIST, .id = "m1", .path = path, .key = key};
    order_begin(&order);
    if (order_end(&order) != STATUS_OK)
        fail_msg("%s: %s", path, order.text);
}

static void
make_versions(struct rig *rig)
{
    static const char *const versions[] = {"a", "b", "c"};
    for (size_t i = 0; i < ARRAY_COUNT(versions); i++)
        rig_file(rig, versions[i]);
}

static int64_t
version_of(struct rig *rig)
{
    assert_asked(rig, "m1", CALLS_MAX - 1, PROBE_ECHO, 0);
    assert_answered(rig, CALLS_MAX - 1, 1);
    return answer_of(rig, CALLS_MAX - 1)->words[PROBE_PARAMETER_VALUE];
}

static void
wait_version(struct rig *rig, int64_t version)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (version_of(rig) != version)
        if (clock_now_ns() > until_ns)
            fail_msg("version %c never came", (int)version);
}

static void
publish(struct pipeline *pipeline, struct lane *lane)
{
    (void)lane;
    catalog_publish(pipeline->catalog);
}

static void
wait_known(struct rig *rig, uint64_t models)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    uint64_t known;
    do {
        on_loop(rig, publish);
        known = count(rig, PIPELINE_MODELS_KNOWN);
        if (clock_now_ns() > until_ns)
            fail_msg("%llu models are known", (unsigned long long)known);
    } while (known != models);
}

/* "a" is loaded, and its successor "b" is loading. */
static void
begin_replacement(struct rig *rig, const char *words)
{
    make_versions(rig);
    list(rig, "a", "map");
    assert_int_equal(version_of(rig), 'a');
    list(rig, "b", gated(rig, words));
    wait_reported(rig, 2);
}

static int
set_up_small(void **state)
{
    rig_models = "memory_mib: 1";
    return set_up(state);
}

static int
replaced_tear_down(void **state)
{
    struct rig *rig = *state;
    char gate[200];
    rig_path(rig, "gate", gate, sizeof(gate));
    (void)close(open(gate, O_CREAT | O_WRONLY, 0644)); /* of a test that failed */
    return catalog_tear_down(state);
}

TEST_CASE(test_serves_until_the_next_can)
{
    struct rig *rig = *state;
    begin_replacement(rig, "map describe=ok");
    uint64_t misses = count(rig, PIPELINE_MODEL_MISSES);
    assert_int_equal(version_of(rig), 'a');
    assert_asked(rig, "m1", 0, PROBE_WAIT, 0);
    wait_runs(rig);
    rig_file(rig, "gate");
    wait_version(rig, 'b');
    assert_int_equal(count(rig, PIPELINE_MODEL_MISSES), misses);
    assert_int_equal(look_at(rig, "m1").row.state, MODEL_IS_LOADED);
    assert_false(rig->calls[0].answered); /* the old one lasts as long as its requests */
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    assert_answered(rig, 0, 1);
    assert_int_equal(answer_of(rig, 0)->words[PROBE_PARAMETER_VALUE], 'a');
    wait_known(rig, 1);
    assert_int_equal(count(rig, PIPELINE_MODEL_LOADS), 2);
    wait_returned(rig);
}

TEST_CASE(test_failing_successor)
{
    struct rig *rig = *state;
    begin_replacement(rig, "fail");
    rig_file(rig, "gate");
    wait_count(rig, PIPELINE_MODEL_LOADS_FAILED, 1);
    wait_known(rig, 1);
    assert_int_equal(version_of(rig), 'a');
    wait_count(rig, PIPELINE_MODELS_OUTDATED, 1);
    list(rig, "a", "map"); /* what serves is what it is to be */
    wait_count(rig, PIPELINE_MODELS_OUTDATED, 0);
    list(rig, "b", "fail");
    wait_count(rig, PIPELINE_MODELS_OUTDATED, 1);
    list(rig, "c", "map");
    wait_version(rig, 'c');
    wait_count(rig, PIPELINE_MODELS_OUTDATED, 0);
    assert_int_equal(count(rig, PIPELINE_MODEL_LOADS), 2);
    wait_returned(rig);
}

/* Successors that kill their workers are given up like those that fail. */
TEST_CASE(test_crashing_successor)
{
    struct rig *rig = *state;
    make_versions(rig);
    list(rig, "a", "map");
    assert_int_equal(version_of(rig), 'a');
    list(rig, "b", "crash");
    wait_count(rig, PIPELINE_MODEL_LOADS_FAILED, 1);
    assert_int_equal(version_of(rig), 'a');
    wait_known(rig, 1);
    wait_returned(rig);
}

TEST_CASE(test_changed_again)
{
    struct rig *rig = *state;
    begin_replacement(rig, "map");
    list(rig, "c", "map"); /* while "b" loads, and the only loader of each worker with it */
    assert_int_equal(version_of(rig), 'a');
    rig_file(rig, "gate");
    wait_version(rig, 'c');
    wait_known(rig, 1);
    wait_returned(rig);
}

TEST_CASE(test_changed_back)
{
    struct rig *rig = *state;
    begin_replacement(rig, "map");
    list(rig, "a", "map");
    rig_file(rig, "gate");
    wait_known(rig, 1);
    assert_int_equal(version_of(rig), 'a');
    assert_int_equal(count(rig, PIPELINE_MODEL_LOADS_FAILED), 0);
    wait_returned(rig);
}

TEST_CASE(test_unloaded_meanwhile)
{
    struct rig *rig = *state;
    begin_replacement(rig, "map");
    struct order unload = {.rig = rig, .kind = ORDER_UNLOAD, .id = "m1", .path = "", .key = ""};
    order_begin(&unload);
    wait_state(rig, "m1", MODEL_IS_UNLOADING);
    rig_file(rig, "gate");
    assert_int_equal(order_end(&unload), STATUS_OK);
    wait_known(rig, 1);
    assert_int_equal(version_of(rig), 'b');
    wait_returned(rig);
}

TEST_CASE(test_purged_and_unlisted_meanwhile)
{
    struct rig *rig = *state;
    begin_replacement(rig, "map");
    struct order purge = {.rig = rig, .kind = ORDER_PURGE, .path = "", .key = ""};
    order_begin(&purge);
    rig_file(rig, "gate");
    assert_int_equal(order_end(&purge), STATUS_OK);
    wait_known(rig, 1);
    assert_int_equal(version_of(rig), 'b');
    list(rig, "c", "map");
    assert_done(give(rig, ORDER_UNLIST, "m1", ""));
    wait_state(rig, "m1", MODEL_STATES);
    wait_known(rig, 0);
    wait_returned(rig);
}

/* The budget holds one of them: requests wait, and none fails. */
TEST_CASE_WITH(test_no_room_for_both, set_up_small, replaced_tear_down)
{
    struct rig *rig = *state;
    make_versions(rig);
    list(rig, "a", "map size=300000 predict=300000");
    assert_int_equal(version_of(rig), 'a');
    list(rig, "b", "map size=300000 predict=300000");
    wait_version(rig, 'b');
    wait_known(rig, 1);
    assert_asked(rig, "m1", 0, PROBE_WAIT, 0);
    wait_runs(rig);
    list(rig, "c", "map size=300000 predict=300000");
    assert_int_equal(version_of(rig), 'b'); /* in use: the room is waited for */
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    wait_version(rig, 'c');
    wait_known(rig, 1);
    assert_int_equal(count(rig, PIPELINE_MODEL_LOADS_FAILED), 0);
    wait_returned(rig);
}

/* Workers that die meanwhile are replaced by some that load both versions. */
TEST_CASE(test_deaths_meanwhile)
{
    struct rig *rig = *state;
    begin_replacement(rig, "map");
    kill_worker(rig, 0);
    wait_restarts(rig, 1);
    rig_file(rig, "gate");
    wait_version(rig, 'b');
    wait_known(rig, 1);
    wait_returned(rig);
}

/* The old version's size says nothing of the new one, which has not been loaded yet. */
TEST_CASE(test_other_tensors)
{
    struct rig *rig = *state;
    make_versions(rig);
    list(rig, "a", "map describe=ok");
    assert_int_equal(version_of(rig), 'a');
    assert_done(give(rig, ORDER_UNLOAD, "m1", ""));
    list(rig, "b", "map");
    struct pipeline *pipeline;
    struct model *model =
        registry_enter(rig->assembly.registry, &(struct model_name){"m1", 2, ""}, &pipeline);
    struct lane *lane = pipeline_lane(pipeline);
    assert_non_null(model);
    assert_int_equal(model_info(lane, model).input_count, lane->info.input_count);
    lane_unref(lane);
    model_leave(model);
    assert_int_equal(version_of(rig), 'b');
    wait_returned(rig);
}

TEST_MAIN(.setup = set_up, .teardown = replaced_tear_down)
