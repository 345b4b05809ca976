/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How copies move to other nodes: H3 (new constraints, new labels), D2 to D4 (drains, also when
 * several copies leave or the other copy vanishes), J5 likewise, E6 (an evicted model is loaded
 * where there is room), and A7 (a copy is requested before its record has arrived).
 */
#include "mesh_rig.h"

static void
constrain(const char *label)
{
    const struct mesh_type_rule rule = {.type = "t", .required = &label, .required_count = 1};
    step((struct mesh_event){.kind = MESH_TYPES,
                             .types = {.rules = &rule, .rule_count = label != NULL ? 1 : 0}});
}

static void
labelled(const char *id, const char *labels)
{
    instance_with((struct mesh_instance){
        .id = id,
        .labels = labels,
        .session = strcmp(id, "self") == 0 ? session : 7,
        .figures = {.capacity_units = 1000, .free_units = 500, .oldest_ms = WALL + now_ms}});
}

/* A copy that may not stay here serves until another one is loaded elsewhere. */
TEST_CASE(test_new_constraints_move_a_copy)
{
    labelled("good", "gpu");
    labelled("bad", "cpu");
    put("m1", "");
    put_as("m2", "free", "", WALL + now_ms);
    use("m1");
    use("m2");
    constrain("gpu");
    tick(1000);
    assert_seen("ensure m1 good migration 2", 1);
    assert_seen("ensure", 1);                  /* m2's type is not concerned */
    add_place("m1", "bad", MESH_PLACE_LOADED); /* it may not stay there either */
    tick(1000);
    assert_seen("write", 0);
    assert_seen("ensure", 0); /* it was asked for just now */
    use("m1");
    tick(10000);
    assert_seen("ensure m1 good migration 3", 1); /* two are leaving */
    add_place("m1", "good", MESH_PLACE_LOADING);
    tick(10000);
    assert_seen("ensure", 0);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    add_place("m1", "good", MESH_PLACE_LOADED);
    tick(1000);
    assert_seen("unload m1", 1);
    assert_seen("write m1 bad:loaded good:loaded", 1);
    tick(1000);
    assert_int_equal(line_count, 0);
    begin();
    call_as(1, "m1", MESH_HOP_LOAD);
    assert_seen("load", 0); /* it is not loaded here again */
}

/* An unused copy goes at once, a used one that has nowhere to go stays, a queued load is dropped.
 */
TEST_CASE(test_unplaceable_copies)
{
    labelled("bad", "cpu");
    put("m1", "");
    put("m2", "");
    put("m3", "");
    use("m1");
    use("m2");
    now_ms += HOUR + 1;
    use("m2");
    prompt = false;
    call_as(1, "m3", MESH_HOP_ENTRY); /* is being sized */
    begin();
    constrain("gpu");
    prompt = true;
    tick(1000);
    assert_seen("unload m1", 1);
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "m3"), MESH_STATE_NONE);
    assert_seen("load", 0);
    assert_seen("ensure", 0);
    begin();
    use("m2");
    constrain(NULL); /* all may be everywhere again */
    tick(20000);
    now_ms += HOUR + 1;
    tick(1000);
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_LOADED);
}

/* The same when this node's labels change instead. */
TEST_CASE(test_new_labels_move_a_copy)
{
    labelled("self", "gpu");
    labelled("good", "gpu");
    constrain("gpu");
    put("m1", "");
    load_here("m1");
    tick(1000);
    assert_seen("ensure", 0);
    labelled("self", "cpu");
    tick(1000);
    assert_seen("ensure m1 good migration 2", 1);
}

/* Constraints change while this node's key is missing: it keeps its labels. */
TEST_CASE(test_constraints_change_without_own_key)
{
    static const char *const gpu[] = {"gpu"};
    static const char *const ssd[] = {"ssd"};
    const struct mesh_type_rule rules[] = {
        {.type = "u", .required = ssd, .required_count = 1}, /* the first label now */
        {.type = "t", .required = gpu, .required_count = 1},
    };
    labelled("self", "gpu");
    constrain("gpu");
    put("m1", "");
    use("m1");
    set_session(0);
    instance_gone("self");
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = rules, .rule_count = 2}});
    now_ms += HOUR + 1;
    tick(1000);
    session = revision + 1;
    set_session(session);
    tick(1000);
    labelled("self", "gpu");
    tick(1000);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
}

