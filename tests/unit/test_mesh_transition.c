/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the leader gets a vmodel's target loaded (V3): which nodes it asks, for how many copies and
 * with which last use, also when every node is full of models in use.
 */
#include "mesh_rig.h"

/* V3: with the active model's last use at first, later as of now. */
static void
test_leader_asks_for_a_copy_of_the_target(void **state)
{
    (void)state;
    lead(true);
    instance("x", 900);
    drain();
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    for (int i = 0; i < 4; i++) {
        assert_seen("ensure", 1);
        assert_seen("ensure b x", 1);
        assert_int_equal(ensure_used_ms, i < 2 ? model_at("a")->used_ms : WALL + now_ms);
        begin();
        pass(9999);
        assert_seen("ensure", 0);
        pass(1);
    }
}

/* V3: as many copies as the active model has, each requested from another node. */
static void
test_leader_asks_for_as_many_copies_as_active_has(void **state)
{
    (void)state;
    lead(true);
    instance("x", 900);
    instance("y", 900);
    instance("z", 900);
    drain();
    place("a", "x", MESH_PLACE_LOADED, now_ms);
    add_place("a", "y", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    for (int round = 0; round < 8; round++) {
        static const char *const asks[] = {"ensure b x copy 2", "ensure b y copy 2",
                                           "ensure b z copy 2"};
        uint32_t asked = 0;
        for (int i = 0; i < 3; i++)
            asked += seen(asks[i]) == 1;
        assert_int_equal(asked, 2);
        assert_seen("ensure", 2);
        begin();
        pass(10000);
    }
    add_place("b", "z", MESH_PLACE_LOADED);
    begin();
    pass(10000);
    assert_seen("ensure", 1); /* one is missing */
    assert_seen("ensure b z", 0);
}

/* P2 refuses while all models of x were used within the churn age, 30 s here. After that long the
 * target is requested all the same. */
static void
test_target_is_asked_for_though_all_models_are_in_use(void **state)
{
    (void)state;
    lead(true);
    instance("x", 900);
    drain();
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    const int64_t began_ms = now_ms;
    for (bool is_set = false; seen("ensure") == 0; is_set = true) {
        assert_true(now_ms - began_ms <= 30000);
        step((struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                                 .figures = {.instance = "x",
                                             .figures = {.capacity_units = 1000,
                                                         .oldest_ms = WALL + now_ms - 5000,
                                                         .full = true}}});
        if (!is_set)
            assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
        else
            pass(1000);
    }
    assert_true(now_ms - began_ms > 25000);
    assert_seen("ensure b x", 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_WITH_MODELS(test_leader_asks_for_a_copy_of_the_target),
        TEST_WITH_MODELS(test_leader_asks_for_as_many_copies_as_active_has),
        TEST_WITH_MODELS(test_target_is_asked_for_though_all_models_are_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
