/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The basic decisions of one node: it serves and loads, evicts, orders its queue, repeats
 * transactions that were lost or not answered, handles failed loads, asks for second copies, and
 * does the leader's and the janitor's rounds. The simulator checks eviction by age, withdrawals,
 * drains and late answers (I4, I6, I15 to I19, L2) from outside.
 */
#include "mesh_rig.h"

static const char *
name(uint32_t number)
{
    static char text[TEXT];
    snprintf(text, sizeof(text), "m%u", number);
    return text;
}

static int
fresh_with_twenty(void **state)
{
    fresh(state);
    for (uint32_t i = 0; i < 20; i++)
        put(name(i), "");
    begin();
    return 0;
}

static void
use_models(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        use(name(i));
    begin();
}

static void
call(uint32_t number, const char *model)
{
    begin();
    call_as(number, model, MESH_HOP_ENTRY);
}

static void
ensure(const char *model, int64_t used_ms, enum mesh_class class, uint64_t units)
{
    step((struct mesh_event){.kind = MESH_ENSURE,
                             .ensure = {.model = model,
                                        .used_ms = used_ms,
                                        .class = class,
                                        .size_bytes = units * UNIT,
                                        .where = MESH_HERE}});
}

TEST_CASE(test_call_loads_model_and_is_served)
{
    call(3, "m1");
    assert_seen("load m1", 1);
    assert_seen("serve 3 m1", 1);
    assert_seen("write m1 self:loaded", 1);
    end_call(3, MESH_END_OK, 0);
    begin();
    call_as(3, "m1", MESH_HOP_HIT);
    assert_seen("load", 0);
    assert_seen("serve 3 m1", 1);
    end_call(3, MESH_END_OK, 0);
    call_as(3, "m2", MESH_HOP_HIT);
    assert_seen("answer 3 not-here", 1);
    call_as(3, "unregistered", MESH_HOP_ENTRY);
    assert_seen("answer 3 not-found", 1);
}

/* E4 */
TEST_CASE(test_model_older_than_all_others_is_not_loaded)
{
    use_models(9);
    now_ms += 31000;
    ensure("m12", 1, MESH_CLASS_COPY, 100);
    assert_int_equal(mesh_state(mesh, "m12"), MESH_STATE_NONE);
    assert_seen("unload", 0);
}

/* K3: a load waits for memory that an unload will free, and nothing else is evicted for it. */
TEST_CASE(test_load_waits_for_pending_unload)
{
    use_models(9);
    now_ms += 31000;
    prompt = false;
    call(1, "m10"); /* evicts m0; the reserve lets m10 load at once */
    runtime_ends(MESH_SIZE_PREDICTED, "m10");
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_UNLOADING);
    assert_int_equal(mesh_state(mesh, "m10"), MESH_STATE_LOADING);
    now_ms += LOAD_MS;
    runtime_ends(MESH_LOAD_ENDED, "m10");
    call(2, "m11"); /* evicts m1; there is no memory yet for m11 */
    runtime_ends(MESH_SIZE_PREDICTED, "m11");
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_UNLOADING);
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "m11"), MESH_STATE_QUEUED);
    runtime_ends(MESH_UNLOAD_ENDED, "m0");
    assert_int_equal(mesh_state(mesh, "m11"), MESH_STATE_LOADING);
}

