/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: timeout=240
 *
 * The catalog with real workers: models are loaded, asked and unloaded while the pipeline serves,
 * and what each order and each request comes to when a load takes long, fails, hangs or kills its
 * worker. Requests are submitted as a front does it; models do what their keys say (model_cache.h).
 */
#include "test_catalog_rig.h"

TEST_CASE(test_load_ask_unload)
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

TEST_CASE(test_waits_for_load)
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

TEST_CASE(test_failing_load)
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

TEST_CASE(test_unload_waits_for_requests)
{
    struct rig *rig = *state;
    struct error error = ERROR_NONE;
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    assert_asked(rig, "m1", 0, PROBE_WAIT, 0); /* until it is cancelled */
    wait_runs(rig);
    struct order unload = {.rig = rig, .kind = ORDER_UNLOAD, .id = "m1", .path = "", .key = ""};
    order_begin(&unload);
    wait_state(rig, "m1", MODEL_IS_UNLOADING);
    assert_int_equal(ask(rig, "m1", 1, PROBE_ECHO, 0, &error), STATUS_NOT_FOUND);
    struct order again = give(rig, ORDER_LIST, "m1", ""); /* it is to come back */
    assert_done(again);
    assert_asked(rig, "m1", 2, PROBE_ECHO, 0);
    assert_int_equal(unload.done, 0);
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    assert_answered(rig, 0, 1);
    assert_int_equal(order_end(&unload), STATUS_OK);
    assert_answered(rig, 2, 1);
    assert_int_equal(count(rig, PIPELINE_MODEL_LOADS), 2);
    wait_returned(rig);
}

/* ---- in a mesh ---- */

struct used {
    uint32_t models;
    uint32_t uses;
    char id[64];
};

static void
on_used(void *context, const char *id, uint32_t count, int64_t used_ns)
{
    struct used *used = context;
    used->models++;
    used->uses += count;
    snprintf(used->id, sizeof(used->id), "%s", id);
    assert_true(used_ns > 0);
}

static struct used used_now;

static void
harvest_now(struct pipeline *pipeline, struct lane *lane)
{
    (void)lane;
    used_now = (struct used){0};
    models_harvest(pipeline->options.models->context, on_used, &used_now);
}

static struct model *
enter_loaded(struct rig *rig, const char *id, enum model_count count)
{
    struct pipeline *pipeline;
    return registry_enter_loaded(rig->assembly.registry, id, strlen(id), count, &pipeline);
}

static void
admit(struct rig *rig, const char *id, enum model_admission admission)
{
    registry_admit(rig->assembly.registry, id, admission);
}

/* A request that has entered a loaded model is served even if the model is unloaded; it is not
 * found any more meanwhile, and gone when the last one has left. */
