/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose tries all fail: R5 (five copies) or R9 (eight tries) ends them, with the texts that
 * KServe ModelMesh's clients know; or the only node that may hold the model has it, and its runtime
 * refuses them, or fails to load it, or still has a former model of that id (R12, R14).
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

/* This node may not hold m1, and `other` has the only copy. */
static void
only_other(const char *copies)
{
    static const char *const labels[] = {"b"};
    static const struct mesh_type_rule rule = {
        .type = "x", .required = labels, .required_count = 1};
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = &rule, .rule_count = 1}});
    instance_with((struct mesh_instance){
        .id = "other",
        .labels = "b",
        .session = 7,
        .figures = {.capacity_units = 1000, .free_units = 500, .oldest_ms = WALL + now_ms}});
    put_as("m1", "x", copies, WALL + now_ms);
    begin();
}

static void
refuse(uint32_t call)
{
    step((struct mesh_event){
        .kind = MESH_TRY_ENDED,
        .tried = {
            .call = call, .number = numbers[call], .end = MESH_END_NOT_HERE, .reported = true}});
}

/* The runtime refuses the call, and its node keeps the copy. */
static void
refuse_both(uint32_t call)
{
    refuse(call);
    assert_seen("forward 1 m1 other load", 1); /* it might have lost the model */
    begin();
    end_call(call, MESH_END_FAILED, 0);
}

/* The second time: at the first, the runtime may be ending while its node does not know. */
TEST_CASE(test_refusal_of_the_only_runtime_ends_a_call)
{
    only_other("other:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    refuse_both(1);
    assert_seen("answer", 0);
    tick(1000);
    assert_seen("forward 1 m1 other hit", 1);
    refuse_both(1);
    assert_seen("answer 1 failed", 1);
}

TEST_CASE(test_call_outlives_the_only_runtime)
{
    only_other("other:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    refuse_both(1);
    put_as("m1", "x", "", WALL + now_ms);
    begin();
    tick(1000);
    assert_seen("answer", 0);
    assert_seen("forward 1 m1 other load", 1); /* its runtime is back */
}

/* It would not live to see the second refusal. */
TEST_CASE(test_refusal_ends_a_call_that_has_little_time)
{
    only_other("other:loaded");
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = 1, .model = "m1", .deadline_ms = now_ms + 2500}});
    refuse_both(1);
    assert_seen("answer 1 failed", 1);
}

/* Its runtime has gone since, and may come back. */
TEST_CASE(test_call_waits_for_the_only_runtime)
{
    only_other("other:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    refuse(1);
    end_call(1, MESH_END_REFUSED, 0);
    assert_seen("answer", 0);
    tick(1000);
    assert_seen("forward 1 m1 other hit", 1);
}

/* The other node's record, or its reply to a call, shows no room. */
static void
figures_of_other(struct mesh_figures figures)
{
    figures.capacity_units = 1000;
    figures.full = true;
    step((struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                             .figures = {.instance = "other", .model = "m1", .figures = figures}});
}

/* Its node knows that its runtime has gone; the record still shows the copy. */
TEST_CASE(test_call_waits_though_the_record_shows_a_lost_copy)
{
    only_other("other:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    call_as(2, "m1", MESH_HOP_ENTRY);
    figures_of_other((struct mesh_figures){.oldest_ms = INT64_MAX});
    begin();
    end_call(1, MESH_END_NOT_HERE, 0);
    refuse(2); /* it was in the runtime */
    assert_int_equal(line_count, 0);
    put_as("m1", "x", "", WALL + now_ms);
    assert_seen("answer", 0);
    instance_with((struct mesh_instance){
        .id = "other",
        .labels = "b",
        .session = 7,
        .figures = {.capacity_units = 1000, .free_units = 500, .oldest_ms = WALL + now_ms}});
    assert_seen("forward 1 m1 other load", 1);
    assert_seen("forward 2 m1 other load", 1);
}

/* Its node has no room to load the model again, so the second refusal is its runtime's. */
TEST_CASE(test_refusal_at_a_full_node_ends_a_call)
{
    only_other("other:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    figures_of_other((struct mesh_figures){.oldest_ms = WALL + now_ms + HOUR, .copies = 1});
    refuse(1);
    assert_seen("answer", 0);
    tick(1000);
    assert_seen("forward 1 m1 other hit", 1);
    refuse(1);
    assert_seen("answer 1 failed", 1);
}

static void
runtime_comes(void)
{
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = UINT64_C(1000) * UNIT,
                                         .default_bytes = UINT64_C(100) * UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 90000}});
}

/* This node alone may hold m1, has it, and its runtime refuses a call. */
static void
refuse_here(void)
{
    put("m1", "");
    load_here("m1");
    call_as(1, "m1", MESH_HOP_ENTRY);
    begin();
    end_call(1, MESH_END_UNREACHABLE, 0);
}

