/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders that name a model (rules O): register, unregister, status and load, also with a late
 * mirror, with lost transactions and without etcd.
 */
#include "mesh_rig.h"

#define NO_LABELS "There are no running instances that meet the label requirements of type "

TEST_CASE(test_registering)
{
    const struct rig_reply *reply = order(REGISTER("m", "t", .path = "p", .key = "k"));
    assert_true(reply->came);
    assert_int_equal(reply->model, MESH_MODEL_NOT_LOADED);
    assert_int_equal(txns, 1);
    const struct rig_model *m = model_at("m");
    assert_int_equal(m->used_ms, WALL + now_ms - 6 * HOUR);
    assert_string_equal(m->key, "k");
    assert_false(m->auto_delete);
    assert_int_equal(outcome(REGISTER("m", "t", .path = "p", .key = "k")), MESH_OUTCOME_OK);
    assert_int_equal(txns, 0);
    assert_int_equal(compares, 1); /* it may have gone, unseen */
    assert_int_equal(outcome(REGISTER("m", "u", .path = "p", .key = "k")), MESH_OUTCOME_DIFFERS);
    assert_int_equal(outcome(REGISTER("m", "t", .path = "q", .key = "k")), MESH_OUTCOME_DIFFERS);
    assert_int_equal(outcome(REGISTER("m", "t", .path = "p")), MESH_OUTCOME_DIFFERS);
    assert_int_equal(txns, 0);
    assert_int_equal(outcome(REGISTER("a", "t", .path = "p", .key = "")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(REGISTER("a", "t", .path = "p", .used_ms = WALL)), MESH_OUTCOME_OK);
    assert_int_equal(txns, 1);
    assert_int_equal(model_at("a")->used_ms, WALL);
    assert_int_equal(outcome(REGISTER("n", "t", .used_ms = WALL + HOUR)), MESH_OUTCOME_OK);
    assert_int_equal(model_at("n")->used_ms, WALL + now_ms); /* nobody knows the future */
    now_ms += HOUR;
    assert_int_equal(outcome(REGISTER("m", "t", .path = "p", .key = "k")), MESH_OUTCOME_OK);
    assert_int_equal(txns, 0); /* an hour is not worth a write */
    now_ms++;
    assert_int_equal(outcome(REGISTER("m", "t", .path = "p", .key = "k")), MESH_OUTCOME_OK);
    assert_int_equal(txns, 1);
}

TEST_CASE(test_unregistering)
{
    const struct mesh_order gone = {.kind = MESH_UNREGISTER, .model = "nobody"};
    assert_int_equal(outcome(gone), MESH_OUTCOME_OK);
    assert_int_equal(txns, 0);
    assert_int_equal(compares, 1);
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_UNREGISTER, .model = "a"}),
                     MESH_OUTCOME_OK);
    assert_int_equal(model_at("a")->revision, 0);
    assert_int_equal(outcome(SET("v", "b")), MESH_OUTCOME_OK);
    const struct mesh_order b = {.kind = MESH_UNREGISTER, .model = "b"};
    assert_int_equal(outcome(b), MESH_OUTCOME_REFERENCED);
    assert_int_equal(txns, 0);
}

/* O1: the mirror is late; what etcd compares is not. */
TEST_CASE(test_orders_with_a_late_mirror)
{
    struct rig_model *m = model_at("m"); /* registered elsewhere, and not seen yet */
    set_text(m->type, "t");
    m->revision = m->create_revision = ++revision;
    assert_int_equal(outcome(REGISTER("m", "u")), MESH_OUTCOME_DIFFERS);
    m = model_at("n");
    set_text(m->type, "t");
    m->revision = m->create_revision = ++revision;
    assert_int_equal(outcome(SET("v", "n")), MESH_OUTCOME_OK);
    struct rig_model *o = model_at("o");
    set_text(o->type, "t");
    o->revision = o->create_revision = ++revision;
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_UNREGISTER, .model = "o"}),
                     MESH_OUTCOME_OK);
    assert_int_equal(o->revision, 0);
    model_at("b")->revision = 0; /* unregistered elsewhere */
    revision++;
    const struct mesh_order ensures = {.kind = MESH_ENSURE_LOADED, .model = "nobody"};
    assert_int_equal(outcome(ensures), MESH_OUTCOME_NO_MODEL);
    assert_int_equal(outcome(REGISTER("b", "t", .path = "p")), MESH_OUTCOME_OK);
    assert_int_not_equal(model_at("b")->revision, 0);
    set_text(vmodel_at("v")->owner, "other"); /* set elsewhere */
    vmodel_at("v")->revision = ++revision;
    assert_int_equal(outcome(SET("v", "a", .owner = "other")), MESH_OUTCOME_OK);
}

