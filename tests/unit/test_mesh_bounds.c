/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds in a model's record on its copies and its size (rules B): the stated size counts until a
 * load measures another, no load begins beyond the maximum and surplus copies go, the leader loads
 * missing copies, and those that are needed are not evicted. Bounds apply when the record changes.
 */
#include "mesh_rig.h"

static void
bind(const char *id, struct mesh_bounds bounds, const char *copies)
{
    model_at(id)->bounds = bounds;
    put(id, copies);
}

/* The record changes in nothing else. */
static void
bind_again(const char *id, struct mesh_bounds bounds)
{
    model_at(id)->bounds = bounds;
    model_at(id)->revision = ++revision;
    notify_model(id);
}

static void
ensure(const char *model, uint32_t target)
{
    step((struct mesh_event){
        .kind = MESH_ENSURE,
        .ensure = {
            .model = model, .class = MESH_CLASS_COPY, .where = MESH_HERE, .target = target}});
}

/* m0, m1, … of 100 units each fill the node in this order. */
static void
fill(uint32_t first, uint32_t count, uint32_t copies_min)
{
    char id[TEXT];
    for (uint32_t i = first; i < first + count; i++) {
        snprintf(id, sizeof(id), "m%u", i);
        bind(id, (struct mesh_bounds){.copies_min = copies_min}, "");
        use(id);
    }
    pass(MINUTE); /* E3 */
}

static uint64_t
free_units(void)
{
    return mesh_figures(mesh).free_units;
}

/* ---- the size ---- */

TEST_CASE(test_stated_size_until_it_is_measured)
{
    const uint64_t before = free_units();
    size_units = 0;
    bind("m1", (struct mesh_bounds){.size_units = 300}, "");
    call_as(0, "m1", MESH_HOP_LOAD);
    assert_seen("size m1", 0);
    assert_int_equal(before - free_units(), 300);
    size_units = 40;
    runtime_ends(MESH_SIZE_MEASURED, "m1");
    assert_int_equal(before - free_units(), 40);
}

TEST_CASE(test_stated_size_decides_where_it_fits)
{
    fill(0, 7, 0);
    begin();
    bind("large", (struct mesh_bounds){.size_units = 400}, "");
    call_as(1, "large", MESH_HOP_LOAD);
    assert_seen("unload", 2); /* of 900 units, 700 were taken */
    assert_seen("load large", 1);
    bind("larger", (struct mesh_bounds){.size_units = 2000}, "");
    call_as(2, "larger", MESH_HOP_ENTRY);
    assert_seen("answer 2 failed", 1);
    assert_non_null(strstr(answer_text, " MiB (as registered)"));
}

/* ---- the maximum ---- */

TEST_CASE(test_no_load_beyond_the_maximum)
{
    instance("other", 900);
    bind("m1", (struct mesh_bounds){.copies_max = 1}, "other:loaded");
    begin();
    ensure("m1", 3);
    assert_seen("write m1", 0);
    bind_again("m1", (struct mesh_bounds){.copies_max = 2});
    ensure("m1", 3);
    assert_seen("load m1", 1);
}

/* A copy that leaves does not count, or a drain could not move it. */
TEST_CASE(test_draining_copies_do_not_count)
{
    instance_with((struct mesh_instance){
        .id = "other", .session = 7, .draining = true, .figures = {.capacity_units = 1000}});
    bind("m1", (struct mesh_bounds){.copies_max = 1}, "other:loaded");
    ensure("m1", 2);
    assert_seen("load m1", 1);
}

/* R14: nothing is loaded for a call that does not reach the only copy; when that has gone, it is.
 */
