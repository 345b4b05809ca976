/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eleven minutes without etcd, which is longer than G1 keeps the copies of an unseen node. Loaded
 * models are served, here and elsewhere; nothing is loaded, unloaded or written; a call that needs
 * a load fails after 30 s. When etcd is back, everything is as before.
 */
#include "mesh_rig.h"

enum { OWN = 1, OTHERS = 2, NEW = 3, MINUTES = 11 };

static void
check_call(uint32_t call, const char *model, const char *line)
{
    begin();
    call_as(call, model, MESH_HOP_ENTRY);
    assert_seen(line, 1);
    end_call(call, MESH_END_OK, 0);
    assert_seen("answer", 0);
}

static void
check_quiet(void)
{
    static const char *const deeds[] = {"write", "create", "load", "unload", "size"};
    for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++)
        assert_seen(deeds[i], 0);
}

static void
lose_etcd(void)
{
    network = NETWORK_DOWN;
    set_session(0);
    for (int second = 0; second < MINUTES * 60; second++) {
        tick(1000);
        check_quiet();
        check_call(OWN, "m1", "serve 1 m1");
        check_call(OTHERS, "m2", "forward 2 m2 other hit");
        check_quiet();
    }
}

TEST_CASE(test_loaded_models_are_served)
{
    instance("other", 500);
    put("m1", "");
    use("m1");
    put("m2", "");
    add_place("m2", "other", MESH_PLACE_LOADED);
    lead(true);
    lose_etcd();
    network = NETWORK_OK;
    session = revision + 1;
    begin();
    set_session(session);
    instance("self", 800);
    instance("other", 500);
    for (int second = 0; second < 60; second++) {
        step((struct mesh_event){.kind = MESH_TICK});
        now_ms += 1000;
    }
    assert_seen("load", 0);
    assert_seen("unload", 0);
    check_call(OWN, "m1", "serve 1 m1");
    check_call(OTHERS, "m2", "forward 2 m2 other hit");
    assert_int_equal(model_at("m1")->place_count, 1);
    assert_string_equal(model_at("m1")->places[0].instance, "self");
    assert_string_equal(model_at("m2")->places[0].instance, "other");
}

TEST_CASE(test_call_that_needs_a_load_fails_after_30_s)
{
    put("m3", "");
    network = NETWORK_DOWN;
    set_session(0);
    begin();
    call_as(NEW, "m3", MESH_HOP_ENTRY);
    for (int second = 0; second <= 31; second++) {
        assert_seen("answer 3 unavailable", second == 31);
        pass(1000);
    }
    assert_seen("load", 0);
    assert_seen("write", 0);
}

/* R16: calls that share an old claim wait by their own time. The last one is served when etcd is
 * back. */
TEST_CASE(test_each_call_waits_for_its_own_30_s)
{
    put("m3", "");
    network = NETWORK_DOWN;
    set_session(0);
    begin();
    call_as(NEW, "m3", MESH_HOP_ENTRY);
    for (int second = 0; second < 60; second++) {
        if (second == 20 || second == 40)
            call_as(NEW + (uint32_t)second, "m3", MESH_HOP_ENTRY);
        pass(1000);
        assert_seen("answer 3 unavailable", second >= 30);
        assert_seen("answer 23 unavailable", second >= 50);
    }
    assert_seen("answer", 2);
    network = NETWORK_OK;
    session = revision + 1;
    set_session(session);
    instance("self", 800);
    step((struct mesh_event){.kind = MESH_TICK});
    assert_seen("serve 43 m3", 1);
    assert_seen("answer", 2);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
