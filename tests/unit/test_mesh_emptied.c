/* SPDX-License-Identifier: Apache-2.0 */
/*
 * W1: etcd comes back without its data. Calls continue from memory. Nodes with a copy rewrite
 * missing records, then the leader rewrites the others, then every node the rest; nodes that had
 * not seen etcd for a while write last. Deleted models stay deleted, and instances that do not come
 * back count for a minute only.
 */
#include "mesh_rig.h"

/* A new etcd, whose revisions are low; this node's session ends with the old one. */
static void
empty(void)
{
    for (uint32_t i = 0; i < MODELS; i++)
        models[i].revision = models[i].create_revision = 0;
    revision = 1;
    step((struct mesh_event){.kind = MESH_EMPTIED});
    mirror_is_whole();
}

static void
come_back(void)
{
    session = ++revision;
    instance_with((struct mesh_instance){.id = "self", .session = session});
    set_session(session);
}

TEST_CASE(test_owners_rewrite_their_records)
{
    instance("other", 500);
    put("m1", "");
    put("m2", "other:loaded");
    put("m3", "");
    load_here("m1");
    add_place("m1", "other", MESH_PLACE_LOADED);
    begin();
    empty();
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("serve 1 m1", 1);
    end_call(1, MESH_END_OK, 0);
    call_as(2, "m2", MESH_HOP_ENTRY);
    assert_seen("forward 2 m2 other hit", 1); /* it lives, as far as is known */
    assert_seen("create", 0);                 /* there is no session */
    come_back();
    assert_seen("create m1 other:loaded self:loaded", 1); /* all that is known */
    assert_seen("create", 1);                             /* m2 is the other's, m3 the leader's */
    assert_seen("unload", 0);
    begin();
    tick(1000);
    call_as(3, "m1", MESH_HOP_ENTRY);
    assert_seen("serve 3 m1", 1); /* it is the same model, at another revision */
    assert_seen("unload", 0);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
}

/* Another node has rewritten the record before: its copies count. */
TEST_CASE(test_record_was_rewritten_by_another_node)
{
    instance("other", 500);
    put("m1", "");
    put("m2", "");
    use("m1");
    use("m2");
    begin();
    empty();
    put("m1", "other:loaded"); /* without ours */
    struct rig_model *m2 = model_at("m2");
    m2->revision = m2->create_revision = ++revision; /* not seen by this node yet */
    m2->place_count = 0;
    come_back();
    assert_seen("create m2 self:loaded", 1); /* which does not hold; then */
    assert_seen("write m2 self:loaded", 1);
    assert_seen("write m1 other:loaded", 0);
    assert_seen("unload m1", 1); /* J3: it is loaded, where one copy is wanted */
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_LOADED);
}

/* The id comes back as another model. */
TEST_CASE(test_another_model_under_the_same_id)
{
    put("m1", "");
    use("m1");
    begin();
    empty();
    struct rig_model *m1 = model_at("m1");
    snprintf(m1->path, TEXT, "elsewhere");
    m1->revision = m1->create_revision = ++revision;
    m1->place_count = 0;
    notify_model("m1");
    assert_seen("unload m1", 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_NONE);
}

/* Nodes with a copy rewrite a limited number of records a second; a claim that a call awaits is
 * written at once. */
TEST_CASE(test_rewrites_are_limited_per_second)
{
    char id[TEXT];
    size_units = 1;
    const uint32_t count = 140;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "m%u", i);
        put(id, "");
        load_here(id);
        begin();
    }
    put("new", "");
    empty();
    begin();
    come_back();
    assert_seen("create", 128);
    call_as(0, "new", MESH_HOP_LOAD);
    assert_seen("serve 0 new", 1);
    tick(1000);
    assert_seen("create", count - 128);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "m%u", i);
        assert_int_equal(mesh_state(mesh, id), MESH_STATE_LOADED);
    }
}