TEST_CASE(test_entered_as_loaded)
{
    struct rig *rig = *state;
    struct error error = ERROR_NONE;
    admit(rig, "m1", MODEL_OPEN);
    assert_null(enter_loaded(rig, "m1", MODEL_COUNTED));
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    assert_null(enter_loaded(rig, "m1", MODEL_COUNTED));
    model_leave_loaded(enter_loaded(rig, "m1", MODEL_UNCOUNTED));
    admit(rig, "m1", MODEL_OPEN);
    model_leave_loaded(enter_loaded(rig, "m1", MODEL_COUNTED));
    admit(rig, "m1", MODEL_CLOSED);
    assert_null(enter_loaded(rig, "m1", MODEL_COUNTED));
    admit(rig, "m1", MODEL_OPEN);
    struct model *first = enter_loaded(rig, "m1", MODEL_COUNTED);
    struct model *second = enter_loaded(rig, "m1", MODEL_COUNTED);
    assert_true(first != NULL && first == second);
    struct order unload = {.rig = rig, .kind = ORDER_UNLOAD, .id = "m1", .path = "", .key = ""};
    order_begin(&unload);
    wait_state(rig, "m1", MODEL_IS_UNLOADING);
    assert_null(enter_loaded(rig, "m1", MODEL_COUNTED));
    rig->model = first;
    rig->model_held = true;
    assert_int_equal(submit(rig, 0, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_OK);
    rig->model = NULL;
    rig->model_held = false;
    assert_answered(rig, 0, 1);
    assert_done(give(rig, ORDER_LOAD, "m2", "")); /* the loop has had its turns */
    assert_int_equal(unload.done, 0);
    model_leave_loaded(second);
    assert_int_equal(order_end(&unload), STATUS_OK);
    assert_int_equal(count(rig, PIPELINE_MODEL_MISSES), 0);
    assert_int_equal(count(rig, PIPELINE_MODEL_RETURNS), 0);
    wait_returned(rig);
}

TEST_CASE(test_uses_are_reported_once)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    assert_done(give(rig, ORDER_LOAD, "m2", ""));
    assert_done(give(rig, ORDER_LOAD, "m3", ""));
    admit(rig, "m1", MODEL_OPEN);
    admit(rig, "m2", MODEL_OPEN);
    for (int i = 0; i < 3; i++)
        model_leave_loaded(enter_loaded(rig, "m2", MODEL_COUNTED));
    model_leave_loaded(enter_loaded(rig, "m3", MODEL_UNCOUNTED));
    on_loop(rig, harvest_now);
    assert_int_equal(used_now.models, 1);
    assert_int_equal(used_now.uses, 3);
    assert_string_equal(used_now.id, "m2");
    on_loop(rig, harvest_now);
    assert_int_equal(used_now.models, 0);
    model_leave_loaded(enter_loaded(rig, "m2", MODEL_COUNTED));
    model_leave_loaded(enter_loaded(rig, "m1", MODEL_COUNTED));
    on_loop(rig, harvest_now);
    assert_int_equal(used_now.models, 2);
    assert_int_equal(used_now.uses, 2);
}

/* Not for those in a worker's hands alone. */
TEST_CASE(test_unload_waits_for_the_ring)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    assert_done(give(rig, ORDER_LOAD, "m2", ""));
    assert_asked(rig, "m2", 0, PROBE_WAIT, 0);
    wait_runs(rig);
    assert_asked(rig, "m1", 1, PROBE_ECHO, 0); /* nobody is there to take it */
    struct order unload = {.rig = rig, .kind = ORDER_UNLOAD, .id = "m1", .path = "", .key = ""};
    order_begin(&unload);
    wait_state(rig, "m1", MODEL_IS_UNLOADING);
    assert_done(give(rig, ORDER_LOAD, "m3", "")); /* the loader has had its turn */
    assert_int_equal(unload.done, 0);
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    assert_answered(rig, 0, 2);
    assert_answered(rig, 1, 1);
    assert_int_equal(order_end(&unload), STATUS_OK);
    assert_int_equal(count(rig, PIPELINE_MODEL_RETURNS), 0);
}

TEST_CASE(test_unload_while_loading)
{
    struct rig *rig = *state;
    struct order load = {
        .rig = rig, .kind = ORDER_LOAD, .id = "m1", .path = "m1", .key = gated(rig, "")};
    struct order waiting[3] = {load, load, load};
    waiting[1].id = waiting[1].path = "m2";
    waiting[2].id = waiting[2].path = "m3"; /* the third is not begun */
    for (int i = 0; i < 3; i++)
        order_begin(&waiting[i]);
    wait_state(rig, "m3", MODEL_IS_LOADING);
    wait_reported(rig, 1); /* to load m1 */
    assert_done(give(rig, ORDER_UNLOAD, "m3", ""));
    assert_int_equal(order_end(&waiting[2]), STATUS_ABORTED);
    struct order unload = {.rig = rig, .kind = ORDER_UNLOAD, .id = "m1", .path = "", .key = ""};
    order_begin(&unload);
    assert_int_equal(order_end(&waiting[0]), STATUS_ABORTED);
    assert_int_equal(unload.done, 0); /* what is under way is waited for */
    rig_file(rig, "gate");
    assert_int_equal(order_end(&unload), STATUS_OK);
    assert_int_equal(order_end(&waiting[1]), STATUS_OK);
    wait_state(rig, "m1", MODEL_STATES);
}

