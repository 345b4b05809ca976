/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records whose last use lies far in the future: G2 (the leader corrects them) and J6 (one such
 * record does not block the janitor).
 */
#include "mesh_rig.h"

TEST_CASE(test_leader_corrects_future_stamps)
{
    put_as("m1", "t", "", INT64_MAX);
    put_as("m2", "t", "other:loaded", WALL + now_ms + 60 * MINUTE);
    const int64_t ahead_ms = WALL + now_ms + 20 * MINUTE;
    put_as("m3", "t", "", ahead_ms);
    tick(8 * MINUTE);
    assert_seen("write m1", 0);
    lead(true);
    tick(MINUTE);
    assert_seen("write m1", 1);
    assert_seen("write m2 other:loaded", 1);
    assert_true(model_at("m1")->used_ms == WALL + now_ms);
    assert_true(model_at("m2")->used_ms == WALL + now_ms);
    assert_true(model_at("m3")->used_ms == ahead_ms); /* a clock may be so fast */
}

/* J4 for the model behind it. */
TEST_CASE(test_janitor_skips_a_future_stamp)
{
    put("m1", "");
    put("m2", "");
    use("m1");
    use("m2");
    model_at("m1")->used_ms = INT64_MAX;
    model_at("m1")->revision = ++revision;
    notify_model("m1");
    const int64_t before_ms = model_at("m2")->used_ms;
    now_ms += 8 * 60 * MINUTE;
    use("m2");
    for (int i = 0; i < 7; i++)
        tick(MINUTE);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    assert_true(model_at("m2")->used_ms > before_ms + 7 * 60 * MINUTE);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