/* An entry of a replaced model still goes, although its id comes back meanwhile. */
TEST_CASE(test_replaced_model_stays_replaced)
{
    put("m1", "");
    prompt = false;
    call_as(1, "m1", MESH_HOP_ENTRY);
    runtime_ends(MESH_SIZE_PREDICTED, "m1");
    struct rig_model *m1 = model_at("m1");
    snprintf(m1->path, TEXT, "elsewhere");
    m1->revision = m1->create_revision = ++revision;
    m1->place_count = 0;
    notify_model("m1"); /* another model, while that one loads */
    network = NETWORK_DOWN;
    empty();
    m1->revision = m1->create_revision = ++revision;
    m1->place_count = 1;
    m1->places[0] = (struct rig_place){
        .instance = "self", .since_ms = WALL + now_ms, .kind = MESH_PLACE_LOADING};
    notify_model("m1");
    begin();
    runtime_ends(MESH_LOAD_ENDED, "m1");
    call_as(2, "m1", MESH_HOP_ENTRY);
    assert_seen("serve", 0);
    assert_seen("unload m1", 1);
}

/* Deleted models free their ids. */
TEST_CASE(test_ids_are_freed)
{
    for (int i = 0; i < 2 * MODELS; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "x%d", i);
        memset(models, 0, sizeof(models));
        put(id, "");
        begin();
        call_as(1, id, MESH_HOP_ENTRY);
        assert_seen("serve 1", 1);
        model_gone(id);
        empty();
        come_back();
        end_call(1, MESH_END_OK, 0);
        assert_int_equal(mesh_state(mesh, id), MESH_STATE_NONE);
    }
}

/* The leader waits for the nodes with a copy, then rewrites the missing records. */
TEST_CASE(test_leader_rewrites_the_rest)
{
    char id[TEXT];
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        put(id, i == 7 ? "other:loaded" : "");
    }
    model_gone("m5");
    empty();
    put("m6", "");
    come_back();
    lead(true);
    tick(9000);
    assert_seen("create", 0);
    lead(false);
    tick(1000);
    assert_seen("create", 0); /* not the leader */
    lead(true);
    for (int i = 0; i < 3; i++)
        pass(1000);
    assert_seen("create", 98);
    assert_seen("create m5", 0); /* was deleted */
    assert_seen("create m6", 0); /* was written by somebody */
    assert_seen("create m7 other:loaded", 1);
    begin();
    for (int i = 0; i < 100; i++)
        tick(1000);
    assert_seen("create", 0); /* once */
}

/* The leader may not know all records. */
TEST_CASE(test_every_node_rewrites_what_is_missing)
{
    put("m1", "");
    put("m2", "other:loaded");
    put("m3", "");
    empty();
    come_back();
    put("m3", ""); /* somebody has written it */
    for (int i = 0; i < 19; i++) {
        tick(1000);
        assert_seen("create", 0);
    }
    tick(1000);
    assert_seen("create m1", 1);
    assert_seen("create m2 other:loaded", 1);
    assert_seen("create", 2);
    for (int i = 0; i < 19; i++) {
        tick(1000);
        assert_seen("create", 0); /* once */
    }
}

/* The next session ends unnoticed: its writes are lost and bring the answer that there is no
 * record, which must not count as a deletion. */
TEST_CASE(test_session_ends_again)
{
    put("m1", "");
    use("m1");
    step((struct mesh_event){
        .kind = MESH_VMODEL_PUT,
        .vmodel = {.id = "v1", .active = "m1", .target = "m1", .revision = ++revision}});
    empty();
    session = revision + 2; /* in etcd */
    begin();
    set_session(++revision);
    assert_seen("create m1 self:loaded", 1);
    step((struct mesh_event){.kind = MESH_VMODEL_GONE, .gone = {"v1", revision}});
    assert_seen("unload", 0);
    assert_string_equal(mesh_resolve(mesh, "v1"), "m1");
    set_session(0);
    come_back();
    tick(1000);
    assert_int_equal(model_at("m1")->place_count, 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    model_gone("m1");
    assert_seen("unload m1", 1); /* now somebody has */
}

/* A load in progress completes; a withdrawal completes, too. */
TEST_CASE(test_entries_in_transition)
{
    put("m1", "");
    put("m2", "");
    put("m3", "");
    use("m3");
    prompt = false;
    call_as(1, "m1", MESH_HOP_ENTRY);
    runtime_ends(MESH_SIZE_PREDICTED, "m1");
    network = NETWORK_DOWN;
    call_as(2, "m2", MESH_HOP_ENTRY); /* its claim is out */
    call_as(3, "m3", MESH_HOP_ENTRY);
    vanish(3);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADING);
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_CLAIMING);
    assert_int_equal(mesh_state(mesh, "m3"), MESH_STATE_WITHDRAWING);
    empty();
    network = NETWORK_OK;
    prompt = true;
    begin();
    come_back();
    assert_seen("create m1 self:loading", 1);
    assert_seen("create m2 self:loading", 1);
    assert_seen("create m3", 1); /* without a place; then the call that waits has it loaded again */
    runtime_ends(MESH_SIZE_PREDICTED, "m2");
    now_ms += LOAD_MS;
    runtime_ends(MESH_LOAD_ENDED, "m1");
    assert_seen("serve 1 m1", 1);
    assert_seen("serve 2 m2", 1);
    assert_seen("serve 3 m3", 1);
}