TEST_CASE(test_purge)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    assert_done(give(rig, ORDER_LIST, "m2", ""));
    assert_done(give(rig, ORDER_LOAD, "m2", ""));
    struct order load = {
        .rig = rig, .kind = ORDER_LOAD, .id = "m3", .path = "m3", .key = gated(rig, "")};
    order_begin(&load);
    wait_state(rig, "m3", MODEL_IS_LOADING);
    struct order purge = {.rig = rig, .kind = ORDER_PURGE, .path = "", .key = ""};
    order_begin(&purge);
    assert_int_equal(order_end(&load), STATUS_ABORTED);
    rig_file(rig, "gate");
    assert_int_equal(order_end(&purge), STATUS_OK);
    wait_state(rig, "m1", MODEL_STATES);
    wait_state(rig, "m2", MODEL_IS_KNOWN);
    wait_state(rig, "m3", MODEL_STATES);
    assert_false(look_at(rig, "m2").row.ordered);
    assert_done(give(rig, ORDER_UNLIST, "m2", ""));
    wait_state(rig, "m2", MODEL_STATES);
    assert_done(give(rig, ORDER_PURGE, NULL, "")); /* of nothing */
}

/* Under another path or key it is another model; test_catalog_replaced.c has how it comes in. */
TEST_CASE(test_listed_anew)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LIST, "m1", "heap=10"));
    assert_asked(rig, "m1", 0, PROBE_ECHO, 0);
    assert_answered(rig, 0, 1);
    assert_done(give(rig, ORDER_LIST, "m1", "heap=10")); /* nothing new */
    assert_int_equal(look_at(rig, "m1").row.state, MODEL_IS_LOADED);
    assert_done(give(rig, ORDER_LIST, "m1", "heap=20"));
    wait_count(rig, PIPELINE_MODEL_LOADS, 2);
    assert_asked(rig, "m1", 1, PROBE_ECHO, 0);
    assert_answered(rig, 1, 1);
    assert_done(give(rig, ORDER_UNLOAD, "m1", ""));
    assert_done(give(rig, ORDER_LIST, "m1", "fail"));
    wait_state(rig, "m1", MODEL_IS_KNOWN);
    assert_asked(rig, "m1", 2, PROBE_ECHO, 0);
    assert_failed(rig, 2, STATUS_OUT_OF_RANGE, "told to fail");
    assert_done(give(rig, ORDER_LIST, "m1", ""));
    wait_state(rig, "m1", MODEL_IS_KNOWN); /* a new model has not failed */
    assert_asked(rig, "m1", 3, PROBE_ECHO, 0);
    assert_answered(rig, 3, 1);
}