TEST_CASE(test_refusal_of_this_nodes_runtime_ends_a_call)
{
    refuse_here();
    tick(400); /* too soon */
    assert_seen("serve", 0);
    tick(1000);
    assert_seen("serve 1 m1", 1);
    end_call(1, MESH_END_UNREACHABLE, 0);
    assert_seen("answer 1 failed", 1);
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = 2, .model = "m1", .deadline_ms = now_ms + 2500}});
    end_call(2, MESH_END_UNREACHABLE, 0); /* it has little time */
    assert_seen("answer 2 failed", 1);
}

/* The runtime was ending. Another node loads the model as soon as it can. */
TEST_CASE(test_call_outlives_this_nodes_runtime)
{
    refuse_here();
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    call_as(2, "m1", MESH_HOP_ENTRY);
    tick(4000);
    assert_seen("answer", 0);
    instance("other", 500);
    assert_seen("forward 1 m1 other load", 1);
    assert_seen("forward 2 m1 other load", 1);
}

TEST_CASE(test_call_waits_for_this_nodes_runtime)
{
    refuse_here();
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    tick(4000);
    call_as(2, "m1", MESH_HOP_ENTRY);
    runtime_comes();
    assert_seen("serve 1 m1", 1);
    assert_seen("serve 2 m1", 1);
}

/* Not longer than it takes to start one that has crashed. */
TEST_CASE(test_call_waits_no_longer_for_a_lost_runtime)
{
    refuse_here();
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    tick(4000);
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST}); /* it is told again */
    tick(999);
    assert_seen("answer", 0);
    tick(1);
    assert_seen("answer 1 failed", 1);
    call_as(2, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 2 failed", 1);
}

/* The node could not serve, without its runtime having been asked. */
TEST_CASE(test_call_waits_for_the_only_node)
{
    only_other("other:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    end_call(1, MESH_END_NOT_HERE, 0);
    end_call(1, MESH_END_FAILED, 0);
    assert_seen("answer", 0);
    tick(1000);
    assert_seen("forward 1 m1 other hit", 1);
}

static void
ask_to_load(const struct mesh_tried *hit)
{
    begin();
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = 1,
                                      .model = "m1",
                                      .hop = MESH_HOP_LOAD,
                                      .deadline_ms = now_ms + MINUTE,
                                      .tried = hit,
                                      .tried_count = 1}});
}

/* The other side of the same call. */
TEST_CASE(test_node_keeps_the_copy_that_a_call_has_tried)
{
    put("m1", "");
    use("m1");
    const struct mesh_tried hit = {
        .instance = "self", .list = MESH_LIST_HIT, .since_ms = model_at("m1")->places[0].since_ms};
    ask_to_load(&hit);
    assert_seen("answer 1 failed", 1);
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    ask_to_load(&hit);
    assert_seen("answer 1 refused", 1);
}

/* A5: the load's failure is the end, as soon as the record shows it. */
TEST_CASE(test_failed_load_of_the_only_node_ends_a_call)
{
    only_other("");
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("forward 1 m1 other load", 1);
    end_call(1, MESH_END_LOAD_FAILED, 0);
    add_place("m1", "other", MESH_PLACE_FAILED);
    assert_seen("answer 1 load-failed", 1);
    assert_string_equal(answer_text, "broken");
}

/* The record is deleted and written again, with another path. */
static void
register_anew(const char *id)
{
    struct rig_model *record = model_at(id);
    model_gone(id);
    record->revision = record->create_revision = 0;
    put(id, "");
}

/* A call is in the former copy: none may join it, within the core or past it. */
TEST_CASE(test_former_copy_is_closed)
{
    put("m1", "");
    begin();
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("open m1", 1);
    begin();
    register_anew("m1");
    assert_seen("close m1", 1);
    call_as(2, "m1", MESH_HOP_ENTRY);
    assert_seen("unload m1", 0);
    end_call(1, MESH_END_OK, 0);
    assert_seen("unload m1", 1);
    assert_seen("open m1", 1);
    assert_seen("serve 2 m1", 1);
}

/* R14: the former model is being loaded, and no other node may load the new one. */
TEST_CASE(test_call_waits_for_the_end_of_a_former_load)
{
    prompt = false;
    put("m1", "");
    call_as(1, "m1", MESH_HOP_ENTRY);
    runtime_ends(MESH_SIZE_PREDICTED, "m1");
    register_anew("m1");
    assert_seen("answer 1 not-found", 1);
    begin();
    call_as(2, "m1", MESH_HOP_ENTRY);
    assert_seen("answer", 0);
    prompt = true;
    begin();
    runtime_ends(MESH_LOAD_ENDED, "m1");
    assert_seen("unload m1", 1);
    assert_seen("load m1", 1);
    assert_seen("open m1", 1); /* the new one */
    assert_seen("serve 2 m1", 1);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
