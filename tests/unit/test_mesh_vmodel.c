/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vmodels (rules V): set and delete orders, promotion by the leader, calls that resolve them; then
 * random orders, with references counted after each.
 */
#include "../random.h"
#include "mesh_rig.h"

static void
call_vmodel(uint32_t call, const char *vmodel)
{
    begin();
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = call,
                                      .vmodel = vmodel,
                                      .balance = MESH_BALANCE_CALLER,
                                      .deadline_ms = now_ms + MINUTE}});
}

static void
call_model(uint32_t call, const char *model)
{
    begin();
    call_as(call, model, MESH_HOP_ENTRY);
}

static void
check_served(uint32_t call, const char *model)
{
    char line[60];
    snprintf(line, sizeof(line), "serve %u %s", call, model);
    assert_seen("serve", 1);
    assert_seen(line, 1);
    end_call(call, MESH_END_OK, 0);
}

static void
check_vmodel(const char *id, const char *active, const char *target)
{
    assert_string_equal(vmodel_at(id)->active, active);
    assert_string_equal(vmodel_at(id)->target, target);
}

TEST_CASE(test_a_new_vmodel)
{
    const struct rig_reply *reply = order(SET("v", "a", .owner = "me"));
    assert_int_equal(reply->outcome, MESH_OUTCOME_OK);
    assert_int_equal(reply->vmodel, MESH_VMODEL_DEFINED);
    assert_int_equal(reply->active_state, MESH_MODEL_NOT_LOADED);
    assert_string_equal(reply->owner, "me");
    check_vmodel("v", "a", "a");
    assert_int_equal(model_at("a")->references, 1);
    assert_int_equal(txns, 1);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK); /* the same again */
    assert_int_equal(txns, 0);
    assert_int_equal(model_at("a")->references, 1);
    reply = order(SET("w", "m", .type = "t", .auto_delete = true, .load_now = true, .sync = true));
    assert_int_equal(reply->outcome, MESH_OUTCOME_OK);
    assert_int_equal(reply->active_state, MESH_MODEL_LOADED);
    assert_true(model_at("m")->auto_delete);
    assert_int_equal(model_at("m")->references, 1);
    assert_int_equal(outcome(SET("x", "m", .type = "t")), MESH_OUTCOME_OK);
    assert_int_equal(model_at("m")->references, 2);
    reply = order(SET("y", "n", .type = "t")); /* whichever record is seen first */
    assert_int_equal(reply->active_state, MESH_MODEL_NOT_LOADED);
}

TEST_CASE(test_set_refuses)
{
    assert_int_equal(outcome(SET("v", "nobody")), MESH_OUTCOME_NO_MODEL);
    assert_int_equal(outcome(SET("v", "a", .type = "u")), MESH_OUTCOME_DIFFERS);
    assert_int_equal(outcome(SET("v", "a", .update_only = true)), MESH_OUTCOME_NO_VMODEL);
    assert_int_equal(outcome(SET("v", "a", .expected = "b")), MESH_OUTCOME_NO_VMODEL);
    assert_int_equal(txns, 0);
    assert_int_equal(outcome(SET("v", "a", .expected = "a", .owner = "me")), MESH_OUTCOME_OK);
    const struct rig_reply *reply = order(SET("v", "b", .owner = "you"));
    assert_int_equal(reply->outcome, MESH_OUTCOME_OTHER_OWNER);
    assert_string_equal(reply->owner, "me");
    reply = order(SET("v", "b", .expected = "c"));
    assert_int_equal(reply->outcome, MESH_OUTCOME_UNEXPECTED);
    assert_string_equal(reply->target, "a");
    assert_int_equal(outcome(SET("v", "a", .expected = "c")), MESH_OUTCOME_OK); /* has it already */
    assert_int_equal(outcome(SET("v", "b", .expected = "a", .update_only = true)), MESH_OUTCOME_OK);
    check_vmodel("v", "b", "b"); /* a was not loaded */
}

