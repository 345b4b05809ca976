/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads in advance, requested by the leader: G3 (half of the room above an eighth is filled, latest
 * used models first), G4 (full nodes get clearly younger models), G5 (one load in four seconds per
 * node). This node leads and mostly has no room itself.
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

/* Registers m0, m1, …, each used a minute before its predecessor. */
static void
put_models(uint32_t count)
{
    char id[TEXT];
    for (uint32_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "m%u", i);
        put_as(id, "t", "", WALL + now_ms - (int64_t)i * MINUTE);
    }
}

/* Leads until the reaper's round has planned the loads, and then for so many seconds. */
static void
lead_for(int64_t seconds)
{
    lead(true);
    pass(8 * MINUTE);
    begin();
    for (int64_t i = 0; i < seconds; i++)
        pass(1000);
}

static void
drain_self(void)
{
    instance_with((struct mesh_instance){.id = "self", .session = session, .draining = true});
}

static int
fresh_and_small(void **state)
{
    fresh(state);
    drain_self();
    return 0;
}

static int
fresh_and_large(void **state)
{
    (void)state;
    start((struct mesh_config){.instances_max = 4096});
    drain_self();
    return 0;
}

TEST_CASE(test_half_of_what_is_free)
{
    node("a", 625,
         WALL); /* half of 500 above the eighth: two models of 125, as large as its three are */
    put_models(20);
    lead_for(60);
    assert_seen("ensure", 2);
    assert_seen("ensure m0 a advance 1", 1);
    assert_seen("ensure m1 a advance 1", 1);
}

TEST_CASE(test_nothing_below_an_eighth)
{
    node("a", 125, WALL + now_ms + 7 * MINUTE); /* its oldest one was used lately */
    put_models(20);
    lead_for(60);
    assert_seen("ensure", 0);
}

TEST_CASE(test_one_in_four_seconds)
{
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

/* Each load is reported to all nodes, so a mesh has a budget: 1,000 a second, divided by its nodes.
 * Of 200 nodes each could begin one at once; the mesh begins five a second, until all are
 * loaded. */
TEST_CASE_WITH(test_large_mesh_has_one_budget, fresh_and_large, drop)
{
    char id[TEXT];
    for (uint32_t i = 0; i < 199; i++) {
        snprintf(id, sizeof(id), "n%u", i);
        node(id, 1000, WALL);
    }
    put_models(140);
    lead_for(1);
    assert_seen("ensure", 5);
    begin();
    for (int i = 0; i < 10; i++)
        pass(1000);
    assert_seen("ensure", 50);
    begin();
    for (int i = 0; i < 60; i++)
        pass(1000);
    assert_seen("ensure", 85);
}

/* A mesh of more nodes than loads in a second saves for one load, and no more. */
TEST_CASE_WITH(test_huge_mesh_saves_for_a_load, fresh_and_large, drop)
{
    char id[TEXT];
    for (uint32_t i = 0; i < 3999; i++) {
        snprintf(id, sizeof(id), "n%u", i);
        node(id, 1000, WALL);
    }
    put_models(140);
    lead_for(1);
    assert_seen("ensure", 1);
    begin();
    for (int i = 0; i < 40; i++)
        pass(1000);
    assert_seen("ensure", 10);
}

/* Up to 63 nodes, one in four seconds and node is less. */
TEST_CASE(test_small_mesh_has_no_other_pace)
{
    char id[TEXT];
    for (uint32_t i = 0; i < 29; i++) {
        snprintf(id, sizeof(id), "n%u", i);
        node(id, 1000, WALL);
    }
    put_models(140);
    lead_for(1);
    assert_seen("ensure", 29);
    begin();
    for (int i = 0; i < 4; i++)
        pass(1000);
    assert_seen("ensure", 29);
}

/* Models with a copy or two fresh failures are left alone, and so are all without the lead. */
TEST_CASE(test_models_that_need_no_load_are_skipped)
{
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

/* G4: full nodes take models that are younger than their oldest by a third of its age and by 20
 * minutes, into a twentieth of their room at a time. */
TEST_CASE(test_into_full_nodes)
{
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

/* Models that no node may hold do not block the others. */
TEST_CASE(test_unplaceable_types_do_not_block_others)
{
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

/* The leader loads on itself as on any other node. */
TEST_CASE_WITH(test_leader_loads_on_itself, fresh, drop)
{
    instance("self", 900);
    put_models(2);
    lead_for(10);
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
}

TEST_MAIN(.setup = fresh_and_small, .teardown = drop)
