/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the leader has loaded before anybody asks: G3 (into half of what is free above an eighth,
 * latest used first, and which models), G4 (into full nodes, what is clearly younger), G5 (one in
 * four seconds for each node). This node leads, and has no runtime's worth of room itself.
 */
#include "mesh_rig.h"

static void
node(const char *id, uint64_t free_units, int64_t oldest_ms)
{
    instance_with((struct mesh_instance){.id = id,
                                         .session = 7,
                                         .figures = {.capacity_units = 1000,
                                                     .free_units = free_units,
                                                     .oldest_ms = oldest_ms,
                                                     .copies = (uint32_t)(1000 - free_units) / 100,
                                                     .full = free_units < 50}});
}

/* Models m0, m1, …; the first was used last, each other one a minute before the one before it. */
static void
put_models(uint32_t count)
{
    char id[TEXT];
    for (uint32_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "m%u", i);
        put_as(id, "t", "", WALL + now_ms - (int64_t)i * MINUTE);
    }
}

/* The reaper goes through all models, which plans; after that the seconds pass. */
static void
lead_for(int64_t seconds)
{
    lead(true);
    pass(8 * MINUTE);
    begin();
    for (int64_t i = 0; i < seconds; i++)
        pass(1000);
}

static int
fresh_and_small(void **state)
{
    fresh(state);
    instance_with((struct mesh_instance){.id = "self", .session = session, .draining = true});
    return 0;
}

static void
test_half_of_what_is_free(void **state)
{
    (void)state;
    node("a", 625,
         WALL); /* half of 500 above the eighth: two models of 125, as large as its three are */
    put_models(20);
    lead_for(60);
    assert_seen("ensure", 2);
    assert_seen("ensure m0 a advance 1", 1);
    assert_seen("ensure m1 a advance 1", 1);
}

static void
test_nothing_below_an_eighth(void **state)
{
    (void)state;
    node("a", 125, WALL + now_ms + 7 * MINUTE); /* its oldest one was used lately */
    put_models(20);
    lead_for(60);
    assert_seen("ensure", 0);
}

static void
test_one_in_four_seconds(void **state)
{
    (void)state;
    node("a", 1000, WALL);
    node("b", 1000, WALL);
    put_models(20);
    lead_for(1);
    assert_seen("ensure", 2); /* one each */
    assert_true(seen("ensure m0 a advance 1") + seen("ensure m1 a advance 1") == 1);
    begin();
    for (int i = 0; i < 3; i++)
        pass(1000);
    assert_seen("ensure", 0);
    pass(1000);
    assert_seen("ensure", 2);
}

/* A copy, two fresh failures, or another leader: nothing is to be done. */
static void
test_which(void **state)
{
    (void)state;
    node("a", 1000, WALL);
    put_models(4);
    put("m0", "a:loaded");
    put("m1", "x:failed y:failed");
    put("m2", "x:failed y:loaded"); /* which does not live */
    lead_for(0);
    put_as("m3", "t", "a:loading", WALL); /* meanwhile */
    pass(1000);
    assert_seen("ensure", 1);
    assert_seen("ensure m2 a advance 1", 1);
    put_as("m3", "t", "", WALL + now_ms);
    lead_for(0);
    lead(false);
    tick(5000);
    assert_seen("ensure", 0);
    lead(true);
    tick(5000);
    assert_seen("ensure", 0); /* until it has looked again */
}

/* G4: full nodes take what was used later than their oldest by a third of its age, and by 20
 * minutes; a twentieth of them at a time. */
static void
test_into_full_nodes(void **state)
{
    (void)state;
    now_ms += 10 * HOUR;
    node("a", 0, WALL + now_ms - 3 * HOUR + 8 * MINUTE); /* three hours old when it is planned */
    size_units = 25;
    put_as("old", "t", "", WALL + now_ms - 2 * HOUR - 1 * MINUTE); /* 51 minutes younger */
    lead_for(10);
    assert_seen("ensure", 0);
    put_as("young", "t", "", WALL + now_ms - 2 * HOUR + 8 * MINUTE);
    lead_for(10);
    assert_seen("ensure", 0); /* a model takes 100 units, a twentieth is 50 */
    instance_with((struct mesh_instance){.id = "a",
                                         .session = 7,
                                         .figures = {.capacity_units = 1000,
                                                     .oldest_ms = WALL + now_ms - 3 * HOUR,
                                                     .copies = 40,
                                                     .full = true}});
    put_as("younger", "t", "", WALL + now_ms - 2 * HOUR + 10 * MINUTE);
    lead_for(30);
    assert_seen("ensure", 1);
    assert_seen("ensure younger a advance 1", 1);
}

/* Those that no node may hold do not keep the others waiting. */
static void
test_types(void **state)
{
    (void)state;
    static const char *const gpu[] = {"gpu"};
    const struct mesh_type_rule rule = {.type = "t", .required = gpu, .required_count = 1};
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = &rule, .rule_count = 1}});
    node("a", 1000, WALL);
    put_models(60);
    put_as("other", "u", "", WALL);
    lead_for(1);
    assert_seen("ensure", 1);
    assert_seen("ensure other a advance 1", 1);
}

/* The leader itself is a node as others are. */
static void
test_here(void **state)
{
    (void)state;
    instance("self", 900);
    put_models(2);
    lead_for(10);
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
}

#define LED(function) cmocka_unit_test_setup_teardown(function, fresh_and_small, drop)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LED(test_half_of_what_is_free),
        LED(test_nothing_below_an_eighth),
        LED(test_one_in_four_seconds),
        LED(test_which),
        LED(test_into_full_nodes),
        LED(test_types),
        TEST(test_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