/* Copies that have nowhere to go do not block the others. */
TEST_CASE(test_unplaceable_copies_do_not_block_others)
{
    static const char *const gpu[] = {"gpu"};
    static const char *const none[] = {"none"};
    const struct mesh_type_rule rules[] = {
        {.type = "t", .required = gpu, .required_count = 1},
        {.type = "u", .required = none, .required_count = 1},
    };
    labelled("good", "gpu");
    put("m0", "");
    load_here("m0");
    char id[TEXT];
    for (int i = 1; i < 8; i++) { /* used later, so looked at earlier */
        snprintf(id, sizeof(id), "m%d", i);
        put_as(id, "u", "", WALL + now_ms);
        load_here(id);
    }
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = rules + 1, .rule_count = 1}});
    tick(1000);
    assert_seen("ensure", 0);
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = rules, .rule_count = 2}});
    tick(1000);
    assert_seen("ensure m0 good migration 2", 1);
    assert_seen("ensure", 1);
}

/* D: two nodes drain, and both hold the model; it has to be loaded at a third. */
TEST_CASE(test_two_nodes_drain)
{
    instance("third", 500);
    put("m1", "");
    load_here("m1");
    instance_with((struct mesh_instance){.id = "other", .session = 8, .draining = true});
    add_place("m1", "other", MESH_PLACE_LOADED);
    begin();
    drain();
    assert_seen("ensure m1 third migration 3", 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    add_place("m1", "third", MESH_PLACE_LOADED);
    assert_seen("unload m1", 1);
}

/* Another node has removed its copy from the record, before this node could remove its own. */
static void
other_copy_goes(const char *id)
{
    struct rig_model *record = model_at(id);
    assert_string_equal(record->places[0].instance, "self");
    record->place_count = 1;
    record->revision = ++revision;
    begin();
    notify_model(id);
}

/* D3: the copy that it yields to vanishes, so it is the last one again. */
TEST_CASE(test_withdrawal_ends_when_the_other_copy_goes)
{
    instance("other", 500);
    put("m1", "");
    load_here("m1");
    drain();
    network = NETWORK_DOWN;
    add_place("m1", "other", MESH_PLACE_LOADED);
    assert_seen("write m1 other:loaded", 1);
    network = NETWORK_OK;
    other_copy_goes("m1");
    assert_seen("write", 0);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    tick(1000);
    assert_seen("ensure m1 other migration 2", 1);
    add_place("m1", "other", MESH_PLACE_LOADED);
    assert_seen("unload m1", 1);
}

/* R12: a call has tried all copies, and waits for this node's to go. That one stays, and serves it.
 */
TEST_CASE(test_call_waits_for_a_withdrawal_that_ends)
{
    labelled("good", "gpu");
    put("m1", "");
    call_as(1, "m1", MESH_HOP_LOAD);
    constrain("gpu");
    network = NETWORK_DOWN;
    add_place("m1", "good", MESH_PLACE_LOADED);
    tick(1000);
    assert_seen("write m1 good:loaded", 1);
    end_call(1, MESH_END_UNREACHABLE, 0);
    assert_seen("forward 1 m1 good hit", 1);
    end_call(1, MESH_END_NOT_HERE, 0);
    assert_seen("answer", 0);
    network = NETWORK_OK;
    other_copy_goes("m1");
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    assert_seen("serve 1 m1", 1);
}

/* J5: a surplus copy stays if it has become the only one. */
TEST_CASE(test_surplus_copy_stays_when_it_becomes_the_last)
{
    char id[TEXT];
    size_units = 105; /* no room is left */
    instance("a", 0);
    instance("b", 0);
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        put(id, "");
        load_here(id);
    }
    add_place("m0", "a", MESH_PLACE_LOADED);
    add_place("m0", "b", MESH_PLACE_LOADED);
    struct rig_model *m0 = model_at("m0");
    m0->places[1].since_ms = m0->places[2].since_ms = 1; /* they came before this one */
    m0->revision = ++revision;
    notify_model("m0");
    network = NETWORK_DOWN;
    tick(11 * MINUTE);
    assert_seen("write m0 a:loaded b:loaded", 1);
    other_copy_goes("m0");
    assert_seen("write", 0);
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_LOADED);
}

