/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose tries all fail until R5 (five copies) or R9 (eight tries) ends them, with the texts
 * that KServe ModelMesh's clients know.
 */
#include "base/check.h"
#include "mesh_rig.h"

TEST_CASE(test_five_copies_end_a_call)
{
    static const char *const others[] = {"a", "b", "c", "d", "e", "f"};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        instance(others[i], 500);
    put("m1", "a:loaded b:loaded c:loaded d:loaded e:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    for (int i = 0; i < MESH_COPIES_TRIED_MAX; i++) {
        assert_seen("answer", 0);
        assert_seen("forward", 1);
        begin();
        end_call(1, MESH_END_UNREACHABLE, 0);
    }
    assert_seen("answer 1 failed", 1);
    assert_string_equal(answer_text, "Failed to invoke model loaded in >=5 locations");
}

/* A new copy appears for each try. */
TEST_CASE(test_eight_tries_end_a_call)
{
    instance("a", 500);
    put("m1", "a:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    for (int i = 0; i < MESH_TRIES_MAX; i++) {
        assert_seen("answer", 0);
        assert_seen("forward 1 m1 a hit", 1);
        now_ms++;
        put("m1", "a:loaded");
        begin();
        end_call(1, MESH_END_NOT_HERE, 0);
    }
    assert_seen("answer 1 failed", 1);
    assert_string_equal(answer_text, "8 retry iterations exhausted");
}

TEST_MAIN(.setup = fresh, .teardown = drop)