/* Q1 to Q3, Q5. Of the two that calls wait for, the one that waits longer is loaded first. */
TEST_CASE(test_order_of_loads)
{
    static const char *const expected[] = {"m0", "m5", "m1", "m4", "m3", "m2"};
    prompt = false;
    ensure("m0", 5, MESH_CLASS_ADVANCE, 1); /* begins at once */
    ensure("m1", 7, MESH_CLASS_ADVANCE, 1);
    ensure("m2", 8, MESH_CLASS_ADVANCE, 1);
    ensure("m3", 6, MESH_CLASS_COPY, 1);
    ensure("m4", 1, MESH_CLASS_MIGRATION, 1);
    ensure("m5", 1, MESH_CLASS_ADVANCE, 1);
    const uint32_t before = line_count;
    call_as(1, "m5", MESH_HOP_ENTRY); /* moves m5 to the front */
    now_ms += 10;
    call_as(2, "m1", MESH_HOP_ENTRY); /* and m1 behind it */
    assert_int_equal(line_count, before);
    for (uint32_t i = 0; i < 6; i++) {
        char line[TEXT];
        snprintf(line, sizeof(line), "load %s", expected[i]);
        assert_seen(line, 1);
        assert_seen("load", i + 1);
        runtime_ends(MESH_LOAD_ENDED, expected[i]);
    }
}

/* T5, A4: the fence fails, and then another node's claim appears. */
TEST_CASE(test_lost_claim)
{
    instance("other", 0);
    session++; /* the node does not know yet that its session has ended */
    call(1, "m1");
    assert_seen("write m1 self:loading", 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_CLAIMING);
    tick(0);
    assert_seen("write", 0); /* nothing has changed */
    begin();
    add_place("m1", "other", MESH_PLACE_LOADING);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_NONE);
    assert_seen("forward 1 m1 other hit", 1);
    assert_seen("load", 0);
}

/* T4: the claim is repeated with the same compare; the record decides, not the answer. */
TEST_CASE(test_unknown_claim_is_repeated)
{
    network = NETWORK_APPLIED_UNKNOWN;
    call(1, "m1");
    assert_seen("write m1 self:loading", 1);
    const uint64_t compare = last_compare;
    tick(500);
    assert_seen("write", 0);
    tick(500);
    assert_seen("write m1 self:loading", 1);
    assert_int_equal(last_compare, compare);
    assert_seen("load", 0);
    notify_model("m1"); /* the first one was applied */
    assert_seen("load m1", 1);
}

/* T4: the answer comes before the watch has reported the record that it has written. The place is
 * in it: what leaves then is withdrawn first. */
TEST_CASE(test_written_record_is_not_seen_yet)
{
    load_here("m1");
    begin();
    network = NETWORK_LATE;
    put("m1", ""); /* somebody took this node for dead */
    assert_seen("write m1 self:loaded", 1);
    begin();
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {last_txn, MESH_TXN_OK}});
    runtime(50);
    tick(500);
    assert_seen("unload", 0);
    network = NETWORK_OK;
    notify_model("m1");
    assert_seen("write m1", 1);
    assert_seen("unload m1", 1);
}

/* Room for 150 ids is enough for 300 models that come and go. */
TEST_CASE(test_deleted_models_free_their_ids)
{
    for (int i = 0; i < 2 * MODELS; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "x%d", i);
        memset(models, 0, sizeof(models));
        put(id, "");
        call(1, id);
        assert_seen("serve 1", 1);
        model_at(id)->revision = 0;
        model_gone(id);
        mirror_is_whole();
        assert_int_equal(mesh_state(mesh, id), MESH_STATE_EMPTYING);
        end_call(1, MESH_END_OK, 0);
        assert_int_equal(mesh_state(mesh, id), MESH_STATE_NONE);
    }
}

/* F1, A5 */
TEST_CASE(test_call_goes_on_after_failed_load)
{
    instance("other", 1);
    load_fails = true;
    call(1, "m1");
    assert_seen("write m1 self:failed", 1);
    assert_seen("unload", 0);
    assert_seen("forward 1 m1 other load", 1);
}

/* F2, F3: three failures end a call; they expire without anybody removing them. */
TEST_CASE(test_three_failures_end_calls_until_they_expire)
{
    put("m2", "a:failed b:failed c:failed");
    call(2, "m2");
    assert_seen("answer 2 load-failed", 1);
    now_ms += 15 * MINUTE;
    call(2, "m2");
    assert_seen("serve 2 m2", 1);
    assert_int_equal(model_at("m2")->place_count, 1);
}