/* D4: a lone node drains without a session; then another one joins. */
TEST_CASE(test_lone_drain_ends_when_a_node_joins)
{
    put("m1", "");
    load_here("m1");
    set_session(0);
    drain();
    pass(2000);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_WITHDRAWING);
    instance("other", 500);
    begin();
    set_session(session);
    assert_seen("write", 0);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    tick(1000);
    assert_seen("ensure m1 other migration 2", 1);
}

/* T4: a withdrawal without an answer is sent again, because it may have been applied. */
TEST_CASE(test_unknown_withdrawal_is_repeated)
{
    instance("other", 500);
    put("m1", "");
    load_here("m1");
    drain();
    network = NETWORK_DOWN;
    add_place("m1", "other", MESH_PLACE_LOADED);
    assert_seen("write m1 other:loaded", 1);
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {last_txn, MESH_TXN_UNKNOWN}});
    instance_gone("other");
    instance("third", 500);
    tick(1000);
    assert_seen("write m1 other:loaded", 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_WITHDRAWING);
}

/* The copy's memory is already promised to another load. */
TEST_CASE(test_other_copy_goes_after_memory_is_promised)
{
    const char *const gpu[] = {"gpu"};
    const struct mesh_type_rule rule = {.type = "u", .required = gpu, .required_count = 1};
    char id[TEXT];
    labelled("good", "gpu");
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        put_as(id, i == 0 ? "u" : "t", "", WALL + now_ms);
        load_here(id);
    }
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = &rule, .rule_count = 1}});
    network = NETWORK_DOWN;
    add_place("m0", "good", MESH_PLACE_LOADED);
    tick(1000);
    assert_seen("write m0 good:loaded", 1);
    network = NETWORK_OK;
    put("next", "");
    call_as(1, "next", MESH_HOP_LOAD);
    assert_seen("serve 1 next", 1);
    other_copy_goes("m0");
    assert_seen("write m0", 1);
    assert_seen("unload", 1);
    assert_seen("unload m0", 1);
}

/* R12: this node drains, and the only other one, which has forgotten the model, is asked to load
 * it. */
TEST_CASE(test_only_other_node_is_asked_to_load)
{
    instance("other", 500);
    put("m1", "other:loaded");
    drain();
    instance_with(
        (struct mesh_instance){.id = "self", .labels = "", .session = session, .draining = true});
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("forward 1 m1 other hit", 1);
    end_call(1, MESH_END_NOT_HERE, 0);
    assert_seen("forward 1 m1 other load", 1);
    end_call(1, MESH_END_REFUSED, 0);
    assert_seen("answer", 0);
    tick(1000); /* it has no room now: it is asked again (R14) */
    assert_seen("forward 1 m1 other hit", 1);
}

/* D4: nobody is left to take it. */
TEST_CASE(test_all_nodes_drain)
{
    put("m1", "");
    load_here("m1");
    instance_with((struct mesh_instance){.id = "other", .session = 8, .draining = true});
    begin();
    drain();
    tick(2000); /* it was called just now */
    tick(1000);
    assert_seen("drained", 1);
    tick(1000);
    assert_seen("drained", 0); /* once */
}

/* D4: the remaining node may not hold the model, has just failed to load it, or is too small. */
TEST_CASE(test_no_remaining_node_can_load)
{
    constrain("gpu");
    labelled("self", "gpu");
    instance_with(
        (struct mesh_instance){.id = "leaves", .labels = "gpu", .session = 8, .draining = true});
    labelled("bad", "cpu");
    put("m0", ""); /* "t" needs a gpu, other types do not */
    put_as("m1", "u", "bad:failed", WALL + now_ms);
    put_as("m2", "u", "", WALL + now_ms);
    load_here("m0");
    load_here("m1");
    load_here("m2");
    begin();
    drain();
    assert_seen("ensure m2 bad migration 2", 1);
    assert_seen("ensure", 1);
    tick(1000);
    assert_seen("unload", 0); /* as m2 is waited for, the others are served, too */
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_LOADED);
    instance_with((struct mesh_instance){
        .id = "bad", .labels = "cpu", .session = 7, .figures = {.capacity_units = 99}});
    tick(1000);
    assert_seen("unload", 3);
    assert_seen("drained", 0);
    tick(1000);
    assert_seen("drained", 1);
}