/* V2 */
TEST_CASE(test_loaded_active_model_stays)
{
    instance("other", 900);
    add_place("a", "other", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    const struct rig_reply *reply = order(SET("v", "b"));
    assert_int_equal(reply->vmodel, MESH_VMODEL_TRANSITIONING);
    assert_int_equal(reply->target_state, MESH_MODEL_LOADING);
    check_vmodel("v", "a", "b");
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    assert_int_equal(txns, 0);
    assert_int_equal(outcome(SET("v", "c")), MESH_OUTCOME_OK); /* another target */
    check_vmodel("v", "a", "c");
    check_references();
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK); /* and back */
    check_vmodel("v", "a", "a");
    check_references();
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b", .force = true)), MESH_OUTCOME_OK);
    check_vmodel("v", "b", "b");
    check_references();
    assert_int_equal(seen("load") > 0, true); /* as the one that it comes after was */
    add_place("c", "other", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "c")), MESH_OUTCOME_OK); /* it is loaded as widely already */
    check_vmodel("v", "c", "c");
}

/* V1: a transaction also compares the records that it does not write. */
TEST_CASE(test_unwritten_records_are_compared)
{
    instance("other", 900);
    add_place("a", "other", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    const struct rig_model b = *model_at("b");
    model_at("b")->revision = 0; /* somebody has deleted it, against the rules, and unseen */
    revision++;
    assert_int_equal(outcome(SET("v", "b", .force = true)), MESH_OUTCOME_NO_MODEL);
    check_vmodel("v", "a", "b");
    *model_at("b") = b;
}

/* V1, V5: a model with auto_delete goes with its last reference. */
TEST_CASE(test_auto_delete)
{
    const struct mesh_order first = SET("v", "m", .type = "t", .auto_delete = true);
    assert_int_equal(outcome(first), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("w", "m")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(model_at("m")->references, 1);
    assert_int_equal(outcome(SET("w", "a")), MESH_OUTCOME_OK);
    assert_int_equal(model_at("m")->revision, 0);
    assert_int_equal(outcome(SET("w", "n", .type = "t", .auto_delete = true)), MESH_OUTCOME_OK);
    assert_int_equal(
        outcome((struct mesh_order){.kind = MESH_DELETE_VMODEL, .vmodel = "w", .owner = "me"}),
        MESH_OUTCOME_OK);
    assert_int_not_equal(vmodel_at("w")->revision, 0); /* it is not theirs */
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_DELETE_VMODEL, .vmodel = "w"}),
                     MESH_OUTCOME_OK);
    assert_int_equal(vmodel_at("w")->revision, 0);
    assert_int_equal(model_at("n")->revision, 0);
    assert_int_equal(model_at("a")->references, 1); /* v's */
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_DELETE_VMODEL, .vmodel = "w"}),
                     MESH_OUTCOME_OK);
    assert_int_equal(order((struct mesh_order){.kind = MESH_VMODEL_STATUS, .vmodel = "w"})->vmodel,
                     MESH_VMODEL_NOT_FOUND);
    assert_int_equal(order((struct mesh_order){.kind = MESH_VMODEL_STATUS, .vmodel = "v"})->vmodel,
                     MESH_VMODEL_DEFINED);
    assert_string_equal(replies[0].active, "a");
}