/* F2: a copy that fails here is requested elsewhere, once its memory is free. */
TEST_CASE(test_failed_copy_is_requested_elsewhere)
{
    prompt = false;
    instance("other", 1);
    ensure("m1", 0, MESH_CLASS_COPY, 1);
    const struct mesh_event broken = {
        .kind = MESH_LOAD_ENDED,
        .loaded = {.ticket = tickets[model_at("m1") - models], .end = MESH_LOAD_BROKE}};
    step(broken);
    assert_seen("ensure", 0);
    runtime_ends(MESH_UNLOAD_ENDED, "m1");
    assert_seen("ensure m1 other", 1);
    step(broken); /* a repeated answer is ignored */
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_NONE);
}

/* S2 */
TEST_CASE(test_second_copy_after_steady_use)
{
    instance("other", 900);
    use("m1");
    for (int second = 0; second < 9 * 60; second += 10) {
        tick(10000);
        if (seen("ensure") > 0)
            break;
        use("m1");
    }
    assert_true(now_ms >= 7 * MINUTE);
    assert_seen("ensure m1 other copy 2", 1);
}

static void
use_often(const char *model, uint32_t count)
{
    step((struct mesh_event){.kind = MESH_USED,
                             .used = {.model = model, .count = count, .used_ms = WALL + now_ms}});
    tick(10000);
}

/* S3 */
TEST_CASE(test_second_copy_at_high_rate)
{
    instance("other", 900);
    use("m2");
    use_often("m2", 300); /* 1,800 a minute */
    assert_seen("ensure", 0);
    use_often("m2", 400);
    assert_seen("ensure m2 other copy 2", 1);
}

/* G1 */
TEST_CASE(test_leader_removes_copies_of_a_dead_node)
{
    instance("other", 900);
    put("m1", "other:loaded");
    instance_gone("other");
    tick(11 * MINUTE);
    assert_seen("write", 0); /* this node does not lead yet */
    lead(true);
    pass(0);
    assert_seen("write m1", 1);
    assert_string_equal(last_absent, "other");
    assert_int_equal(model_at("m1")->place_count, 0);
}

/* J5: of two unused copies the younger goes if memory is short, once it has rested. */
TEST_CASE(test_janitor_removes_the_younger_copy)
{
    instance("other", 1);
    size_units = 105; /* nine of them in 950 */
    use_models(9);
    const int64_t own_ms = model_at("m8")->places[0].since_ms - WALL;
    place("m8", "other", MESH_PLACE_LOADED, own_ms + 1);
    notify_model("m8");
    tick(60 * MINUTE);
    assert_int_equal(mesh_state(mesh, "m8"), MESH_STATE_LOADED);
    place("m8", "other", MESH_PLACE_LOADED, own_ms - 1);
    notify_model("m8");
    tick(2 * MINUTE);
    assert_int_equal(mesh_state(mesh, "m8"), MESH_STATE_LOADED);
    tick(5 * MINUTE);
    assert_int_equal(mesh_state(mesh, "m8"), MESH_STATE_NONE);
    assert_int_equal(mesh_state(mesh, "m7"), MESH_STATE_LOADED);
    tick(6 * MINUTE);
    assert_seen("unload", 0); /* there is room now */
}

/* T6: a record that arrives late does not bring back a deleted model. */
TEST_CASE(test_late_record_of_a_deleted_model)
{
    put("gone", "");
    const struct rig_model before = *model_at("gone");
    revision++;
    model_at("gone")->revision = 0;
    model_gone("gone");
    mirror_is_whole();
    *model_at("gone") = before;
    notify_model("gone");
    model_at("gone")->revision = 0;
    call(1, "gone");
    assert_seen("answer 1 not-found", 1);
    model_at("gone")->create_revision = 0;
    put("gone", ""); /* registered anew */
    call(1, "gone");
    assert_seen("load gone", 1);
}

TEST_MAIN(.setup = fresh_with_twenty, .teardown = drop)
