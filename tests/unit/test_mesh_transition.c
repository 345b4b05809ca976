/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the leader gets a vmodel's target loaded (V3): which nodes it asks, for how many copies and
 * with which last use, also when every node is full of models in use.
 */
#include "mesh_rig.h"

/* Newer figures: what was asked for has come to nothing. */
static void
notify_room(const char *id, uint64_t free_units)
{
    step((struct mesh_event){
        .kind = MESH_INSTANCE_FIGURES,
        .figures = {.instance = id,
                    .figures = {.capacity_units = 1000, .free_units = free_units}}});
}

/* V3: as of now, at each tick at first. */
TEST_CASE(test_leader_asks_for_a_copy_of_the_target)
{
    lead(true);
    instance("x", 900);
    drain();
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    for (int i = 0; i < 30; i++) {
        assert_seen("ensure", 1);
        notify_room("x", 900);
        assert_seen("ensure b x migration 1", 1);
        assert_int_equal(ensure_used_ms, 0);
        begin();
        pass(200);
        assert_seen("ensure", 0);
        pass(800);
    }
    begin();
    pass(8000); /* less often, if nothing comes of it */
    assert_seen("ensure", 0);
    pass(1000);
    assert_seen("ensure", 1);
}

/* V3: a node that does not load it, as it cannot be reached, is not asked again before the others.
 */
TEST_CASE(test_leader_asks_another_node_next)
{
    lead(true);
    instance("x", 900);
    instance("y", 100);
    drain();
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    assert_seen("ensure b x migration 1", 1); /* it has most room */
    for (int i = 0; i < 3; i++) {
        notify_room("x", 900);
        notify_room("y", 100);
        tick(1000);
        assert_seen("ensure b y migration 1", i % 2 == 0);
        assert_seen("ensure b x migration 1", i % 2 == 1);
        assert_seen("ensure", 1);
    }
}

/* V3: no copy is waited for at a node that is out of reach. */
TEST_CASE(test_unreachable_node_does_not_hold_up_a_switch)
{
    lead(true);
    instance("x", 900);
    instance("y", 900);
    instance_with((struct mesh_instance){.id = "self", .session = session, .draining = true});
    place("a", "y", MESH_PLACE_LOADED, now_ms);
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    step((struct mesh_event){.kind = MESH_UNREACHABLE, .unreachable = {.instance = "y"}});
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    assert_seen("ensure b x migration 1", 1);
    assert_seen("ensure", 1);
    add_place("b", "x", MESH_PLACE_LOADED);
    assert_seen("set v b b", 1);
}

/* V3: as many copies as the active model has, each requested from another node. */
TEST_CASE(test_leader_asks_for_as_many_copies_as_active_has)
{
    lead(true);
    instance("x", 900);
    instance("y", 900);
    instance("z", 900);
    drain();
    place("a", "x", MESH_PLACE_LOADED, now_ms);
    add_place("a", "y", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    for (int round = 0; round < 6; round++) {
        static const char *const asks[] = {"ensure b x migration 2", "ensure b y migration 2",
                                           "ensure b z migration 2"};
        uint32_t asked = 0;
        for (int i = 0; i < 3; i++)
            asked += seen(asks[i]) == 1;
        assert_int_equal(asked, round % 2 == 0 ? 2 : 1); /* those that were not asked just now */
        assert_seen("ensure", asked);
        begin();
        pass(1000);
    }
    add_place("b", "z", MESH_PLACE_LOADED);
    begin();
    pass(10000);
    assert_seen("ensure", 1); /* one is missing */
    assert_seen("ensure b z", 0);
}

/* V3: the models of x are in use this very moment, and the target is requested all the same. */
TEST_CASE(test_target_is_asked_for_though_all_models_are_in_use)
{
    lead(true);
    instance("x", 900);
    drain();
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    step((struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                             .figures = {.instance = "x",
                                         .figures = {.capacity_units = 1000,
                                                     .oldest_ms = WALL + now_ms,
                                                     .copies = 1,
                                                     .full = true}}});
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    assert_seen("ensure b x", 1);
}

/* V3, E3: this node is full of models that were called just now, and loads the target at once. */
TEST_CASE(test_target_is_loaded_on_a_full_node)
{
    size_units = 100;
    load_ms = 9 * LOAD_MS;
    for (uint32_t i = 1; i <= 9; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "m%u", i);
        put(id, "");
        use(id);
        load_ms = 0;
    }
    lead(true);
    assert_int_equal(outcome(SET("v", "m9")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    assert_seen("load b", 1);
    assert_seen("set v b b", 1);
}

TEST_MAIN(.setup = fresh_with_models, .teardown = drop)