/* V3, V4: the active model serves until the target is loaded as widely. */
TEST_CASE(test_promotion)
{
    lead(true);
    instance("x", 900);
    instance("y", 900);
    place("a", "x", MESH_PLACE_LOADED, now_ms);
    add_place("a", "y", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    prompt = false;
    begin();
    assert_false(order(SET("v", "b", .sync = true))->came);
    check_vmodel("v", "a", "b");
    assert_true(seen("ensure") + seen("size") >= 1);
    add_place("b", "x", MESH_PLACE_LOADED);
    check_vmodel("v", "a", "b"); /* one of two */
    add_place("b", "y", MESH_PLACE_LOADING);
    check_vmodel("v", "a", "b");
    assert_false(replies[0].came);
    add_place("b", "y", MESH_PLACE_LOADED);
    check_vmodel("v", "b", "b");
    assert_int_equal(replies[0].vmodel, MESH_VMODEL_DEFINED);
    assert_int_equal(model_at("a")->references, 0);
    assert_int_equal(model_at("b")->references, 1);
}

TEST_CASE(test_only_the_leader_promotes)
{
    instance("x", 900);
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    add_place("b", "x", MESH_PLACE_LOADED);
    pass(1000);
    check_vmodel("v", "a", "b");
    lead(true);
    network = NETWORK_LOST;
    pass(1000);
    check_vmodel("v", "a", "b");
    network = NETWORK_OK;
    place("b", "x", MESH_PLACE_LOADING, now_ms); /* it has gone meanwhile, and is not seen yet */
    pass(1000);
    check_vmodel("v", "a", "b");
    add_place("b", "x", MESH_PLACE_LOADED);
    check_vmodel("v", "b", "b");
}

/* V4: copies on dead nodes do not count. */
TEST_CASE(test_promotion_counts_living_copies)
{
    lead(true);
    instance("x", 900);
    instance("y", 900);
    drain();
    step((struct mesh_event){
        .kind = MESH_INSTANCE_PUT,
        .instance = {
            .id = "self", .labels = "", .session = 5, .revision = ++revision, .draining = true}});
    place("a", "x", MESH_PLACE_LOADED, now_ms);
    place("a", "self", MESH_PLACE_LOADED, now_ms);
    add_place("a", "y", MESH_PLACE_LOADED);
    add_place("b", "dead", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    add_place("b", "x", MESH_PLACE_LOADED);
    check_vmodel("v", "a", "b");
    instance_gone("y");
    pass(1000);
    check_vmodel("v", "b", "b");
}

/* W1 */
static void
is_emptied(bool leads)
{
    lead(true);
    instance("x", 900);
    drain();
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a", .owner = "me")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    memset(models, 0, sizeof(models));
    memset(vmodels, 0, sizeof(vmodels));
    revision = 3;
    begin();
    step((struct mesh_event){.kind = MESH_EMPTIED});
    set_session(5);
    instance("self", 900);
    instance("x", 900);
    mirror_is_whole();
    lead(leads);
    assert_string_equal(mesh_resolve(mesh, "v"), "a");
    assert_false(order(SET("v", "c"))->came); /* not before that */
}

/* The leader rewrites the records that it knows. */
TEST_CASE(test_an_emptied_etcd)
{
    is_emptied(true);
    for (int i = 0; i < 12; i++)
        pass(1000);
    assert_string_equal(vmodel_at("v")->owner, "me");
    assert_int_equal(replies[0].outcome, MESH_OUTCOME_OK);
    check_vmodel("v", "a", "c");
    check_references();
}

/* The other nodes rewrite records that the leader does not know. */
TEST_CASE(test_emptied_etcd_and_a_leader_without_records)
{
    is_emptied(false);
    for (int i = 0; i < 19; i++)
        pass(1000);
    assert_int_equal(vmodel_at("v")->revision, 0);
    for (int i = 0; i < 4; i++)
        pass(1000);
    assert_string_equal(vmodel_at("v")->owner, "me");
    assert_string_equal(vmodel_at("v")->active, "a");
    assert_string_equal(vmodel_at("v")->target, "c"); /* by the order that waited */
    check_references();
}

/* An order waits until all records that it may write are back. */
TEST_CASE(test_order_waits_for_records_not_yet_back)
{
    const struct mesh_order set = SET("v", "m", .type = "t", .auto_delete = true);
    assert_int_equal(outcome(set), MESH_OUTCOME_OK);
    memset(models, 0, sizeof(models));
    revision = 3;
    step((struct mesh_event){.kind = MESH_EMPTIED});
    set_session(5);
    instance("self", 900);
    mirror_is_whole();
    vmodel_at("v")->revision = ++revision; /* somebody has written it, and has yet to write m */
    notify_vmodel("v");
    assert_false(order((struct mesh_order){.kind = MESH_DELETE_VMODEL, .vmodel = "v"})->came);
    for (int i = 0; i < 22; i++)
        pass(1000);
    assert_int_equal(replies[0].outcome, MESH_OUTCOME_OK);
    assert_true(replies[0].came);
    assert_int_equal(vmodel_at("v")->revision, 0);
    assert_int_equal(model_at("m")->revision, 0);
}

/* V6 */
TEST_CASE(test_failed_target)
{
    lead(true);
    instance("x", 900);
    drain();
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_false(order(SET("v", "b", .sync = true))->came);
    place("b", "p", MESH_PLACE_FAILED, now_ms);
    place("b", "q", MESH_PLACE_FAILED, now_ms);
    add_place("b", "r", MESH_PLACE_FAILED);
    assert_true(vmodel_at("v")->failed);
    assert_int_equal(replies[0].vmodel, MESH_VMODEL_FAILED);
    assert_int_equal(replies[0].target_state, MESH_MODEL_FAILED);
    check_vmodel("v", "a", "b");
    now_ms += HOUR;
    add_place("a", "x", MESH_PLACE_LOADED);
    begin();
    pass(1000); /* they count no more */
    assert_false(vmodel_at("v")->failed);
    pass(10000);
    assert_true(seen("ensure") >= 1);
    add_place("b", "x", MESH_PLACE_LOADED);
    check_vmodel("v", "b", "b");
}

/* ---- calls for vmodels ---- */

TEST_CASE(test_calls_resolve)
{
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    assert_string_equal(mesh_resolve(mesh, "v"), "a");
    assert_null(mesh_resolve(mesh, "w"));
    call_vmodel(1, "v");
    check_served(1, "a");
    call_vmodel(1, "w");
    assert_seen("answer 1 not-found", 1);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    check_vmodel("v", "a", "b");
    call_vmodel(1, "v");
    check_served(1, "a");
    model_at("a")->revision = 0; /* V7: its record is gone */
    model_at("a")->references = 0;
    revision++;
    notify_model("a");
    call_vmodel(1, "v"); /* it waits for the leader; more may have changed */
    assert_int_equal(line_count, 0);
    lead(true);
    pass(1000);
    check_vmodel("v", "b", "b");
    check_served(1, "b");
}

/* Every node that call 1 is sent to says that the record has gone. */
static void
all_say_gone(void)
{
    for (int i = 0; i < 100 && seen("forward") > 0; i++) {
        begin();
        end_call(1, MESH_END_NOT_FOUND, 0);
    }
}

/* V8: another node has seen the switch, and this one has not. */
TEST_CASE(test_call_meets_an_unseen_switch)
{
    instance("x", 900);
    const struct mesh_order first = SET("v", "m", .type = "t", .auto_delete = true);
    assert_int_equal(outcome(first), MESH_OUTCOME_OK);
    add_place("m", "x", MESH_PLACE_LOADED);
    instance("self", 0);
    drain(); /* so it cannot find out by a claim */
    call_vmodel(1, "v");
    assert_seen("forward 1 m x", 1);
    all_say_gone();
    assert_seen("answer", 0);
    memset(model_at("m"), 0, sizeof(struct rig_model));
    struct rig_vmodel *v = vmodel_at("v");
    set_text(v->active, "a");
    set_text(v->target, "a");
    v->revision = ++revision;
    model_at("a")->references++;
    place("a", "x", MESH_PLACE_LOADED, now_ms);
    notify_model("a");
    begin();
    notify_vmodel("v");
    assert_seen("forward 1 a x", 1);
    end_call(1, MESH_END_OK, 0);
}

/* V8: a call tries the target last, and its wait is bounded. */
TEST_CASE(test_target_is_the_last_resort)
{
    instance("x", 900);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    add_place("b", "x", MESH_PLACE_LOADED);
    instance("self", 0);
    drain();
    call_vmodel(1, "v");
    assert_seen("forward 1 a", 1);
    for (int i = 0; i < 10; i++) {
        all_say_gone();
        assert_int_equal(line_count, 0);
        pass(1000);
        assert_seen("forward 1 a", 1); /* it may have been wrong */
    }
    while (seen("forward 1 a") > 0) {
        begin();
        end_call(1, MESH_END_NOT_FOUND, 0);
    }
    assert_seen("forward 1 b", 1);
    all_say_gone();
    assert_seen("answer 1 unavailable", 1); /* R18 */
    call_vmodel(1, "v");                    /* cancelled while it waits */
    all_say_gone();
    cancel(1);
    begin();
    pass(1000);
    assert_int_equal(line_count, 0);
}

/* Another node registers the model; this node does not see it yet. */
static void
register_unseen(const char *id)
{
    struct rig_model *model = model_at(id);
    set_text(model->type, "t");
    model->revision = model->create_revision = ++revision;
}

/* R13 */
TEST_CASE(test_unknown_names_are_asked_for)
{
    call_model(1, "nobody");
    assert_int_equal(compares, 1);
    assert_seen("answer 1 not-found", 1);
    register_unseen("m");
    call_model(1, "m");
    check_served(1, "m");
    register_unseen("n");
    struct rig_vmodel *v = vmodel_at("v");
    set_text(v->active, "n");
    set_text(v->target, "n");
    v->revision = v->create_revision = ++revision;
    model_at("n")->references = 1;
    call_vmodel(1, "v");
    assert_seen("answer", 0); /* the vmodel is there; its model is still to come */
    notify_model("n");
    check_served(1, "n");
    network = NETWORK_LATE;
    call_vmodel(1, "w");
    cancel(1);
    call_vmodel(1, "w");
    const uint64_t txn = last_txn;
    call_model(2, "x");
    register_unseen("x");
    notify_model("x");
    network = NETWORK_OK;
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {last_txn, MESH_TXN_UNKNOWN}});
    check_served(2, "x");
    begin();
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {txn, MESH_TXN_OK}});
    assert_seen("answer 1 not-found", 1);
    set_session(0);
    call_model(1, "unknown");
    assert_seen("answer 1 not-found", 1);
}