TEST_CASE(test_call_waits_for_the_only_copy)
{
    instance("other", 900);
    bind("m1", (struct mesh_bounds){.copies_max = 1}, "other:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("forward 1 m1 other hit", 1);
    end_call(1, MESH_END_UNREACHABLE, 0);
    assert_seen("answer", 0);
    tick(1000);
    assert_seen("forward 1 m1 other hit", 1);
    end_call(1, MESH_END_UNREACHABLE, 0);
    assert_seen("load", 0);
    instance_gone("other");
    pass(1000);
    assert_seen("load m1", 1);
    assert_seen("serve 1 m1", 1);
}

TEST_CASE(test_call_is_reported_of_the_maximum)
{
    instance("other", 900);
    bind("m1", (struct mesh_bounds){.copies_max = 1}, "other:loaded");
    call_as(1, "m1", MESH_HOP_ENTRY);
    for (int i = 0; i < 60 && seen("answer") == 0; i++) {
        end_call(1, MESH_END_UNREACHABLE, 0);
        pass(1000);
    }
    assert_seen("answer 1 full", 1);
    assert_non_null(strstr(answer_text, "its maximum of copies"));
    assert_seen("load", 0);
}

/* R17: it goes first. */
TEST_CASE(test_a_load_behind_hanging_ones_moves)
{
    prompt = false;
    put("hangs", "");
    bind("m1", (struct mesh_bounds){.copies_max = 1}, "");
    call_as(0, "hangs", MESH_HOP_ENTRY);
    runtime_ends(MESH_SIZE_PREDICTED, "hangs");
    call_as(1, "m1", MESH_HOP_ENTRY);
    runtime_ends(MESH_SIZE_PREDICTED, "m1");
    instance("other", 500);
    begin();
    pass(3000);
    assert_seen("write m1", 1);
    assert_seen("forward 1 m1 other load", 1);
}

/* S2, S3: its use would justify more. */
TEST_CASE(test_no_copy_for_load_beyond_the_maximum)
{
    instance("other", 900);
    bind("m1", (struct mesh_bounds){.copies_max = 1}, "");
    use("m1");
    step((struct mesh_event){.kind = MESH_USED, .used = {.model = "m1", .count = 100000}});
    tick(10000);
    assert_seen("ensure", 0);
    pass(10 * MINUTE);
    use("m1");
    tick(10000);
    assert_seen("ensure", 0);
    bind_again("m1", (struct mesh_bounds){.copies_max = 2});
    use("m1");
    tick(10000);
    assert_seen("ensure m1 other copy 2", 1);
}

TEST_CASE(test_surplus_copies_go)
{
    instance("other", 900);
    put("m1", "other:loaded");
    ensure("m1", 2);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    bind_again("m1", (struct mesh_bounds){.copies_max = 2});
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    begin();
    bind_again("m1", (struct mesh_bounds){.copies_max = 1});
    assert_seen("write m1 other:loaded", 1);
    assert_seen("unload m1", 1);
}

/* The other one came later, and goes. */
TEST_CASE(test_the_first_copy_stays)
{
    instance("other", 900);
    put("m1", "");
    use("m1");
    pass(1000);
    add_place("m1", "other", MESH_PLACE_LOADED);
    begin();
    bind_again("m1", (struct mesh_bounds){.copies_max = 1});
    pass(1000);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    assert_int_equal(line_count, 0);
}

/* ---- the minimum ---- */

TEST_CASE(test_leader_loads_missing_copies)
{
    instance("other", 900);
    bind("m1", (struct mesh_bounds){.copies_min = 2}, "");
    tick(1000);
    assert_seen("load", 0);
    assert_seen("ensure", 0);
    lead(true);
    pass(1000);
    assert_seen("load m1", 1);
    assert_seen("ensure m1 other migration 2", 1);
    add_place("m1", "other", MESH_PLACE_LOADED);
    instance("third", 900);
    tick(MINUTE);
    assert_seen("ensure", 0);
    instance_gone("other");
    pass(1000);
    assert_seen("ensure m1 third migration 2", 1);
}

/* A copy that is about to leave is replaced beforehand. */
TEST_CASE(test_draining_copies_are_replaced)
{
    lead(true);
    fill(0, 9, 1); /* there is no room here */
    instance("third", 900);
    instance_with((struct mesh_instance){
        .id = "other", .session = 7, .draining = true, .figures = {.capacity_units = 1000}});
    bind("m1x", (struct mesh_bounds){.copies_min = 1}, "other:loaded");
    tick(1000);
    assert_seen("ensure m1x third migration 2", 1);
}

/* Nodes that do not load it are asked in turn, and less and less often. */
TEST_CASE(test_requests_become_rare)
{
    lead(true);
    fill(0, 9, 1); /* there is no room here */
    instance("one", 900);
    instance("two", 900);
    bind("m", (struct mesh_bounds){.copies_min = 1}, "");
    begin();
    pass(1000);
    pass(1000);
    assert_seen("ensure m one", 1);
    assert_seen("ensure m two", 1);
    for (int i = 0; i < 120; i++)
        pass(1000);
    assert_true(seen("ensure") >= 6 && seen("ensure") <= 10);
}

/* However rare they were. */
TEST_CASE(test_a_node_that_joins_is_asked)
{
    lead(true);
    fill(0, 9, 1); /* there is no room here */
    bind("m", (struct mesh_bounds){.copies_min = 1}, "");
    for (int i = 0; i < 70; i++)
        pass(1000);
    begin();
    instance("new", 900);
    pass(1000);
    assert_seen("ensure m new", 1);
}

TEST_CASE(test_no_requests_after_three_failures)
{
    lead(true);
    instance("other", 900);
    bind("m", (struct mesh_bounds){.copies_min = 1}, "a:failed b:failed c:failed");
    tick(1000);
    assert_seen("ensure", 0);
    assert_seen("load", 0);
}

/* B5: others go, though they were used later. */
TEST_CASE(test_needed_copies_are_not_evicted)
{
    fill(0, 1, 1);
    fill(1, 8, 0);
    begin();
    put("new", "");
    use("new");
    assert_seen("unload m0", 0);
    assert_seen("unload m1", 1);
    bind_again("m0", (struct mesh_bounds){0});
    pass(MINUTE);
    put("newer", "");
    use("newer");
    assert_seen("unload m0", 1);
}

/* Two copies are there, and one is needed: this one may go, until the other has gone. */
TEST_CASE(test_a_further_copy_may_be_evicted)
{
    instance("other", 0);
    bind("m0", (struct mesh_bounds){.copies_min = 1}, "");
    use("m0");
    add_place("m0", "other", MESH_PLACE_LOADED);
    fill(1, 8, 0);
    begin();
    instance_gone("other"); /* no tick since */
    put("new", "");
    use("new");
    assert_seen("unload m0", 0);
    instance("other", 0);
    add_place("m0", "other", MESH_PLACE_LOADED);
    pass(MINUTE);
    put("newer", "");
    use("newer");
    assert_seen("unload m0", 1);
}

/* Minima that exceed the memory are met in the order in which they come, and nothing moves. */
TEST_CASE(test_minima_beyond_the_memory)
{
    char id[TEXT];
    lead(true);
    for (uint32_t i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "m%u", i);
        bind(id, (struct mesh_bounds){.copies_min = 1}, "");
    }
    for (uint32_t i = 0; i < 60; i++)
        pass(1000);
    begin();
    for (uint32_t i = 0; i < 600; i++)
        pass(1000);
    assert_int_equal(mesh_figures(mesh).copies, 9);
    assert_seen("load", 0);
    assert_seen("unload", 0);
    assert_int_equal(txns, 0);
    put("called", "");
    call_as(1, "called", MESH_HOP_ENTRY); /* waits for room (R14) */
    assert_seen("load", 0);
    bind_again("m3", (struct mesh_bounds){0});
    for (uint32_t i = 0; i < 20; i++)
        pass(1000);
    assert_seen("unload m3", 1);
    assert_seen("serve 1 called", 1);
}

