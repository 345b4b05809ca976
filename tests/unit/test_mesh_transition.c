/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a vmodel's target comes to be loaded (V3): whom the leader asks for copies of it, as of when,
 * and for how many; and that it ends where all are full of models in use.
 */
#include "mesh_rig.h"

/* V3: as of the active one's last use; but not for ever. */
static void
test_asking_for_copies(void **state)
{
    (void)state;
    lead(true);
    instance("x", 7, 900);
    step((struct mesh_event){.kind = MESH_DRAIN});
    place_and_tell("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(count_seen(MESH_DO_ENSURE), 1);
        const struct mesh_action *asked = seen(MESH_DO_ENSURE);
        assert_string_equal(seen_id(MESH_DO_ENSURE, 0), "b");
        assert_int_equal(asked->ensure.used_ms, i < 2 ? model_at("a")->used_ms : WALL + now_ms);
        begin();
        tick(9999);
        assert_null(seen(MESH_DO_ENSURE));
        tick(1);
    }
}

/* V3: as many as the active one has, each of another node, and any of them may be the first. */
static void
test_asking_for_several(void **state)
{
    (void)state;
    lead(true);
    instance("x", 7, 900);
    instance("y", 8, 900);
    instance("z", 9, 900);
    step((struct mesh_event){.kind = MESH_DRAIN});
    place("a", "x", MESH_PLACE_LOADED, now_ms);
    place_and_tell("a", "y", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    for (int round = 0; round < 8; round++) {
        const char *asked[2] = {"", ""};
        uint32_t count = 0;
        for (uint32_t i = 0; i < kept_count; i++) {
            if (kept[i].kind != MESH_DO_ENSURE)
                continue;
            assert_int_equal(kept[i].ensure.target, 2);
            assert_in_range(count, 0, 1);
            asked[count++] = kept_ids[i][1];
        }
        assert_int_equal(count, 2);
        assert_string_not_equal(asked[0], asked[1]);
        begin();
        tick(10000);
    }
    place_and_tell("b", "z", MESH_PLACE_LOADED);
    begin();
    tick(10000);
    assert_int_equal(count_seen(MESH_DO_ENSURE), 1); /* one is missing */
    assert_string_not_equal(seen_id(MESH_DO_ENSURE, 1), "z");
}

/* P2 refuses for as long as all that x has was used within the churn age, 30 s here. Who has waited
 * for so long is asked for all the same. */
static void
test_all_are_in_use(void **state)
{
    (void)state;
    lead(true);
    instance("x", 7, 900);
    step((struct mesh_event){.kind = MESH_DRAIN});
    place_and_tell("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    const int64_t began_ms = now_ms;
    for (bool is_set = false; seen(MESH_DO_ENSURE) == NULL; is_set = true) {
        assert_true(now_ms - began_ms <= 30000);
        step((struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                                 .figures = {.instance = "x",
                                             .figures = {.capacity_units = 1000,
                                                         .oldest_ms = WALL + now_ms - 5000,
                                                         .full = true}}});
        if (!is_set)
            assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
        else
            tick(1000);
    }
    assert_true(now_ms - began_ms > 25000);
    assert_string_equal(seen_id(MESH_DO_ENSURE, 0), "b");
    assert_string_equal(seen_id(MESH_DO_ENSURE, 1), "x");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_asking_for_copies, fresh, drop),
        cmocka_unit_test_setup_teardown(test_asking_for_several, fresh, drop),
        cmocka_unit_test_setup_teardown(test_all_are_in_use, fresh, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