/* R13: calls for one id share a question; a call that comes after it was sent needs another one. */
TEST_CASE(test_later_calls_need_a_later_question)
{
    network = NETWORK_LATE;
    call_model(1, "m");
    assert_int_equal(compares, 1);
    const uint64_t first = last_txn;
    call_model(2, "m");
    assert_int_equal(compares, 0);
    call_model(3, "m");
    assert_int_equal(compares, 0);
    cancel(2);
    register_unseen("m");
    network = NETWORK_OK;
    begin();
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {first, MESH_TXN_OK}});
    assert_seen("answer", 1);
    assert_seen("answer 1 not-found", 1);
    assert_int_equal(compares, 1);
    check_served(3, "m");
    network = NETWORK_APPLIED_UNKNOWN;
    call_model(1, "n"); /* an answer that does not come says nothing */
    assert_seen("answer 1 unavailable", 1);
}

/* R13: repeated calls for an unknown id do not load etcd. */
TEST_CASE(test_repeated_unknown_id_spares_etcd)
{
    uint32_t asked = 0;
    for (int i = 0; i < 20; i++) {
        call_model(1, "nobody");
        assert_seen("answer 1 not-found", 1);
        asked += compares;
    }
    assert_int_equal(asked, 8);
    call_model(1, "somebody");
    assert_int_equal(compares, 1);
    pass(1000);
    call_model(1, "nobody");
    assert_int_equal(compares, 1);
}