TEST_CASE(test_names)
{
    struct rig *rig = *state;
    struct order order = {.rig = rig, .kind = ORDER_LOAD, .path = "m1", .key = ""};
    static const char *const fine[] = {"../x", "/etc", ".", "a b", "\xc3\xa4"};
    for (size_t i = 0; i < ARRAY_COUNT(fine); i++) { /* ids are never paths */
        struct order one = order;
        one.id = fine[i];
        order_begin(&one);
        if (order_end(&one) != STATUS_OK)
            fail_msg("%s: %s", one.id, one.text);
        assert_asked(rig, fine[i], 0, PROBE_ECHO, 0);
        assert_answered(rig, 0, 0);
    }
    static const struct {
        const char *id, *path, *part;
    } bad[] = {
        {"", "m1", "1 to 127 bytes"},
        {"shelf", "m1", "is the name of a pipeline"},
        {"a\nb", "m1", "control character"},
        {"x", "", "path is empty"},
        {"x", "../node.yaml", "leads out of the models' root"},
        {"x", "/etc/passwd", "is not beneath the models' root"},
        {"x", "nothing", "there is nothing beneath"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct order one = order;
        one.id = bad[i].id;
        one.path = bad[i].path;
        order_begin(&one);
        if (order_end(&one) == STATUS_OK || strstr(one.text, bad[i].part) == NULL)
            fail_msg("%s %s: %s", one.id, one.path, one.text);
    }
}

/* ---- waiting ---- */

TEST_CASE(test_waits_in_vain)
{
    struct rig *rig = *state;
    struct error error = ERROR_NONE;
    assert_done(give(rig, ORDER_LOAD, "m2", ""));
    assert_done(give(rig, ORDER_LIST, "m1", gated(rig, "")));
    assert_asked(rig, "m1", 0, PROBE_ECHO, 0);
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    assert_failed(rig, 0, STATUS_CANCELLED, "");
    struct pipeline *pipeline;
    rig->model =
        registry_enter(rig->assembly.registry, &(struct model_name){"m1", 2, ""}, &pipeline);
    assert_int_equal(
        submit(rig, 1, PROBE_ECHO, 0, clock_now_ns() + 50 * (int64_t)NS_PER_MS, &error), STATUS_OK);
    assert_failed(rig, 1, STATUS_DEADLINE_EXCEEDED, "while the model was being loaded");
    rig->model = NULL;
    for (uint32_t i = 0; i < SLOTS / 2; i++)
        assert_asked(rig, "m1", i, PROBE_ECHO, 0);
    assert_int_equal(ask(rig, "m1", 40, PROBE_ECHO, 0, &error), STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "wait for models already"));
    assert_asked(rig, "m2", 41, PROBE_ECHO, 0);
    assert_answered(rig, 41, 2);
    rig_file(rig, "gate");
    for (uint32_t i = 0; i < SLOTS / 2; i++)
        assert_answered(rig, i, 1);
    wait_returned(rig);
}

TEST_CASE(test_condemned)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    assert_done(give(rig, ORDER_LIST, "m2", gated(rig, "")));
    assert_asked(rig, "m2", 0, PROBE_ECHO, 0);
    wait_state(rig, "m2", MODEL_IS_LOADING);
    on_loop(rig, condemn);
    assert_failed(rig, 0, STATUS_UNAVAILABLE, "being rebuilt");
    wait_serving(rig, 2);
    assert_asked(rig, "m1", 1, PROBE_ECHO, 0); /* as if it had always been there */
    assert_answered(rig, 1, 1);
    assert_asked(rig, "m2", 2, PROBE_ECHO, 0);
    rig_file(rig, "gate");
    assert_answered(rig, 2, 2);
    wait_returned(rig);
}

/* ---- room ---- */

TEST_CASE(test_budget)
{
    enum { MODELS = 12 };
    struct rig *rig = *state;
    char ids[MODELS][16];
    assert_done(give(rig, ORDER_LOAD, "m20", "size=100000")); /* each is in two workers */
    for (int i = 0; i < MODELS; i++) {
        snprintf(ids[i], sizeof(ids[i]), "m%d", i);
        assert_done(give(rig, ORDER_LIST, ids[i], "size=100000"));
    }
    for (uint32_t i = 0; i < 3 * MODELS; i++) {
        assert_asked(rig, ids[i % MODELS], 0, PROBE_ECHO, 0);
        assert_answered(rig, 0, i % MODELS);
        uint64_t bytes = 0;
        for (int k = 0; k < MODELS; k++)
            bytes += look_at(rig, ids[k]).row.bytes;
        assert_true(bytes + 200000 <= 1 << 20);
    }
    assert_int_equal(look_at(rig, "m20").row.state, MODEL_IS_LOADED); /* it was ordered */
    assert_true(count(rig, PIPELINE_MODEL_EVICTIONS) >= 3 * MODELS - 4);
    assert_int_equal(count(rig, PIPELINE_MODEL_LOADS_FAILED), 0);
    assert_refused(give(rig, ORDER_LOAD, "m21", "size=450000"), STATUS_RESOURCE_EXHAUSTED,
                   "taken by models that were ordered");
    uint64_t loads = count(rig, PIPELINE_MODEL_LOADS);
    assert_refused(give(rig, ORDER_LOAD, "m22", "predict=2000000"), STATUS_RESOURCE_EXHAUSTED,
                   "memory_mib");
    assert_int_equal(count(rig, PIPELINE_MODEL_LOADS), loads); /* it was not even tried */
    wait_returned(rig);
}