/* T3 to T5 for orders. */
TEST_CASE(test_lost_and_late_answers)
{
    network = NETWORK_APPLIED_UNKNOWN;
    assert_false(order(REGISTER("m", "t"))->came);
    network = NETWORK_OK;
    notify_model("m"); /* the watch shows it */
    assert_int_equal(replies[0].outcome, MESH_OUTCOME_OK);
    assert_int_equal(txns, 1);
    network = NETWORK_LOST;
    assert_false(order(REGISTER("n", "t"))->came);
    pass(999);
    assert_int_equal(txns, 1);
    pass(1);
    assert_int_equal(txns, 2); /* the same again */
    network = NETWORK_OK;
    pass(1000);
    assert_true(replies[0].came);
    network = NETWORK_LATE;
    assert_false(order(SET("v", "a"))->came);
    notify_model("a"); /* one of two records; the other is still to come */
    notify_vmodel("v");
    assert_int_equal(replies[0].outcome, MESH_OUTCOME_OK);
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {last_txn, MESH_TXN_OK}});
    assert_int_equal(model_at("a")->references, 1);
}

TEST_CASE(test_orders_without_etcd)
{
    set_session(0);
    assert_true(order((struct mesh_order){.kind = MESH_MODEL_STATUS, .model = "x"})->came);
    assert_int_equal(replies[0].model, MESH_MODEL_NOT_FOUND);
    assert_false(order(REGISTER("m", "t"))->came);
    order_more((struct mesh_order){.order = 1, .kind = MESH_UNREGISTER, .model = "a"});
    step((struct mesh_event){.kind = MESH_ORDER_CANCELLED, .order = {.order = 1}});
    pass(30000);
    assert_false(replies[0].came);
    pass(1);
    assert_int_equal(replies[0].outcome, MESH_OUTCOME_UNAVAILABLE);
    assert_false(replies[1].came);
    assert_false(order(REGISTER("m", "t"))->came);
    set_session(5);
    pass(1000);
    assert_int_equal(replies[0].outcome, MESH_OUTCOME_OK);
}

TEST_CASE(test_invalid_orders_are_refused)
{
    char long_id[MESH_ID_BYTES_MAX + 2];
    memset(long_id, 'x', sizeof(long_id) - 1);
    long_id[sizeof(long_id) - 1] = '\0';
    assert_int_equal(outcome(REGISTER("", "t")), MESH_OUTCOME_INVALID);
    assert_int_equal(outcome(REGISTER("m", NULL)), MESH_OUTCOME_INVALID);
    assert_int_equal(outcome(REGISTER(long_id, "t")), MESH_OUTCOME_INVALID);
    assert_int_equal(outcome(SET("", "a")), MESH_OUTCOME_INVALID);
    assert_int_equal(outcome(SET("v", NULL)), MESH_OUTCOME_INVALID);
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_DELETE_VMODEL}),
                     MESH_OUTCOME_INVALID);
}

TEST_CASE_WITH(test_a_full_registry, fresh, drop)
{
    char id[TEXT];
    mesh_destroy(mesh);
    start((struct mesh_config){.models_max = 30});
    for (int i = 0; i < 30; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        put(id, "");
    }
    assert_int_equal(outcome(REGISTER("m", "t")), MESH_OUTCOME_FULL);
    assert_int_equal(outcome(SET("v", "m")), MESH_OUTCOME_FULL);
}

TEST_CASE(test_sync_order_waits_for_the_load)
{
    const struct mesh_order waits = {
        .order = 1, .kind = MESH_ENSURE_LOADED, .model = "m", .sync = true};
    prompt = false;
    assert_int_equal(order(REGISTER("m", "t", .load_now = true))->model, MESH_MODEL_LOADING);
    assert_int_equal(model_at("m")->used_ms, WALL + now_ms - HOUR);
    assert_false(order(waits)->came);
    runtime_ends(MESH_SIZE_PREDICTED, "m");
    order_more((struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "m"});
    assert_int_equal(replies[0].model, MESH_MODEL_LOADING);
    assert_false(replies[1].came);
    runtime_ends(MESH_LOAD_ENDED, "m");
    assert_int_equal(replies[1].model, MESH_MODEL_LOADED);
    prompt = true;
    const struct rig_reply *reply = order(REGISTER("n", "t", .load_now = true, .sync = true));
    assert_int_equal(reply->model, MESH_MODEL_LOADED);
    assert_int_equal(reply->copies, 1);
}