/* R7 is suspended for a while, as other nodes still name old revisions. An instance that does not
 * come back counts for a minute. */
TEST_CASE(test_other_instances)
{
    instance("other", 500);
    instance_with((struct mesh_instance){.id = "dead", .session = 9});
    put("m1", "");
    put("m2", "dead:loaded");
    use("m1");
    uint64_t before = model_at("m1")->create_revision;
    empty();
    come_back();
    instance("other", 500);
    begin();
    const struct mesh_event call = {.kind = MESH_CALL,
                                    .call = {.call = 1,
                                             .model = "m1",
                                             .hop = MESH_HOP_HIT,
                                             .deadline_ms = now_ms + 1000000,
                                             .create_revision = before + 100}};
    step(call);
    assert_seen("serve 1 m1", 1);
    end_call(1, MESH_END_OK, 0);
    call_as(2, "m2", MESH_HOP_ENTRY);
    assert_seen("forward 2 m2 dead hit", 1);
    end_call(2, MESH_END_OK, 0);
    tick(61000);
    begin();
    call_as(2, "m2", MESH_HOP_ENTRY);
    assert_seen("forward 2 m2 dead", 0);
    lead(true);
    for (int i = 0; i < 70; i++)
        tick(1000);
    begin();
    step(call);
    assert_seen("answer 1 not-here", 1);
    put("m3", "other:loaded");
    call_as(3, "m3", MESH_HOP_ENTRY);
    assert_seen("forward 3 m3 other hit", 1); /* it did come back */
}

/* This node holds m1 and leads, and has had no answer of etcd for 100 s when it learns that etcd
 * was emptied. Others write m2 in the meantime, as it became while this node was away. */
static void
check_that_it_waits(void)
{
    empty();
    come_back();
    lead(true);
    begin();
    for (int i = 0; i < 29; i++)
        pass(1000);
    assert_seen("create", 0);
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("serve 1 m1", 1); /* that goes on */
    end_call(1, MESH_END_OK, 0);
    pass(1000);
    assert_seen("create m1 self:loaded", 1);
    put("m2", "other:loaded");
    for (int i = 0; i < 9; i++)
        pass(1000);
    assert_seen("create", 1);
    pass(1000);
    assert_seen("create m3", 1);
    assert_seen("create", 2);
    assert_seen("write m2", 0);
}

TEST_CASE(test_node_that_was_away_writes_last)
{
    for (int i = 1; i < 4; i++)
        put(i == 1 ? "m1" : i == 2 ? "m2" : "m3", "");
    use("m1");
    set_session(0);
    for (int i = 0; i < 100; i++)
        pass(1000);
    check_that_it_waits();
}

/* The process was stopped; it sees the clock before it learns of the end of its session. */
TEST_CASE(test_stopped_process_writes_last)
{
    for (int i = 1; i < 4; i++)
        put(i == 1 ? "m1" : i == 2 ? "m2" : "m3", "");
    use("m1");
    now_ms += 100000;
    pass(1000);
    set_session(0);
    check_that_it_waits();
}

/* D3: a copy of a lone draining node stays when a node joins before the withdrawal is written. */
TEST_CASE(test_draining_copy_stays_when_a_node_joins)
{
    put("m1", "");
    use("m1");
    empty();
    drain();
    pass(2000);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_WITHDRAWING);
    begin();
    instance("other", 500);
    come_back();
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    assert_seen("create m1 self:loaded", 1);
    assert_seen("unload", 0);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