/* One that is in use is not evicted; a load that needs its room waits. */
TEST_CASE(test_room_in_use)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LIST, "m1", "size=400000"));
    assert_done(give(rig, ORDER_LIST, "m2", "size=400000 predict=400000"));
    assert_asked(rig, "m1", 0, PROBE_WAIT, 0);
    wait_state(rig, "m1", MODEL_IS_LOADED);
    wait_runs(rig);
    assert_asked(rig, "m2", 1, PROBE_ECHO, 0);
    wait_count(rig, PIPELINE_MODEL_MISSES, 2);
    wait_state(rig, "m2", MODEL_IS_LOADING);
    assert_int_equal(look_at(rig, "m1").row.state, MODEL_IS_LOADED);
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    assert_answered(rig, 0, 1);
    assert_answered(rig, 1, 2);
    wait_state(rig, "m1", MODEL_IS_KNOWN);
    wait_returned(rig);
}

TEST_CASE(test_predict)
{
    struct rig *rig = *state;
    struct order said = give(rig, ORDER_PREDICT, "m1", "predict=5000");
    assert_done(said);
    assert_int_equal(said.facts.bytes, 10000); /* two workers */
    struct order unknown = give(rig, ORDER_PREDICT, "m1", "");
    assert_done(unknown);
    assert_int_equal(unknown.facts.bytes, 1 << 20);
    assert_done(give(rig, ORDER_LOAD, "m1", "size=3000"));
    unknown = give(rig, ORDER_PREDICT, "m2", "");
    assert_int_equal(unknown.facts.bytes, 6000); /* as another of such a file */
    assert_refused(give(rig, ORDER_PREDICT, "none", ""), STATUS_NOT_FOUND, "nothing beneath");
}

/* ---- what an operator sees ---- */

__attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes(void); /* NOLINT: its name */

static void
publish(struct pipeline *pipeline, struct lane *lane)
{
    (void)lane;
    pipeline_publish(pipeline);
}

TEST_CASE(test_gauges)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LOAD, "m1", "size=1000"));
    assert_done(give(rig, ORDER_LOAD, "m2", "leak=3000000"));
    assert_done(give(rig, ORDER_UNLOAD, "m2", ""));
    assert_done(give(rig, ORDER_LIST, "m3", gated(rig, "")));
    assert_done(give(rig, ORDER_LIST, "m4", ""));
    assert_asked(rig, "m3", 0, PROBE_ECHO, 0);
    wait_reported(rig, 4);
    on_loop(rig, publish);
    assert_int_equal(count(rig, PIPELINE_MODELS_KNOWN), 3);
    assert_int_equal(count(rig, PIPELINE_MODELS_LOADED), 1);
    assert_int_equal(count(rig, PIPELINE_MODELS_LOADING), 1);
    assert_int_equal(count(rig, PIPELINE_MODEL_REQUESTS_WAITING), 1);
    assert_int_equal(count(rig, PIPELINE_MODEL_BYTES_MAX), 100 << 20);
    assert_true(count(rig, PIPELINE_MODEL_BYTES) > 2000);
    /* in two workers; only jemalloc tells what is left of each model */
    uint64_t leaked = count(rig, PIPELINE_MODEL_BYTES_LEAKED);
    bool sanitized = __sanitizer_get_current_allocated_bytes != NULL;
    assert_true(sanitized ? leaked == 0 : leaked >= 6000000);
    rig_file(rig, "gate");
    assert_answered(rig, 0, 3);
    on_loop(rig, publish);
    assert_int_equal(count(rig, PIPELINE_MODEL_REQUESTS_WAITING), 0);
    assert_int_equal(count(rig, PIPELINE_MODEL_LOAD_TIME), 3); /* its first word */
}

