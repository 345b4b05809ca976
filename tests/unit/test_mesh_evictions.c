/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evictions of a full node when an operator registers models (E, K2 to K4, O5): room for eighteen
 * models of 50 units beside the reserve, six loaders, loads of 20 ms. The models are loaded with
 * their registration and never called.
 */
#include "mesh_rig.h"

enum { FIT = 18, MODEL_UNITS = 50, CAPACITY_UNITS = 1024 };

static const char *
name(uint32_t number)
{
    static char text[4][TEXT];
    static uint32_t at;
    at = (at + 1) % 4;
    snprintf(text[at], TEXT, "m%u", number);
    return text[at];
}

static enum mesh_state
state_of(uint32_t number)
{
    return mesh_state(mesh, name(number));
}

static const struct rig_reply *
register_now(const char *id)
{
    now_ms += 10;
    return order(REGISTER(id, "t", .path = "p", .load_now = true, .sync = true));
}

static int
fresh_full(void **state)
{
    fresh(state);
    size_units = MODEL_UNITS;
    load_ms = 20;
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = (uint64_t)CAPACITY_UNITS * UNIT,
                                         .default_bytes = (uint64_t)MODEL_UNITS * UNIT,
                                         .loaders = 6,
                                         .load_timeout_ms = 90000}});
    for (uint32_t i = 0; i < FIT; i++)
        assert_int_equal(register_now(name(i))->model, MESH_MODEL_LOADED);
    for (uint32_t i = 0; i < FIT; i++)
        assert_int_equal(state_of(i), MESH_STATE_LOADED);
    return 0;
}

/* The oldest goes, at once; the reserve lets two loads begin before its memory is free. */
TEST_CASE(test_one_by_one)
{
    unloads_wait = true;
    assert_int_equal(register_now("m18")->model, MESH_MODEL_LOADED);
    assert_seen("unload m0", 1);
    assert_seen("unload", 1);
    assert_int_equal(register_now("m19")->model, MESH_MODEL_LOADED);
    assert_seen("unload m1", 1);
    assert_false(register_now("m20")->came);
    assert_int_equal(state_of(20), MESH_STATE_QUEUED);
    assert_int_equal(state_of(2), MESH_STATE_UNLOADING);
    assert_int_equal(state_of(3), MESH_STATE_LOADED);
    runtime_ends(MESH_UNLOAD_ENDED, "m0");
    assert_int_equal(replies[0].model, MESH_MODEL_LOADED);
    unloads_wait = false;
    runtime_ends(MESH_UNLOAD_ENDED, "m1");
    runtime_ends(MESH_UNLOAD_ENDED, "m2");
    now_ms += 10;
    (void)order((struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "m0"});
    assert_seen("unload m3", 1);
    assert_seen("unload", 1);
    assert_int_equal(state_of(0), MESH_STATE_LOADED);
}

/* K4: it takes 160 units, and was predicted to take 50. */
TEST_CASE(test_larger_than_predicted)
{
    prompt = false;
    (void)register_now("large");
    runtime_ends(MESH_SIZE_PREDICTED, "large");
    assert_seen("unload m0", 1);
    assert_seen("unload", 1);
    size_units = 160;
    runtime_ends(MESH_LOAD_ENDED, "large");
    assert_seen("unload m1", 1);
    assert_seen("unload m2", 1);
    assert_seen("unload", 3);
    assert_int_equal(mesh_state(mesh, "large"), MESH_STATE_LOADED);
}

/* The runtime finishes all orders. */
static void
finish_all(uint32_t models_count)
{
    static const struct {
        enum mesh_state state;
        enum mesh_event_kind end;
    } ends[] = {{MESH_STATE_CLAIMING, MESH_SIZE_PREDICTED},
                {MESH_STATE_LOADING, MESH_LOAD_ENDED},
                {MESH_STATE_UNLOADING, MESH_UNLOAD_ENDED}};
    for (bool some = true; some;) {
        some = false;
        now_ms++;
        for (uint32_t i = 0; i < models_count; i++)
            for (uint32_t k = 0; k < sizeof(ends) / sizeof(ends[0]); k++) {
                if (state_of(i) != ends[k].state)
                    continue;
                runtime_ends(ends[k].end, name(i));
                some = true;
            }
    }
}

/* As many go as come, the oldest of them, and none twice. */
TEST_CASE(test_many_at_once)
{
    prompt = false;
    begin();
    for (uint32_t i = 0; i < ORDERS; i++)
        order_more(
            REGISTER(name(FIT + i), "t", .path = "p", .load_now = true, .sync = true, .order = i));
    finish_all(FIT + ORDERS);
    for (uint32_t i = 0; i < ORDERS; i++) {
        assert_int_equal(replies[i].model, MESH_MODEL_LOADED);
        assert_int_equal(state_of(i), MESH_STATE_NONE);
    }
    for (uint32_t i = ORDERS; i < FIT + ORDERS; i++)
        assert_int_equal(state_of(i), MESH_STATE_LOADED);
    assert_seen("unload", ORDERS);
}

/* Some of those that would go are unregistered meanwhile. */
static void
check_unregistered_beside(bool unregistered_first)
{
    enum { COME = 5, GO = 3 };
    prompt = false;
    begin();
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < GO && (pass == 0) == unregistered_first; i++)
            order_more(
                (struct mesh_order){.kind = MESH_UNREGISTER, .model = name(i), .order = COME + i});
        for (uint32_t i = 0; i < COME && (pass == 1) == unregistered_first; i++)
            order_more(REGISTER(name(FIT + i), "t", .path = "p", .load_now = true, .sync = true,
                                .order = i));
    }
    finish_all(FIT + COME);
    for (uint32_t i = 0; i < COME; i++) {
        assert_int_equal(replies[i].model, MESH_MODEL_LOADED);
        assert_int_equal(state_of(i), MESH_STATE_NONE);
    }
    for (uint32_t i = COME; i < FIT + COME; i++)
        assert_int_equal(state_of(i), MESH_STATE_LOADED);
    assert_seen("unload", COME);
}

TEST_CASE(test_unregistered_before)
{
    check_unregistered_beside(true);
}

TEST_CASE(test_unregistered_after)
{
    check_unregistered_beside(false);
}

TEST_MAIN(.setup = fresh_full, .teardown = drop)