TEST_CASE(test_failed_loads_are_reported)
{
    load_fails = true;
    const struct rig_reply *reply = order(REGISTER("m", "t", .load_now = true, .sync = true));
    assert_true(reply->came);
    assert_int_equal(reply->outcome, MESH_OUTCOME_OK);
    assert_int_equal(reply->model, MESH_MODEL_FAILED);
    assert_int_equal(reply->copies, 1);
    assert_string_equal(reply->first, "self");
    assert_string_not_equal(reply->error, "");
    for (int i = 0; i < 3; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "x%d", i);
        place("a", id, MESH_PLACE_FAILED, now_ms);
    }
    notify_model("a");
    reply = order((struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "a", .sync = true});
    assert_int_equal(reply->model, MESH_MODEL_FAILED);
    assert_int_equal(reply->copies, 3);
    assert_seen("load", 0);
}

/* The other node does not react: the request is repeated twice, then the order fails. */
TEST_CASE(test_load_request_is_repeated_then_given_up)
{
    instance("self", 0);
    drain();
    instance("other", 900);
    assert_false(
        order((struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "a", .sync = true})->came);
    assert_seen("ensure a other", 1);
    for (int i = 0; i < 14; i++) {
        pass(1000);
        assert_false(replies[0].came);
    }
    assert_seen("ensure", 3);
    pass(1000);
    assert_int_equal(replies[0].model, MESH_MODEL_FAILED);
    assert_string_not_equal(replies[0].error, "");
    assert_false(
        order((struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "a", .sync = true})->came);
    pass(60000);
    assert_int_equal(replies[0].outcome, MESH_OUTCOME_DEADLINE);
}

/* Ten models fill the node. */
static void
fill(void)
{
    char id[TEXT];
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = UINT64_C(10) * UNIT,
                                         .default_bytes = UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 9000}});
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof(id), "x%d", i);
        assert_int_equal(order(REGISTER(id, "t", .load_now = true, .sync = true))->model,
                         MESH_MODEL_LOADED);
        load_ms = 0;
    }
}

static void
use_all(void)
{
    char id[TEXT] = "a";
    for (int i = 0; i <= 10; i++) {
        step((struct mesh_event){.kind = MESH_USED,
                                 .used = {.model = id, .count = 1, .used_ms = WALL + now_ms}});
        snprintf(id, sizeof(id), "x%d", i);
    }
}

/* Controllers parse this text; by the labels at its end they recognise a type without a runtime. */
TEST_CASE(test_no_instance_meets_the_labels)
{
    static const char *const both[] = {"mt:onnx", "pv:v2"}, *const none[] = {"_no_runtime"};
    const struct mesh_type_rule rules[] = {
        {.type = "t", .required = both, .required_count = 2},
        {.type = "_default", .required = none, .required_count = 1}};
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = rules, .rule_count = 2}});
    const struct rig_reply *reply = order(REGISTER("m", "t", .load_now = true, .sync = true));
    assert_int_equal(reply->model, MESH_MODEL_FAILED);
    assert_string_equal(reply->error, NO_LABELS "t: [mt:onnx, pv:v2]");
    reply = order(REGISTER("n", "u", .load_now = true));
    assert_int_equal(reply->model, MESH_MODEL_FAILED);
    assert_string_equal(reply->error, NO_LABELS "u: [_no_runtime]");
}