/* K4: a larger one than the needed copies leave room for fails, and they stay. */
TEST_CASE(test_measured_larger_beside_needed_copies)
{
    fill(0, 7, 1);
    begin();
    size_units = 0;
    put("new", "");
    call_as(1, "new", MESH_HOP_LOAD);
    size_units = 300;
    runtime_ends(MESH_SIZE_MEASURED, "new");
    assert_seen("write new self:failed", 1);
    assert_seen("unload", 0);
    assert_int_equal(mesh_figures(mesh).copies, 7);
}

/* K4: so does a needed one: the others were there first. */
TEST_CASE(test_needed_copy_measured_larger)
{
    fill(0, 8, 1);
    begin();
    size_units = 0;
    bind("new", (struct mesh_bounds){.copies_min = 1}, "");
    call_as(1, "new", MESH_HOP_LOAD);
    size_units = 300;
    runtime_ends(MESH_SIZE_MEASURED, "new");
    assert_seen("write new self:failed", 1);
    assert_seen("unload", 0);
    assert_int_equal(mesh_figures(mesh).copies, 8);
}

/* Two that exceed the memory only when they are loaded do not take turns. */
TEST_CASE(test_minima_measured_beyond_the_memory)
{
    lead(true);
    size_units = 0;
    bind("m1", (struct mesh_bounds){.copies_min = 1, .size_units = 100}, "");
    bind("m2", (struct mesh_bounds){.copies_min = 1, .size_units = 100}, "");
    size_units = 600;
    for (uint32_t i = 0; i < 60; i++)
        pass(1000);
    assert_int_equal(mesh_figures(mesh).copies, 1);
    begin();
    for (uint32_t i = 0; i < 600; i++)
        pass(1000);
    assert_seen("load", 0);
    assert_seen("unload", 0);
}

