/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models with a limit of concurrent calls: S6 (places, waiting calls, refusals), R2 and R11 for
 * them, waiting calls when the copy goes, and S5 (another copy when places are busy, by the calls'
 * duration).
 */
#include "mesh_rig.h"

enum { WAITING = 16 };

/* Loads a model with so many places here. */
static void
load_with(const char *model, uint32_t number_pool)
{
    put(model, "");
    concurrency = number_pool;
    call_as(0, model, MESH_HOP_LOAD); /* here, however busy this node is */
    end_call(0, MESH_END_OK, 0);
    begin();
}

static void
calls(uint32_t first, uint32_t count, const char *model)
{
    for (uint32_t i = first; i < first + count; i++)
        call_as(i, model, MESH_HOP_ENTRY);
}

/* Calls get places in the order of their arrival. */
TEST_CASE(test_seats)
{
    load_with("m1", 2);
    calls(1, 5, "m1");
    assert_seen("serve", 2);
    assert_seen("serve 1 m1", 1);
    assert_seen("serve 2 m1", 1);
    end_call(2, MESH_END_OK, 0);
    assert_seen("serve 3 m1", 1);
    assert_seen("serve", 3);
    cancel(4);
    end_call(1, MESH_END_OK, 0);
    assert_seen("serve 5 m1", 1); /* 4 has left the queue */
    end_call(3, MESH_END_OK, 0);
    end_call(5, MESH_END_OK, 0);
    assert_seen("serve", 4);
    load_with("m2", 0);
    calls(1, 50, "m2");
    assert_seen("serve", 50); /* no limit */
}

/* Calls that waited for the load then wait for a place; the last ones beyond the limit are refused.
 */
TEST_CASE(test_seats_after_the_load)
{
    put("m1", "");
    concurrency = 1;
    prompt = false;
    calls(1, WAITING + 4, "m1");
    runtime_ends(MESH_SIZE_PREDICTED, "m1");
    begin();
    now_ms += LOAD_MS;
    runtime_ends(MESH_LOAD_ENDED, "m1");
    assert_seen("serve", 1);
    assert_seen("serve 1 m1", 1);
    assert_seen("answer", 3);
    char line[40];
    for (uint32_t i = WAITING + 2; i <= WAITING + 4; i++) {
        snprintf(line, sizeof(line), "answer %u overloaded", i);
        assert_seen(line, 1);
    }
    begin();
    end_call(1, MESH_END_OK, 0);
    assert_seen("serve 2 m1", 1);
}

/* max(16, 8 x places) wait. */
TEST_CASE(test_waiting_limit)
{
    load_with("m1", 1);
    calls(1, 1 + WAITING, "m1");
    assert_seen("answer", 0);
    call_as(40, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 40 overloaded", 1); /* no other node could load it */
    load_with("m2", 3);
    calls(41, 3 + 24, "m2");
    assert_seen("answer", 0);
    call_as(80, "m2", MESH_HOP_HIT);
    assert_seen("answer 80 overloaded", 1);
}

/* R11: a call tries a second copy after one that is overloaded, or has one loaded; two overloaded
 * copies end it. */
TEST_CASE(test_overloaded_call_goes_to_the_next_copy)
{
    instance("other", 500);
    instance("third", 500);
    load_with("m1", 1);
    calls(1, 1 + WAITING, "m1");
    begin();
    call_as(40, "m1", MESH_HOP_ENTRY);
    assert_seen("forward", 1); /* to be loaded there */
    assert_true(seen("forward 40 m1 other load") + seen("forward 40 m1 third load") == 1);
    add_place("m1", "other", MESH_PLACE_LOADED);
    begin();
    call_as(41, "m1", MESH_HOP_ENTRY);
    assert_seen("forward 41 m1 other hit", 1); /* fewer calls there: R2 does not hold */
    end_call(41, MESH_END_OVERLOADED, 0);
    add_place("m1", "third", MESH_PLACE_LOADED);
    begin();
    for (uint32_t i = 42; i < 44; i++)
        call_as(i, "m1", MESH_HOP_ENTRY);
    assert_seen("forward", 2);
    end_call(42, MESH_END_OVERLOADED, 0);
    end_call(42, MESH_END_OVERLOADED, 0);
    assert_seen("answer 42 overloaded", 1);
    assert_seen("answer", 1);
}

/* A copy in withdrawal still gives places; afterwards the waiting calls go elsewhere. */
TEST_CASE(test_withdrawn_copy_serves_until_it_is_gone)
{
    instance("other", 500);
    load_with("m1", 1);
    calls(1, 4, "m1");
    assert_seen("serve", 1);
    network = NETWORK_DOWN;
    drain();
    add_place("m1", "other", MESH_PLACE_LOADED);
    assert_seen("write m1 other:loaded", 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_WITHDRAWING);
    end_call(1, MESH_END_OK, 0);
    assert_seen("serve 2 m1", 1);
    begin();
    put("m1", "other:loaded"); /* the withdrawal, seen */
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_EMPTYING);
    assert_seen("forward 3 m1 other hit", 1);
    assert_seen("forward 4 m1 other hit", 1);
    assert_seen("unload m1", 0); /* under a call (I4) */
    end_call(2, MESH_END_OK, 0);
    assert_seen("unload m1", 1);
}