/* R13 for vmodels: without a session the question fails; no model id is freed. */
TEST_CASE(test_unknown_vmodel_without_session)
{
    network = NETWORK_LATE;
    call_vmodel(1, "w");
    const uint64_t first = last_txn;
    call_vmodel(2, "w");
    set_session(0);
    begin();
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {first, MESH_TXN_OK}});
    assert_seen("answer", 2);
    assert_seen("answer 1 not-found", 1);
    assert_seen("answer 2 unavailable", 1); /* it came later */
    pass(1000);
}

static void
check_hop(uint64_t create_revision, const char *answer)
{
    begin();
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = 1,
                                      .model = "unknown",
                                      .hop = MESH_HOP_HIT,
                                      .deadline_ms = now_ms + 1000,
                                      .create_revision = create_revision}});
    assert_seen(answer, 1);
}

/* V8 at the receiver: a record that has not arrived yet is not reported as deleted. */
TEST_CASE(test_hop_for_an_unknown_record)
{
    const uint64_t whole = revision;
    step((struct mesh_event){.kind = MESH_WHOLE, .whole = {whole}});
    check_hop(whole, "answer 1 not-found");
    check_hop(whole + 1, "answer 1 not-here");
    const struct mesh_order names = SET("v", "unknown");
    network = NETWORK_LATE;
    assert_false(order(names)->came); /* now there is a number for it, and still no record */
    check_hop(whole, "answer 1 not-found");
    check_hop(whole + 1, "answer 1 not-here");
}

static void
odd_record(const char *active, const char *target)
{
    revision++;
    step((struct mesh_event){.kind = MESH_VMODEL_PUT,
                             .vmodel = {.id = "v",
                                        .active = active,
                                        .target = target,
                                        .create_revision = revision,
                                        .revision = revision}});
    struct rig_vmodel *vmodel = vmodel_at("v");
    set_text(vmodel->active, active);
    set_text(vmodel->target, target);
    vmodel->create_revision = vmodel->revision = revision;
}