/* J5: with little room left, the last of three copies goes, but no needed one. */
TEST_CASE(test_janitor_keeps_the_minimum)
{
    instance("one", 0);
    instance("two", 0);
    bind("m0", (struct mesh_bounds){.copies_min = 3}, "one:loaded two:loaded");
    pass(1000);
    ensure("m0", 3);
    fill(1, 8, 0);
    size_units = 50;
    bind("small", (struct mesh_bounds){.size_units = 50}, "");
    use("small"); /* takes the last free units */
    tick(30 * MINUTE);
    assert_seen("unload m0", 0);
    bind_again("m0", (struct mesh_bounds){.copies_min = 2});
    tick(30 * MINUTE);
    assert_seen("unload m0", 1);
}

/* ---- vmodels ---- */

/* Of all of them, the copy that a vmodel leaves goes for its target. */
TEST_CASE(test_a_vmodel_leaves_a_needed_copy)
{
    lead(true);
    fill(0, 9, 1);
    assert_int_equal(outcome(SET("v", "m4")), MESH_OUTCOME_OK);
    begin();
    order_more(SET("v", "next", .type = "t", .bounded = true, .bounds = {.copies_min = 1}));
    for (int i = 0; i < 5; i++)
        pass(1000);
    assert_seen("load next", 1);
    assert_seen("unload m4", 1);
    assert_seen("unload", 1);
    assert_string_equal(vmodel_at("v")->active, "next");
    assert_int_equal(model_at("next")->bounds.copies_min, 1);
}

TEST_CASE(test_orders_set_bounds)
{
    struct mesh_order set = SET("v", "m", .type = "t", .bounded = true, .load_now = true,
                                .bounds = {.copies_min = 1, .copies_max = 3, .size_units = 7});
    assert_int_equal(outcome(set), MESH_OUTCOME_OK);
    assert_seen("load m", 1);
    assert_int_equal(model_at("m")->bounds.copies_min, 1);
    assert_int_equal(model_at("m")->bounds.copies_max, 3);
    assert_int_equal(model_at("m")->bounds.size_units, 7);
    set.bounds = (struct mesh_bounds){.copies_min = 2};
    assert_int_equal(outcome(set), MESH_OUTCOME_OK);
    assert_seen("write m self:loaded", 1);
    assert_seen("set", 0);
    assert_seen("load", 0);
    assert_int_equal(model_at("m")->bounds.copies_min, 2);
    assert_int_equal(model_at("m")->bounds.copies_max, 0);
    assert_int_equal(outcome(set), MESH_OUTCOME_OK); /* they are so */
    assert_int_equal(txns, 0);
    assert_int_equal(outcome(SET("v", "m", .type = "t")), MESH_OUTCOME_OK);
    assert_int_equal(txns, 0); /* says nothing about them */
    assert_int_equal(outcome(SET("w", "m", .type = "t", .bounded = true)), MESH_OUTCOME_OK);
    assert_int_equal(model_at("m")->bounds.copies_min, 0);
}

/* W1: what a node knew of them is written anew. */
TEST_CASE(test_bounds_outlive_etcd)
{
    bind("m1", (struct mesh_bounds){.copies_min = 1, .copies_max = 2, .size_units = 9}, "");
    use("m1");
    const struct rig_model was = *model_at("m1");
    *model_at("m1") = (struct rig_model){0};
    revision = 1;
    step((struct mesh_event){.kind = MESH_EMPTIED});
    mirror_is_whole();
    session = ++revision;
    instance_with((struct mesh_instance){.id = "self", .session = session});
    set_session(session);
    for (int i = 0; i < 5; i++)
        pass(1000);
    assert_memory_equal(&model_at("m1")->bounds, &was.bounds, sizeof(was.bounds));
}

TEST_MAIN(.setup = fresh, .teardown = drop)