/* ---- the end ---- */

static struct order left[3];

TEST_CASE(test_stop)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    assert_asked(rig, "m1", 0, PROBE_WAIT, 0);
    assert_done(give(rig, ORDER_LIST, "m4", gated(rig, "")));
    assert_asked(rig, "m4", 1, PROBE_ECHO, 0);
    for (int i = 0; i < 3; i++)
        left[i] = (struct order){.rig = rig, .path = "m2", .key = gated(rig, "")};
    left[0].id = "m2";
    left[1].id = "m3";
    left[2] = (struct order){.rig = rig, .kind = ORDER_UNLOAD, .id = "m1"};
    for (int i = 0; i < 3; i++)
        order_begin(&left[i]);
    wait_state(rig, "m1", MODEL_IS_UNLOADING);
}

static int
stop_tear_down(void **state)
{
    struct rig *rig = *state;
    loop_post(rig->loop, stop, rig);
    assert_failed(rig, 0, STATUS_UNAVAILABLE, "stopping");
    assert_failed(rig, 1, STATUS_UNAVAILABLE, "stopping");
    for (int i = 0; i < 3; i++)
        assert_int_equal(order_end(&left[i]), STATUS_UNAVAILABLE);
    return catalog_tear_down(state);
}

/* A model forgotten while it is on the list of awaited ones is freed all the same. The list is
 * looked through at the next tick, some milliseconds later: mostly the end comes before. */
TEST_CASE(test_stop_after_unload)
{
    struct rig *rig = *state;
    struct order load = {.rig = rig, .id = "m4", .path = "m4", .key = gated(rig, "")};
    order_begin(&load);
    wait_state(rig, "m4", MODEL_IS_LOADING);
    assert_asked(rig, "m4", 0, PROBE_ECHO, 0);
    rig_file(rig, "gate");
    assert_int_equal(order_end(&load), STATUS_OK);
    assert_answered(rig, 0, 4);
    assert_done(give(rig, ORDER_UNLOAD, "m4", ""));
}

/* ---- the rigs ---- */

static int
set_up_small(void **state)
{
    rig_models = "memory_mib: 1";
    return set_up(state);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_load_ask_unload, set_up),
        TEST(test_load_ask_unload, set_up_alone),
        TEST(test_waits_for_load, set_up),
        TEST(test_failing_load, set_up),
        TEST(test_unload_waits_for_requests, set_up),
        TEST(test_unload_waits_for_the_ring, set_up_one_worker),
        TEST(test_entered_as_loaded, set_up),
        TEST(test_uses_are_reported_once, set_up),
        TEST(test_unload_while_loading, set_up),
        TEST(test_purge, set_up),
        TEST(test_listed_anew, set_up),
        TEST(test_names, set_up),
        TEST(test_waits_in_vain, set_up),
        TEST(test_condemned, set_up),
        TEST(test_budget, set_up_small),
        TEST(test_room_in_use, set_up_small),
        TEST(test_predict, set_up),
        TEST(test_gauges, set_up),
        cmocka_unit_test_setup_teardown(test_stop, set_up, stop_tear_down),
        TEST(test_stop_after_unload, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