/* R14 for orders: a sync order waits for room, others fail at once. */
TEST_CASE(test_sync_order_waits_for_room)
{
    const struct mesh_order waits = {.kind = MESH_ENSURE_LOADED, .model = "a", .sync = true};
    const struct rig_reply *reply;
    load_ms = 20000; /* on average 2 s: what was called is protected for one */
    fill();
    use_all();
    reply = order((struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "b"});
    assert_int_equal(reply->model, MESH_MODEL_FAILED);
    assert_memory_equal(reply->error, "Cache churn", 11);
    assert_false(order(waits)->came);
    pass(500);
    assert_false(replies[0].came);
    assert_int_equal(txns, 0);
    pass(500);
    assert_int_equal(replies[0].model, MESH_MODEL_LOADED);
    const struct mesh_order also = {.kind = MESH_ENSURE_LOADED, .model = "b", .sync = true};
    prompt = false; /* nothing that is being loaded goes */
    for (uint32_t i = 0; i < 10; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "y%u", i);
        assert_int_equal(outcome(REGISTER(id, "t", .path = "p")), MESH_OUTCOME_OK);
        call_as(i, id, MESH_HOP_ENTRY);
    }
    assert_false(order(also)->came);
    for (int second = 0; second < 59; second++) {
        assert_false(replies[0].came);
        begin();
        pass(1000);
    }
    assert_int_equal(replies[0].outcome, MESH_OUTCOME_OK);
    assert_int_equal(replies[0].model, MESH_MODEL_FAILED);
    assert_memory_equal(replies[0].error, "Cache churn", 11);
}

/* E4: a sync order evicts models that were used since its own model was. */
TEST_CASE(test_sync_register_evicts_idle_models)
{
    fill();
    use_all();
    now_ms++;
    instance("broken", 900);
    const struct rig_reply *reply =
        order(REGISTER("late", "t", .path = "p", .load_now = true, .sync = true));
    assert_false(reply->came); /* it was asked for there, and fails */
    add_place("late", "broken", MESH_PLACE_FAILED);
    assert_int_equal(replies[0].model, MESH_MODEL_LOADED);
    assert_seen("unload", 1);
}

/* The node that failed to load it was the only one that may. */
TEST_CASE(test_sync_register_returns_the_failure)
{
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    tick(5000); /* it does not return */
    instance("broken", 900);
    const struct rig_reply *reply =
        order(REGISTER("late", "t", .path = "p", .load_now = true, .sync = true));
    assert_false(reply->came);
    add_place("late", "broken", MESH_PLACE_FAILED);
    if (!replies[0].came)
        pass(1000);
    assert_int_equal(replies[0].model, MESH_MODEL_FAILED);
}

TEST_CASE(test_ensure_refreshes_a_copy_elsewhere)
{
    instance("other", 900);
    add_place("a", "other", MESH_PLACE_LOADED);
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "a"}),
                     MESH_OUTCOME_OK);
    assert_seen("ensure a other", 1);
    assert_int_equal(ensure_used_ms, WALL + now_ms);
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_MODEL_STATUS, .model = "a"}),
                     MESH_OUTCOME_OK);
    assert_seen("ensure", 0); /* looking is no use */
}

/* O4 */
TEST_CASE(test_status)
{
    instance("x", 900);
    instance("y", 900);
    now_ms += 2 * HOUR;
    place("a", "x", MESH_PLACE_LOADING, now_ms - 2);
    place("a", "y", MESH_PLACE_FAILED, now_ms - 1);
    place("a", "dead", MESH_PLACE_LOADED, now_ms);
    place("a", "z", MESH_PLACE_FAILED, now_ms - HOUR);
    notify_model("a");
    const struct rig_reply *reply =
        order((struct mesh_order){.kind = MESH_MODEL_STATUS, .model = "a"});
    assert_int_equal(reply->model, MESH_MODEL_LOADING);
    assert_int_equal(reply->copies, 2); /* the living, and what failed of late */
    assert_string_equal(reply->first, "y");
    add_place("a", "x", MESH_PLACE_LOADED);
    assert_int_equal(order((struct mesh_order){.kind = MESH_MODEL_STATUS, .model = "a"})->model,
                     MESH_MODEL_LOADED);
    assert_string_equal(replies[0].first, "x");
    assert_int_equal(order((struct mesh_order){.kind = MESH_MODEL_STATUS, .model = "b"})->model,
                     MESH_MODEL_NOT_LOADED);
    add_place("b", "y", MESH_PLACE_FAILED);
    assert_int_equal(order((struct mesh_order){.kind = MESH_MODEL_STATUS, .model = "b"})->model,
                     MESH_MODEL_FAILED);
    assert_int_equal(order((struct mesh_order){.kind = MESH_MODEL_STATUS, .model = "q"})->model,
                     MESH_MODEL_NOT_FOUND);
}

TEST_MAIN(.setup = fresh_with_models, .teardown = drop)
