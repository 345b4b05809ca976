/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drain of a node with models that no other node may load (D4): they are served for as long as
 * they are called, then unloaded; calls that come later are UNAVAILABLE, here and at other nodes
 * (R18). And how soon another node is asked again for a copy (D2).
 */
#include "mesh_rig.h"

static void
constrain(void)
{
    static const char *const gpu[] = {"gpu"};
    const struct mesh_type_rule rule = {.type = "t", .required = gpu, .required_count = 1};
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = &rule, .rule_count = 1}});
}

static void
labelled(const char *id, const char *labels, bool draining)
{
    instance_with((struct mesh_instance){
        .id = id,
        .labels = labels,
        .session = strcmp(id, "self") == 0 ? session : 7,
        .draining = draining,
        .figures = {.capacity_units = 1000, .free_units = 500, .oldest_ms = WALL + now_ms}});
}

/* This node may hold models of type "t", and has m1; "other" may not. */
static void
hold_alone(void)
{
    constrain();
    labelled("self", "gpu", false);
    labelled("other", "cpu", false);
    put("m1", "");
    load_here("m1");
    begin();
}

TEST_CASE(test_unmovable_copy_is_kept_while_it_is_called)
{
    hold_alone();
    drain();
    for (int i = 0; i < 30; i++) {
        call_as(1, "m1", i % 2 == 0 ? MESH_HOP_ENTRY : MESH_HOP_HIT);
        end_call(1, MESH_END_OK, 0);
        pass(1000);
    }
    assert_seen("serve 1 m1", 30);
    assert_seen("write", 0);
    pass(999); /* two seconds after the last call but for a moment */
    assert_seen("write", 0);
    pass(1);
    assert_seen("unload m1", 1);
    tick(1000);
    assert_seen("drained", 1);
}

/* Calls that do not pass through the core are reported each second. */
TEST_CASE(test_calls_past_the_core_count)
{
    hold_alone();
    drain();
    for (int i = 0; i < 10; i++) {
        const int64_t used_ms = WALL + now_ms + 1;
        now_ms += 1000;
        step((struct mesh_event){.kind = MESH_USED,
                                 .used = {.model = "m1", .count = 1, .used_ms = used_ms}});
        step((struct mesh_event){.kind = MESH_TICK});
    }
    assert_seen("write", 0);
    pass(1001);
    assert_seen("unload m1", 1);
}

/* A stream, or a model that takes long. */
TEST_CASE(test_unmovable_copy_is_kept_under_a_long_call)
{
    hold_alone();
    call_as(1, "m1", MESH_HOP_ENTRY);
    drain();
    for (int i = 0; i < 5; i++)
        pass(MINUTE);
    assert_seen("write", 0);
    call_as(2, "m1", MESH_HOP_ENTRY);
    assert_seen("serve 2 m1", 1);
    end_call(2, MESH_END_OK, 0);
    end_call(1, MESH_END_OK, 0);
    pass(2000);
    assert_seen("unload m1", 1);
}

/* One that is called keeps the others, however long ago those were. */
TEST_CASE(test_unmovable_copies_leave_together)
{
    hold_alone();
    put("m2", "");
    load_here("m2");
    now_ms += 2 * HOUR;
    use("m1");
    begin();
    drain();
    use("m1");
    pass(1000);
    assert_seen("write", 0);
    call_as(1, "m2", MESH_HOP_ENTRY);
    assert_seen("serve 1 m2", 1);
    end_call(1, MESH_END_OK, 0);
    pass(2000);
    assert_seen("unload m1", 1);
    assert_seen("unload m2", 1);
}

/* A node that joins takes them over, as any other copy. */
TEST_CASE(test_unmovable_copy_moves_when_a_node_joins)
{
    hold_alone();
    drain();
    use("m1");
    pass(1000);
    labelled("new", "gpu", false);
    use("m1");
    pass(1000);
    assert_seen("ensure m1 new migration 2", 1);
    add_place("m1", "new", MESH_PLACE_LOADED);
    assert_seen("unload m1", 1);
}

TEST_CASE(test_calls_after_it_was_let_go_are_unavailable)
{
    hold_alone();
    drain();
    pass(2000);
    assert_seen("unload m1", 1);
    tick(1000);
    assert_seen("drained", 1);
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 unavailable", 1);
    call_as(1, "m1", MESH_HOP_LOAD);
    assert_seen("answer 1 refused", 1);
    call_as(1, "m1", MESH_HOP_HIT);
    assert_seen("answer 1 not-here", 1);
}

/* R18, at a node that may not hold the model. */
TEST_CASE(test_calls_at_another_node_are_unavailable)
{
    constrain();
    labelled("self", "cpu", false);
    put("m1", "");
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 failed", 1);
    labelled("other", "gpu", true);
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 unavailable", 1);
    assert_non_null(strstr(answer_text, "drain"));
    instance_gone("other");
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 unavailable", 2);
    assert_string_equal(answer_text, "There are no running instances that meet the label "
                                     "requirements of type t: [gpu]");
    tick(10 * MINUTE - 1);
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 unavailable", 1);
    tick(1);
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 failed", 1); /* nobody will come back */
}

/* R18: the node that has gone could not have held it, or another one lives that fails to load it.
 */
TEST_CASE(test_departed_nodes_that_do_not_matter)
{
    constrain();
    labelled("self", "cpu", false);
    for (int i = 0; i < 40; i++) { /* more than are remembered */
        labelled("wrong", "cpu", false);
        instance_gone("wrong");
    }
    instance_with((struct mesh_instance){
        .id = "small", .labels = "gpu", .session = 7, .figures = {.capacity_units = 99}});
    instance_gone("small");
    put("m1", "");
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 failed", 1);
    labelled("other", "gpu", false);
    instance_gone("other");
    labelled("broken", "gpu", false);
    put("m2", "broken:failed");
    call_as(1, "m2", MESH_HOP_ENTRY);
    assert_seen("answer 1 load-failed", 1);
    labelled("broken", "gpu", true);
    call_as(1, "m2", MESH_HOP_ENTRY); /* it drains, but has failed, too */
    assert_seen("answer 1 load-failed", 2);
}

/* D2: the node that was asked does not load it, as it was refused there: it is asked again soon,
 * but not while it loads. */
TEST_CASE(test_refused_copy_is_requested_again_soon)
{
    instance("other", 500);
    put("m1", "");
    load_here("m1");
    begin();
    drain();
    assert_seen("ensure m1 other migration 2", 1);
    pass(1999);
    assert_seen("ensure", 1);
    pass(1);
    assert_seen("ensure", 2);
    add_place("m1", "other", MESH_PLACE_LOADING);
    pass(9999);
    assert_seen("ensure", 2);
    add_place("m1", "other", MESH_PLACE_LOADED);
    assert_seen("unload m1", 1);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