/* D4: a node that is full or has not reported its room may still take it. */
TEST_CASE(test_full_node_can_still_load)
{
    constrain("gpu");
    labelled("self", "gpu");
    labelled("bad", "cpu");
    labelled("failed", "gpu");
    instance_with((struct mesh_instance){.id = "full", .labels = "gpu", .session = 7});
    put("m1", "failed:failed");
    load_here("m1");
    drain();
    tick(1000);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    instance_with((struct mesh_instance){
        .id = "full",
        .labels = "gpu",
        .session = 7,
        .figures = {
            .capacity_units = 1000, .copies = 9, .full = true, .oldest_ms = WALL + now_ms}});
    tick(1000);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    instance_gone("full");
    tick(1000);
    assert_seen("unload m1", 1);
}

/* D4: so may a node whose failure is old. */
TEST_CASE(test_node_with_an_old_failure_can_load)
{
    instance("other", 500);
    put("m1", "other:failed");
    load_here("m1");
    now_ms += 16 * MINUTE;
    begin();
    drain();
    assert_seen("ensure m1 other migration 2", 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
}

/* D4: the nodes may hold one of the two models each. */
TEST_CASE(test_each_model_goes_where_it_fits)
{
    static const char *const gpu[] = {"gpu"};
    static const char *const cpu[] = {"cpu"};
    const struct mesh_type_rule rules[] = {
        {.type = "t", .required = gpu, .required_count = 1},
        {.type = "u", .required = cpu, .required_count = 1},
    };
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = rules, .rule_count = 2}});
    labelled("self", "cpu,gpu");
    labelled("first", "cpu");
    labelled("second", "gpu");
    put_as("m1", "u", "", WALL + now_ms);
    put("m2", "");
    load_here("m1");
    load_here("m2"); /* used last, so looked at first */
    begin();
    drain();
    assert_seen("ensure m2 second migration 2", 1);
    assert_seen("ensure m1 first migration 2", 1);
}

/* A node without a runtime reports neither room nor models. */
static void
bare(const char *id)
{
    instance_with((struct mesh_instance){
        .id = id, .session = 7, .figures = {.capacity_units = 1000, .full = true}});
}

/* D4: the only remaining node has lost its runtime, which may come back within 5 s. */
TEST_CASE(test_remaining_node_without_runtime)
{
    bare("other");
    put("m1", "");
    load_here("m1");
    tick(60000);
    instance("other", 500);
    tick(60000);
    bare("other");
    begin();
    drain();
    tick(1000);
    bare("other"); /* it says it again */
    tick(3999);
    assert_seen("unload", 0);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    tick(1);
    assert_seen("unload m1", 1);
}

static void
fill(void)
{
    char id[TEXT];
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        put(id, "");
        load_here(id);
        now_ms++;
    }
    put("new", "");
}

/* E6: the tenth model evicts the oldest, which is loaded on another node with room. */
TEST_CASE(test_evicted_model_is_loaded_elsewhere)
{
    instance("other", 500);
    fill();
    now_ms += HOUR;
    begin();
    call_as(0, "new", MESH_HOP_LOAD);
    assert_seen("unload m0", 1);
    assert_seen("ensure m0 other advance 1", 1);
    assert_seen("ensure", 1);
    end_call(0, MESH_END_OK, 0);
    instance("third", 500);
    put("newer", "");
    add_place("m1", "other", MESH_PLACE_LOADED);
    begin();
    call_as(0, "newer", MESH_HOP_LOAD);
    assert_seen("unload m1", 1);
    assert_seen("ensure", 0); /* there is a copy */
}