/* Records that other programs wrote badly. */
TEST_CASE(test_odd_records)
{
    odd_record(NULL, "");
    assert_null(mesh_resolve(mesh, "v"));
    call_vmodel(1, "v");
    assert_seen("answer 1 not-found", 1);
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    check_vmodel("v", "a", "a");
    check_references();
    lead(true);
    odd_record("", "b"); /* and nobody has counted that */
    model_at("a")->references = 0;
    model_at("b")->references = 1;
    model_at("a")->revision = model_at("b")->revision = ++revision;
    notify_model("a");
    notify_model("b");
    pass(1000);
    check_vmodel("v", "b", "b");
    check_references();
    odd_record("nobody", "nobody");
    call_vmodel(1, "v");
    assert_int_equal(line_count, 0);
    for (int i = 0; i < 10; i++)
        pass(1000);
    assert_seen("answer 1 not-found", 1);
    odd_record("nobody", "no-one");
    pass(1000);
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_DELETE_VMODEL, .vmodel = "v"}),
                     MESH_OUTCOME_OK);
    model_at("b")->references = 0; /* the odd ones never said where it went */
}

/* T6 for vmodels. */
TEST_CASE(test_deleted_vmodel_stays_deleted)
{
    assert_int_equal(outcome(SET("v", "a")), MESH_OUTCOME_OK);
    const struct rig_vmodel before = *vmodel_at("v");
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_DELETE_VMODEL, .vmodel = "v"}),
                     MESH_OUTCOME_OK);
    *vmodel_at("v") = before;
    notify_vmodel("v"); /* a put that was on its way */
    vmodel_at("v")->revision = 0;
    assert_null(mesh_resolve(mesh, "v"));
    mirror_is_whole();
    for (int i = 0; i < 100; i++) { /* there is room for twenty */
        char id[TEXT];
        snprintf(id, sizeof(id), "v%d", i);
        revision++;
        step((struct mesh_event){.kind = MESH_VMODEL_PUT,
                                 .vmodel = {.id = id,
                                            .active = "nobody",
                                            .target = "no-one",
                                            .create_revision = revision,
                                            .revision = revision}});
        assert_string_equal(mesh_resolve(mesh, id), "nobody");
        revision++;
        step((struct mesh_event){.kind = MESH_VMODEL_GONE, .gone = {id, revision}});
        mirror_is_whole();
    }
}

/* I14: references stay exact under any orders and lost answers. */
TEST_CASE(test_references_under_random_orders)
{
    static const char *const NAMES[] = {"a", "b", "c", "d", "e", "f"};
    static const char *const VNAMES[] = {"v", "w", "x"};
    uint64_t random = 7;
    lead(true);
    instance("other", 900);
    for (int i = 0; i < 5000; i++) {
        const char *model = NAMES[random_draw(&random) % 6];
        const char *vmodel = VNAMES[random_draw(&random) % 3];
        uint64_t what = random_draw(&random) % 10;
        network = random_draw(&random) % 8 == 0 ? NETWORK_APPLIED_UNKNOWN : NETWORK_OK;
        if (what == 0)
            (void)order((struct mesh_order){.kind = MESH_DELETE_VMODEL, .vmodel = vmodel});
        else if (what == 1)
            (void)order((struct mesh_order){.kind = MESH_UNREGISTER, .model = model});
        else if (what == 2 && model_at(model)->revision != 0 &&
                 model_at(model)->place_count < PLACES) {
            begin();
            add_place(model, "other", MESH_PLACE_LOADED);
        } else
            (void)order(SET(vmodel, model, .type = "t", .path = "p",
                            .auto_delete = random_draw(&random) % 2 == 0,
                            .force = random_draw(&random) % 4 == 0));
        check_references();
        if (network == NETWORK_APPLIED_UNKNOWN)
            step((struct mesh_event){.kind = MESH_ORDER_CANCELLED, .order = {.order = 0}});
        network = NETWORK_OK;
        for (int m = 0; m < 6; m++)
            notify_model(NAMES[m]);
        for (int v = 0; v < 3; v++)
            notify_vmodel(VNAMES[v]);
        begin();
        pass(1000);
        mirror_is_whole();
        check_references();
    }
}

TEST_MAIN(.setup = fresh_with_models, .teardown = drop)
