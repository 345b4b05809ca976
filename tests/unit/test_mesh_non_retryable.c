/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that are cut off: a try that was answered ends its call with any result, and counts
 * for reachability as a lost unary call does. R15: calls that cannot be repeated avoid unreachable
 * nodes.
 */
#include "mesh_rig.h"

static void
begin_stream(uint32_t call, const char *model)
{
    begin();
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = call,
                                      .model = model,
                                      .hop = MESH_HOP_ENTRY,
                                      .non_retryable = true,
                                      .deadline_ms = now_ms + 60000}});
}

/* Ends the try of a call whose caller has been answered. */
static void
cut_off(uint32_t call, enum mesh_end end, bool vanished)
{
    begin();
    step((struct mesh_event){.kind = MESH_TRY_ENDED,
                             .tried = {.call = call,
                                       .number = numbers[call],
                                       .end = end,
                                       .answered = true,
                                       .vanished = vanished}});
    assert_seen("answer", 0);
    assert_seen("serve", 0);
    assert_seen("forward", 0);
}

/* R3: all calls prefer the other copy now. */
TEST_CASE(test_unreachable_peer_is_the_second_choice)
{
    instance("a", 500);
    instance("b", 500);
    put("m1", "a:loaded b:loaded");
    begin_stream(1, "m1");
    bool at_a = seen("forward 1 m1 a hit") > 0;
    cut_off(1, MESH_END_UNREACHABLE, false);
    for (uint32_t call = 1; call < 4; call++) { /* the number is free, and few calls are there */
        begin();
        call_as(call, "m1", MESH_HOP_ENTRY);
        assert_int_equal(seen("forward"), 1);
        assert_int_equal(strstr(lines[0], at_a ? " b hit" : " a hit") != NULL, 1);
    }
}

/* R15: a stream avoids the unreachable only copy and has the model loaded here; other calls try it.
 */
TEST_CASE(test_stream_avoids_the_unreachable_only_copy)
{
    instance("a", 500);
    put("m1", "a:loaded");
    begin_stream(1, "m1");
    assert_seen("forward 1 m1 a hit", 1);
    cut_off(1, MESH_END_UNREACHABLE, false);
    begin();
    call_as(2, "m1", MESH_HOP_ENTRY);
    assert_seen("forward 2 m1 a hit", 1);
    begin_stream(3, "m1");
    assert_seen("forward", 0);
    assert_seen("load m1", 1);
    assert_seen("serve 3 m1", 1);
}

/* Unreachability is forgotten after two seconds. */
TEST_CASE(test_unreachability_expires)
{
    instance("a", 500);
    put("m1", "a:loaded");
    begin_stream(1, "m1");
    cut_off(1, MESH_END_UNREACHABLE, false);
    now_ms += 2000;
    begin_stream(1, "m1");
    assert_seen("forward 1 m1 a hit", 1);
    cut_off(1, MESH_END_DEADLINE, false); /* which says nothing of the peer */
    begin_stream(1, "m1");
    assert_seen("forward 1 m1 a hit", 1);
}

/* R15: this node may not load the model, so the stream tries the peer after all. */
TEST_CASE(test_stream_tries_an_unreachable_peer_as_last_resort)
{
    static const char *const gpu[] = {"gpu"};
    const struct mesh_type_rule rule = {.type = "t", .required = gpu, .required_count = 1};
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = &rule, .rule_count = 1}});
    instance_with((struct mesh_instance){.id = "a",
                                         .labels = "gpu",
                                         .session = 7,
                                         .figures = {.capacity_units = 1000, .free_units = 500}});
    put("m1", "a:loaded");
    begin_stream(1, "m1");
    cut_off(1, MESH_END_UNREACHABLE, false);
    begin_stream(1, "m1");
    assert_seen("forward 1 m1 a hit", 1);
}

/* The runtime forgets the model during a stream; the next stream has it loaded again. */
TEST_CASE(test_forgotten_model_is_loaded_again)
{
    put("m1", "");
    use("m1");
    begin_stream(1, "m1");
    assert_seen("serve 1 m1", 1);
    cut_off(1, MESH_END_NOT_HERE, true);
    assert_seen("unload", 0); /* of what it does not have */
    begin_stream(1, "m1");
    assert_seen("load m1", 1);
    assert_seen("serve 1 m1", 1);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