/* E6 does not move a model that was loaded lately, nor anything when all nodes are full. */
TEST_CASE(test_young_evicted_model_is_not_moved)
{
    instance("other", 500);
    fill();
    now_ms += HOUR;
    load_here("new");
    put("ahead", "");
    step((struct mesh_event){.kind = MESH_ENSURE,
                             .ensure = {.model = "ahead",
                                        .used_ms = WALL + now_ms - HOUR / 2,
                                        .class = MESH_CLASS_ADVANCE,
                                        .where = MESH_HERE}});
    assert_int_equal(mesh_state(mesh, "ahead"), MESH_STATE_LOADED);
    char id[TEXT];
    for (int i = 2; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        use(id);
    }
    now_ms += 12000;
    begin();
    put("newer", "");
    call_as(0, "newer", MESH_HOP_LOAD);
    assert_seen("unload ahead", 1); /* the oldest by use */
    assert_seen("ensure", 0);
    end_call(0, MESH_END_OK, 0);
    now_ms += HOUR;
    instance("other", 40); /* two percent of both */
    begin();
    put("newest", "");
    call_as(0, "newest", MESH_HOP_LOAD);
    assert_seen("unload", 1);
    assert_seen("ensure", 0);
}

/* D2: each copy that arrives triggers the next request without waiting for a tick. */
TEST_CASE(test_drains_without_pauses)
{
    char id[TEXT];
    size_units = 1;
    instance("other", 100); /* P5: room for one as large as is assumed, and for many of these */
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        put(id, "");
        load_here(id);
        now_ms++;
    }
    begin();
    drain();
    assert_seen("ensure", 4); /* twice as many as there are nodes */
    for (int i = 8; i >= 0; i--) {
        snprintf(id, sizeof(id), "m%d", i); /* what was used last goes first */
        add_place(id, "other", MESH_PLACE_LOADED);
        assert_seen("unload", (uint32_t)(9 - i));
        assert_seen("ensure", i > 4 ? (uint32_t)(13 - i) : 9);
    }
}

/* A model is unregistered while another node is asked for a copy. */
TEST_CASE(test_requested_model_is_unregistered)
{
    labelled("self", "gpu");
    labelled("other", "gpu");
    constrain("gpu");
    put("m1", "");
    load_here("m1");
    begin();
    drain();
    assert_seen("ensure m1 other migration 2", 1);
    model_at("m1")->revision = 0;
    model_gone("m1");
    assert_seen("ensure", 1);
    assert_seen("unload m1", 1);
    tick(1000);
    assert_seen("drained", 1);
}

static void
ask_for(const char *model)
{
    step((struct mesh_event){.kind = MESH_ENSURE,
                             .ensure = {.model = model,
                                        .used_ms = WALL + now_ms,
                                        .class = MESH_CLASS_COPY,
                                        .where = MESH_HERE}});
}

/* A7 */
TEST_CASE(test_copy_requested_before_its_record)
{
    ask_for("m1");
    ask_for("m1"); /* is one */
    assert_seen("write", 0);
    put("m1", "");
    assert_seen("load m1", 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    ask_for("m3");
    tick(10000);
    put("m3", "");
    assert_seen("load", 0); /* that was long ago */
    ask_for("m4");
    model_gone("m4");
    put("m4", ""); /* it was deleted, and is registered again */
    assert_seen("load m4", 1);
}

/* A limited number of early requests is remembered, one per model, and their names are freed. */
TEST_CASE(test_early_requests_are_limited)
{
    enum { ASKED = 70, KEPT = 64, ROUNDS = 20 };
    char id[2 * TEXT];
    size_units = 1;
    for (int round = 0; round < ROUNDS; round++) {
        tick(10000);
        for (int i = 0; i < ASKED; i++)
            ask_for("often");
        for (int i = 1; i < ASKED; i++) {
            snprintf(id, sizeof(id), "r%d-%d", round, i);
            ask_for(id);
        }
    }
    begin();
    put("often", "");
    for (int i = 1; i < ASKED; i++) {
        snprintf(id, sizeof(id), "r%d-%d", ROUNDS - 1, i);
        put(id, "");
    }
    assert_seen("load", KEPT);
    assert_seen("load often", 1);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