/* The runtime has forgotten the model: waiting calls get no place until it is loaded again. */
TEST_CASE(test_vanished_copy_is_loaded_again)
{
    load_with("m1", 1);
    calls(1, 3, "m1");
    begin();
    vanish(1);
    assert_seen("unload", 0);
    assert_seen("load m1", 1);
    assert_seen("answer", 0);
    assert_seen("serve", 1); /* of the three, after the load */
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    assert_seen("answer", 0); /* they wait for the call that is still in the runtime (R12) */
    end_call(2, MESH_END_UNREACHABLE, 0);
    assert_seen("answer", 0); /* and then for the runtime (R14) */
    tick(5000);
    assert_seen("answer", 3);
}

/* With another copy they go there at once, even while etcd is down. */
TEST_CASE(test_vanished_copy_beside_another)
{
    instance("other", 500);
    load_with("m1", 1);
    calls(1, 3, "m1");
    add_place("m1", "other", MESH_PLACE_LOADED);
    network = NETWORK_DOWN;
    begin();
    vanish(1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_WITHDRAWING);
    assert_seen("forward", 3);
}

/* R2: for a model with places the number of calls decides, not whose copy it is. */
TEST_CASE(test_routes_to_the_copy_with_fewest_calls)
{
    instance("other", 500);
    load_with("m1", 2);
    load_with("m2", 0);
    add_place("m1", "other", MESH_PLACE_LOADED);
    add_place("m2", "other", MESH_PLACE_LOADED);
    begin();
    calls(1, 2, "m1");
    assert_seen("serve 1 m1", 1);
    assert_seen("forward 2 m1 other hit", 1);
    end_call(2, MESH_END_OK, 0);
    calls(3, 2, "m2");
    assert_seen("serve 3 m2", 1);
    assert_seen("serve 4 m2", 1);
}

/* A call waits for a place until its deadline. */
TEST_CASE(test_waiting_call_meets_its_deadline)
{
    load_with("m1", 1);
    calls(1, 2, "m1");
    now_ms += 61000;
    end_call(1, MESH_END_OK, 0);
    assert_seen("answer 2 deadline", 1);
    assert_seen("serve", 1);
    calls(1, 2, "m1");
    tick(61000);
    assert_seen("answer 2 deadline", 1);
}

/* Serves so many calls of that duration; then the tick after ten seconds looks at them. */
static void
ten_seconds(const char *model, uint32_t count, uint64_t took_us)
{
    for (uint32_t i = 0; i < count; i++) {
        call_as(0, model, MESH_HOP_ENTRY);
        end_call(0, MESH_END_OK, took_us);
    }
    tick(10000);
}

/* S5: one place, 600 ms a call: 90 calls a minute are 90 percent of it. */
TEST_CASE(test_busy_threshold)
{
    instance("other", 900);
    load_with("m1", 1);
    tick(10000);
    ten_seconds("m1", 7, 60000000); /* fewer than eight calls say nothing, however long */
    assert_seen("ensure", 0);
    tick(10000);
    load_with("m2", 1);
    tick(10000);
    ten_seconds("m2", 14, 600000); /* 84 a minute */
    assert_seen("ensure", 0);
    ten_seconds("m2", 16, 600000); /* 96 */
    assert_seen("ensure m2 other copy 2", 1);
    load_with("m3", 4);
    tick(10000);
    ten_seconds("m3", 59, 600000); /* 354 of 360 */
    assert_seen("ensure m3", 0);
    ten_seconds("m3", 61, 600000); /* 366 */
    assert_seen("ensure m3 other copy 2", 1);
}

static int
fresh_configured(void **state)
{
    (void)state;
    return start((struct mesh_config){.busy_percent = 50, .waiting_max = 2});
}

/* The configuration sets two waiting calls and 50 percent. */
TEST_CASE_WITH(test_configured_limits, fresh_configured, drop)
{
    load_with("m1", 4);
    calls(1, 4 + 2, "m1");
    assert_seen("answer", 0);
    call_as(40, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 40 overloaded", 1);
    instance("other", 900);
    load_with("m2", 1);
    tick(10000);
    ten_seconds("m2", 8, 600000); /* 48 a minute */
    assert_seen("ensure", 0);
    ten_seconds("m2", 9, 600000); /* 54: more than half of the time */
    assert_seen("ensure m2 other copy 2", 1);
}

/* The mean covers the last full window and the calls since. */
TEST_CASE(test_mean_covers_a_window)
{
    instance("other", 900);
    load_with("m1", 1);
    tick(10000);
    begin();
    for (int i = 0; i < 2; i++)
        ten_seconds("m1", 64, 10); /* so short that 384 a minute are nothing */
    ten_seconds("m1", 20, 600000); /* 64 of 84 were: a mean of 143 ms, 378 a minute */
    assert_seen("ensure", 0);
    ten_seconds("m1", 64, 600000); /* 64 of 148: 340 ms, 158 a minute */
    assert_seen("ensure m1 other copy 2", 1);
    load_with("m2", 1);
    step((struct mesh_event){
        .kind = MESH_USED,
        .used = {.model = "m2", .count = 64, .used_ms = WALL + now_ms, .took_us = UINT64_MAX}});
    step((struct mesh_event){
        .kind = MESH_USED,
        .used = {.model = "m2", .count = 64, .used_ms = WALL + now_ms, .took_us = UINT64_MAX}});
    tick(10000); /* does not overflow */
    assert_seen("ensure m2 other copy 2", 1);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
