/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what the runner of one node does, on the real core and the real store in memory: orders
 * and calls end once in every case; the runtime is asked in time and given up in time; what the
 * registry holds beside what we know stays in it. The runtime and the callers are the test
 * (test_mesh_runner_rig.h).
 */
#include "test_mesh_runner_rig.h"

#include "mesh/edge/runner.h"
#include "mesh/store/store.h"

static int
set_up(void **state)
{
    (void)state;
    struct event_base *base = event_base_new();
    nodes_begin(base);
    return base == NULL;
}

static int
tear_down(void **state)
{
    (void)state;
    nodes_end();
    event_base_free(nodes.base);
    return 0;
}

/* ---- the usual ---- */

static void
see_here(void *context, const struct mesh_sight *sight)
{
    *(enum mesh_state *)context = sight->here;
}

static enum mesh_state
state_of(const struct node *node, const char *model)
{
    enum mesh_state state = MESH_STATE_NONE;
    (void)runner_see_model(node->runner, model, see_here, &state);
    return state;
}

TEST_CASE(a_call_loads_its_model_and_is_served)
{
    struct node *node = node_ready(0, "one");
    char by[ID_MAX];
    node_register(node, "m");
    assert_int_equal(ask_wait(node, "m", by), MESH_END_OK);
    assert_string_equal(by, "one");
    assert_int_equal(node->loads, 1);
    assert_true(node_holds(node, "m"));
    assert_int_equal(state_of(node, "m"), MESH_STATE_LOADED);
    assert_int_equal(ask_wait(node, "m", by), MESH_END_OK);
    assert_int_equal(node->loads, 1);
    struct ordered ordered;
    NODES_WAIT(node_status(node, "m", &ordered) == MESH_MODEL_LOADED); /* a write later */
    assert_int_equal(ordered.places, 1);
    assert_string_equal(ordered.place, "one");
    const struct runner_view view = node_look(node);
    assert_int_equal(view.counts.entered[RUNNER_WAITED], 1);
    assert_int_equal(view.counts.entered[RUNNER_HERE], 1);
    assert_int_equal(view.counts.tried[MESH_END_OK], 2);
    assert_int_equal(view.sums.loaded, 1);
    assert_int_equal(view.sums.models_held, 1);
    assert_true(view.reported_ms > 0 && view.revision > 0 && view.counts.txns_done >= 2);
}

static void
measure(void *context, enum runner_measure measure, uint64_t value)
{
    struct node *node = context;
    node->measured[measure]++;
    node->measured_last[measure] = value;
}

TEST_CASE(what_is_measured_is_reported)
{
    struct node *node = node_open(0, "one", (struct runner_options){.on_measure = measure});
    node_runtime_ready(node, ROOM);
    NODES_WAIT(runner_is_ready(node->runner));
    node_register(node, "m");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    for (enum runner_measure i = 0; i < RUNNER_MEASURES; i++)
        assert_int_equal(
            node->measured[i],
            i == RUNNER_PERMIT_NS || i == RUNNER_UNLOAD_NS || i == RUNNER_EVICTED_MS ? 0 : 1);
    assert_true(node->measured_last[RUNNER_WAIT_NS] >= node->measured_last[RUNNER_LOAD_NS]);
    struct ordered ordered;
    const struct mesh_order order = {.kind = MESH_UNREGISTER, .model = "m"};
    assert_int_equal(order_wait(node, &ordered, order), MESH_OUTCOME_OK);
    NODES_WAIT(node->measured[RUNNER_UNLOAD_NS] == 1);
    assert_int_equal(node->measured[RUNNER_LOADED_BYTES], 1);
    assert_int_equal(node->measured_last[RUNNER_LOADED_BYTES], MODEL_BYTES);
    assert_int_equal(node->measured[RUNNER_EVICTED_MS], 0); /* it did not make room */
    assert_int_equal(node_look(node).counts.evictions, 0);
    NODES_WAIT(node_look(node).sums.models_held == 0 && node_look(node).sums.loaded == 0);
}

TEST_CASE(what_is_to_be_done_does_not_wait_for_the_tick)
{
    struct node *node = node_open(0, "one", (struct runner_options){.tick_ms = 3600000});
    node_runtime_ready(node, ROOM);
    NODES_WAIT(runner_is_ready(node->runner) && node_look(node).instances > 0);
    node_register(node, "m");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
}

TEST_CASE(an_unregistered_model_is_unloaded)
{
    struct node *node = node_ready(0, "one");
    struct ordered ordered;
    const struct mesh_order order = {.kind = MESH_UNREGISTER, .model = "m"};
    node_register(node, "m");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    assert_int_equal(node_look(node).models, 1);
    assert_int_equal(order_wait(node, &ordered, order), MESH_OUTCOME_OK);
    NODES_WAIT(node->unloads == 1 && held_of(node, "m")->state == HELD_NOT);
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_NOT_FOUND);
    NODES_WAIT(node_look(node).models == 0);
}

static uint32_t
held_count(const struct node *node)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < MODELS_MAX; i++)
        held += node->held[i].state == HELD_LOADED || node->held[i].state == HELD_LOADING;
    return held;
}

TEST_CASE(a_node_holds_what_it_has_room_for)
{
    struct node *node = node_ready(0, "one");
    char id[ID_MAX];
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        node_register(node, id);
        struct ordered ordered;
        assert_int_equal(order_wait(node, &ordered,
                                    (struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = id}),
                         MESH_OUTCOME_OK);
        /* K3: one more while another withdraws from the registry */
        assert_in_range(held_count(node), 0, ROOM + 1);
    }
    NODES_WAIT(held_count(node) <= ROOM);
    assert_in_range(held_count(node), 1, ROOM);
    assert_int_equal(node_look(node).models, 20);
}

static void
harvest(void *context, struct mesh_runner *runner)
{
    struct node *node = context;
    node->settings = 1000; /* it was asked */
    runner_used(runner, &(struct mesh_used){.model = "m", .count = 3});
    runner_used(runner, &(struct mesh_used){.model = "nobody", .count = 3});
}

TEST_CASE(uses_are_harvested)
{
    struct runner_options options = {.runtime = {.harvest = harvest}};
    struct node *node = node_open(0, "one", options);
    node_runtime_ready(node, ROOM);
    NODES_WAIT(runner_is_ready(node->runner));
    NODES_WAIT(node->settings == 1000);
}

/* ---- calls, in all states ---- */

TEST_CASE(calls_are_refused_without_registry_or_model)
{
    struct node *node = node_create(0, "one", (struct runner_options){0});
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_UNAVAILABLE);
    runner_close(node->runner);
    runner_destroy(node->runner);
    node->is_there = false;
    node = node_ready(1, "two");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_NOT_FOUND);
    const struct asker *asker = ask_of(node, "v", RUNNER_NAME_VMODEL, NODES_WAIT_S * NS_PER_S);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_NOT_FOUND);
    assert_int_equal(node_look(node).counts.entered[RUNNER_REFUSED + (int)MESH_END_NOT_FOUND], 2);
}

TEST_CASE(an_id_that_is_too_long_is_not_there)
{
    struct node *node = node_ready(0, "one");
    char id[MESH_ID_BYTES_MAX + 2] = {0};
    memset(id, 'x', MESH_ID_BYTES_MAX + 1);
    struct asker asker = {
        .node = node,
        .call = {.type = &asker_type, .model = id, .deadline_ns = clock_now_ns() + NS_PER_S}};
    uint64_t txns = node_look(node).counts.txns;
    runner_call(node->runner, &asker.call);
    assert_true(asker.over && asker.end == MESH_END_NOT_FOUND);
    asker.over = false;
    asker.call.name = RUNNER_NAME_VMODEL;
    runner_call(node->runner, &asker.call);
    assert_true(asker.over && asker.end == MESH_END_NOT_FOUND);
    assert_int_equal(node_look(node).counts.txns, txns); /* etcd is not asked */
}

TEST_CASE(too_many_calls_are_refused)
{
    struct node *node = node_open(0, "one", (struct runner_options){.core.calls_max = 2});
    node_runtime_ready(node, ROOM);
    NODES_WAIT(runner_is_ready(node->runner));
    node_register(node, "m");
    node->holds_back = true;
    const struct asker *first = ask(node, "m");
    const struct asker *second = ask(node, "m");
    const struct asker *third = ask(node, "m");
    assert_true(third->over && third->end == MESH_END_OVERLOADED);
    assert_int_equal(node_look(node).counts.refused, 1);
    node->holds_back = false;
    NODES_WAIT(first->over && second->over);
    assert_int_equal(first->end, MESH_END_OK);
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK); /* numbers are given back */
}

TEST_CASE(a_refusal_at_once_is_an_end)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    node->busy = true;
    assert_int_not_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    node->busy = false;
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    assert_int_equal(node_look(node).calls, 0);
}

TEST_CASE(a_model_that_the_runtime_forgot_is_loaded_again)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    node->vanishes = true;
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    assert_int_equal(node->loads, 2);
    assert_int_equal(node->unloads, 0);
}

TEST_CASE(a_waiting_call_is_cancelled)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    struct asker *asker = ask(node, "m");
    assert_false(asker->over);
    assert_true(runner_call_cancelled(node->runner, &asker->call));
    assert_true(runner_call_cancelled(node->runner, &asker->call)); /* nothing happens */
    assert_int_equal(node_look(node).calls, 0);
    NODES_WAIT(node_holds(node, "m")); /* for the next one */
    assert_false(asker->over);
}

TEST_CASE(a_served_call_is_left_until_it_ends)
{
    struct node *node = node_ready(0, "one");
    struct ordered ordered;
    node_register(node, "m");
    node->holds_back = true;
    struct asker *asker = ask(node, "m");
    NODES_WAIT(asker->serving);
    assert_false(runner_call_cancelled(node->runner, &asker->call));
    assert_false(runner_call_cancelled(node->runner, &asker->call));
    const struct mesh_order order = {.kind = MESH_UNREGISTER, .model = "m"};
    assert_int_equal(order_wait(node, &ordered, order), MESH_OUTCOME_OK);
    for (int i = 0; i < 50; i++)
        nodes_turn();
    assert_int_equal(node->unloads, 0); /* I4 */
    /* With any end: no caller is answered, and no further try begins. */
    asker_end(asker, &(struct runner_end){.end = MESH_END_UNREACHABLE});
    assert_false(asker->over);
    assert_int_equal(node_look(node).calls, 0);
    NODES_WAIT(node->unloads == 1);
}

TEST_CASE(a_late_end_is_left_alone)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    struct asker *asker = ask(node, "m");
    NODES_WAIT(asker->over);
    runner_try_ended(node->runner, &asker->call, asker->number,
                     &(struct runner_end){.end = MESH_END_UNREACHABLE});
    node->holds_back = true;
    struct asker *second = ask(node, "m");
    runner_try_ended(node->runner, &second->call, second->number + 1,
                     &(struct runner_end){.end = MESH_END_OK});
    assert_int_equal(node_look(node).calls, 1);
    node->holds_back = false;
    NODES_WAIT(second->over);
    assert_int_equal(second->end, MESH_END_OK);
}

TEST_CASE(a_call_without_deadline_waits)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    const struct asker *asker = ask_of(node, "m", RUNNER_NAME_MODEL, TIME_NEVER_NS);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_OK);
}

TEST_CASE(a_waiting_call_ends_at_its_deadline)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    node->silent = true;
    const struct asker *asker = ask_of(node, "m", RUNNER_NAME_MODEL, 100 * NS_PER_MS);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_DEADLINE);
}

/* ---- the runtime ---- */

TEST_CASE(a_load_that_fails_is_reported)
{
    struct node *node = node_ready(0, "one");
    char text[ID_MAX];
    node_register(node, "m");
    node->fails = "it is broken";
    enum mesh_end end = ask_wait(node, "m", text);
    assert_true(end == MESH_END_LOAD_FAILED || end == MESH_END_FAILED);
    assert_int_equal(node_look(node).counts.load_failures, 1);
    struct ordered ordered;
    NODES_WAIT(node_status(node, "m", &ordered) == MESH_MODEL_FAILED);
}

TEST_CASE(a_silent_runtime_is_given_up)
{
    struct node *node = node_open(0, "one", (struct runner_options){0});
    struct mesh_capacity capacity = node_capacity(ROOM);
    capacity.load_timeout_ms = 200;
    runner_runtime_ready(node->runner, &capacity);
    NODES_WAIT(runner_is_ready(node->runner));
    node_register(node, "m");
    node->silent = true;
    const struct asker *asker = ask(node, "m");
    NODES_WAIT(asker->over);
    assert_true(asker->end == MESH_END_LOAD_FAILED || asker->end == MESH_END_FAILED);
    assert_int_equal(node_look(node).counts.given_up, 1);
    NODES_WAIT(node->unloads == 1); /* it is to be ended, too */
    /* The late answer frees its order, and nothing else. */
    runner_load_ended(node->runner, node->unanswered[0],
                      &(struct runner_load_end){.end = MESH_LOAD_BROKE, .reason = "late"});
    assert_int_equal(node_look(node).counts.load_failures, 1);
    node->unanswered[0] = node->unanswered[--node->unanswered_count];
    assert_int_not_equal(state_of(node, "m"), MESH_STATE_LOADED);
}

TEST_CASE(a_runtime_is_lost_and_comes_back)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    runner_runtime_lost(node->runner, 0);
    assert_false(runner_is_ready(node->runner));
    memset(node->held, 0, sizeof(node->held));
    NODES_WAIT(state_of(node, "m") == MESH_STATE_NONE);
    node_runtime_ready(node, ROOM);
    NODES_WAIT(runner_is_ready(node->runner));
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    assert_int_equal(node->loads, 2);
    assert_int_equal(node->unloads, 0);
}

/* ---- the registry ---- */

/* The registry's record, by a second look at it: a write that is lost shows it. */
static struct {
    char value[1024]; /* the last model's */
    char self[1024];  /* this node's */
} seen;
static struct store_events watched;

static void
see(void *context, const struct store_record *record)
{
    if (record->table == STORE_MODELS)
        snprintf(seen.value, sizeof(seen.value), "%.*s", (int)record->value_bytes,
                 (const char *)record->value);
    if (record->table == STORE_INSTANCES)
        snprintf(seen.self, sizeof(seen.self), "%.*s", (int)record->value_bytes,
                 (const char *)record->value);
    watched.on_put(context, record);
}

/* A node whose store's puts are seen on their way. */
static struct node *
node_watched(uint32_t index, const char *id, int64_t tick_ms)
{
    struct node *node = node_create(index, id, (struct runner_options){.tick_ms = tick_ms});
    struct error error = ERROR_NONE;
    watched = runner_events(node->runner);
    struct store_events events = watched;
    events.on_put = see;
    memset(&seen, 0, sizeof(seen));
    const struct store_options store = {.instance = node->id, .events = &events};
    assert_int_equal(store_open_memory(nodes.base, &store, &node->store, &error), STATUS_OK);
    runner_start(node->runner, node->store);
    node_runtime_ready(node, ROOM);
    NODES_WAIT(runner_is_ready(node->runner) && node_look(node).instances > 0);
    return node;
}

TEST_CASE(unknown_fields_stay_in_records)
{
    struct node *node = node_watched(0, "one", 0);
    write_raw(node, STORE_MODELS, "m", "{\"type\":\"t\",\"mPath\":\"p\",\"theirs\":{\"a\":[1,2]}}");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    NODES_WAIT(strstr(seen.value, "\"loaded\"") != NULL);
    assert_non_null(strstr(seen.value, "\"theirs\":{\"a\":[1,2]}"));
    write_raw(node, STORE_MODELS, "m", "{\"type\":\"t\",\"mPath\":\"p\"}");
    NODES_WAIT(strstr(seen.value, "one") != NULL); /* written again, by us */
    assert_null(strstr(seen.value, "theirs"));
}

TEST_CASE(its_record_says_what_it_is)
{
    struct node *node = node_watched(0, "one", 3600000);
    NODES_WAIT(strstr(seen.self, "\"cap\"") != NULL);
    assert_non_null(strstr(seen.self, "\"addr\":\"127.0.0.1:1\""));
    assert_non_null(strstr(seen.self, "\"startTime\":"));
    assert_null(strstr(seen.self, "shutdown"));
    assert_null(strstr(seen.self, "\"full\":true"));
    runner_runtime_lost(node->runner, 0); /* room for nothing */
    NODES_WAIT(strstr(seen.self, "\"full\":true") != NULL);
    runner_drain(node->runner);
    NODES_WAIT(strstr(seen.self, "\"shutdown\":true") != NULL);
}

TEST_CASE(a_bad_record_is_skipped_and_counted)
{
    struct node *node = node_watched(0, "one", 0);
    write_raw(node, STORE_MODELS, "m", "{\"type\":\"t\",\"mPath\":\"p\"}");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    write_raw(node, STORE_MODELS, "m", "{\"type\":[]");
    write_raw(node, STORE_MODELS, "never", "nonsense");
    write_raw(node, STORE_VMODELS, "v", "nonsense");
    write_raw(node, STORE_CONFIG, "logger_level", "shouting");
    NODES_WAIT(node_look(node).counts.bad_records == 4);
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK); /* what was known of it stands */
    assert_int_equal(ask_wait(node, "never", NULL), MESH_END_LOAD_FAILED); /* there is something */
    write_raw(node, STORE_MODELS, "never", "{\"type\":\"t\",\"mPath\":\"p\"}");
    assert_int_equal(ask_wait(node, "never", NULL), MESH_END_OK);
    write_raw(node, STORE_MODELS, "m", NULL);
    NODES_WAIT(ask_wait(node, "m", NULL) == MESH_END_NOT_FOUND);
}

TEST_CASE(a_record_that_is_too_long_is_not_written)
{
    struct node *node = node_ready(0, "one");
    enum { BYTES = STORE_VALUE_BYTES_MAX - 8 };
    char *value = malloc(BYTES + 1);
    CHECK(value != NULL);
    memset(value, 'x', BYTES);
    static const char begin[] = "{\"type\":\"t\",\"theirs\":\"";
    memcpy(value, begin, sizeof(begin) - 1);
    memcpy(value + BYTES - 2, "\"}", 3);
    write_raw(node, STORE_MODELS, "m", value); /* no room for a place */
    free(value);
    const struct asker *waiting = ask_of(node, "m", RUNNER_NAME_MODEL, TIME_NEVER_NS);
    NODES_WAIT(node_look(node).counts.txns_lost > 0);
    const struct asker *asker = ask_of(node, "m", RUNNER_NAME_MODEL, 300 * NS_PER_MS);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_DEADLINE);
    assert_false(waiting->over);
    assert_int_equal(node->loads, 0); /* I3 */
}

TEST_CASE(nothing_is_written_without_a_session)
{
    struct node *node = node_ready(0, "one");
    const struct store_events events = runner_events(node->runner);
    node_register(node, "m");
    uint64_t session = node_look(node).session;
    events.on_session(events.context, 0);
    uint64_t txns = node_look(node).counts.txns;
    const struct asker *asker = ask(node, "m");
    for (int i = 0; i < 50; i++)
        nodes_turn();
    assert_false(asker->over);
    assert_int_equal(node->loads, 0);
    assert_int_equal(node_look(node).counts.txns, txns);
    events.on_session(events.context, session);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_OK);
}

TEST_CASE(settings_are_reported)
{
    struct node *node = node_watched(0, "one", 0);
    write_raw(node, STORE_CONFIG, "scaleup_rpm_threshold", "100");
    write_raw(node, STORE_CONFIG, "somebody_elses", "100");
    write_raw(node, STORE_CONFIG, "logger_level", "DEBUG");
    NODES_WAIT(node->settings == 1);
    write_raw(node, STORE_CONFIG, "logger_level", NULL);
    NODES_WAIT(node->settings == 2);
}

static uint32_t visited;

static void
count_model(void *context, const struct mesh_sight *sight)
{
    (void)context;
    assert_string_equal(sight->model.type, "type");
    assert_string_equal(sight->model.path, "path");
    assert_string_equal(sight->model.key, "key");
    visited++;
}

static void
count_instance(void *context, const struct mesh_instance *instance)
{
    (void)context;
    assert_string_equal(instance->id, "one");
    assert_true(instance->figures.capacity_units > 0);
    visited++;
}

TEST_CASE(it_can_be_looked_at_in_pages)
{
    struct node *node = node_ready(0, "one");
    char id[ID_MAX];
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        node_register(node, id);
    }
    visited = 0;
    uint64_t at = runner_see_models(node->runner, 0, 3, "", count_model, NULL);
    assert_int_equal(visited, 3);
    while (at != 0)
        at = runner_see_models(node->runner, at, 3, "", count_model, NULL);
    assert_int_equal(visited, 10);
    visited = 0;
    assert_int_equal(runner_visit_instances(node->runner, 0, 9, count_instance, NULL), 0);
    assert_int_equal(visited, 1);
}

/* ---- vmodels ---- */

static void
see_vmodel(void *context, const char *id, const struct mesh_vmodel_status *vmodel)
{
    (void)context;
    assert_string_equal(id, "v");
    assert_string_equal(vmodel->owner, "me");
    assert_string_equal(vmodel->active, "b");
    assert_string_equal(vmodel->target, "b");
    visited++;
}

TEST_CASE(a_vmodel_is_called_and_moved)
{
    struct node *node = node_ready(0, "one");
    struct ordered ordered;
    node_register(node, "a");
    struct mesh_order order = {.kind = MESH_SET_VMODEL, .vmodel = "v", .model = "a", .owner = "me"};
    assert_int_equal(order_wait(node, &ordered, order), MESH_OUTCOME_OK);
    const struct asker *asker = ask_of(node, "v", RUNNER_NAME_VMODEL, NODES_WAIT_S * NS_PER_S);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_OK);
    assert_string_equal(asker->answered, "a");
    order.model = "b";
    order.type = "type";
    order.path = "path";
    order.force = true;
    assert_int_equal(order_wait(node, &ordered, order), MESH_OUTCOME_OK);
    asker = ask_of(node, "v", RUNNER_NAME_VMODEL, NODES_WAIT_S * NS_PER_S);
    NODES_WAIT(asker->over);
    assert_string_equal(asker->answered, "b");
    order.owner = "another";
    assert_int_equal(order_wait(node, &ordered, order), MESH_OUTCOME_OTHER_OWNER);
    assert_int_equal(
        order_wait(node, &ordered, (struct mesh_order){.kind = MESH_UNREGISTER, .model = "b"}),
        MESH_OUTCOME_REFERENCED);
    assert_int_equal(node_look(node).vmodels, 1);
    visited = 0;
    assert_int_equal(runner_see_vmodels(node->runner, 0, 9, "", see_vmodel, NULL), 0);
    assert_int_equal(visited, 1);
}

/* ---- ends ---- */

TEST_CASE(an_order_is_cancelled)
{
    struct node *node = node_ready(0, "one");
    struct ordered ordered;
    node_register(node, "m");
    node->silent = true;
    order_give(node, &ordered,
               (struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "m", .sync = true});
    assert_false(ordered.over);
    runner_order_cancelled(node->runner, &ordered.order);
    runner_order_cancelled(node->runner, &ordered.order);
    assert_false(ordered.over);
    assert_int_equal(node_look(node).orders, 0);
}

TEST_CASE(all_that_waits_ends_with_the_runner)
{
    struct node *node = node_ready(0, "one");
    struct ordered ordered;
    node_register(node, "n");
    node->holds_back = true;
    const struct asker *served = ask(node, "n");
    NODES_WAIT(served->serving);
    node->silent = true;
    node_register(node, "m"); /* not before: it might be loaded in advance, and answered for */
    const struct asker *waits = ask(node, "m");
    order_give(node, &ordered,
               (struct mesh_order){.kind = MESH_ENSURE_LOADED, .model = "m", .sync = true});
    NODES_WAIT(node->unanswered_count > 0);
    runner_close(node->runner);
    assert_true(waits->over && waits->end == MESH_END_UNAVAILABLE);
    assert_true(ordered.over && ordered.outcome == MESH_OUTCOME_UNAVAILABLE);
    assert_false(served->over);
    const struct asker *late = ask(node, "n");
    assert_true(late->over && late->end == MESH_END_UNAVAILABLE);
    order_give(node, &ordered, (struct mesh_order){.kind = MESH_MODEL_STATUS, .model = "m"});
    assert_true(ordered.over && ordered.outcome == MESH_OUTCOME_UNAVAILABLE);
    node->holds_back = false;
    NODES_WAIT(served->over);
    assert_int_equal(served->end, MESH_END_OK);
}

TEST_CASE(a_try_that_fails_after_the_close_is_not_routed_on)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    node->holds_back = true;
    struct asker *asker = ask(node, "m");
    NODES_WAIT(asker->serving);
    runner_close(node->runner);
    asker_end(asker, &(struct runner_end){.end = MESH_END_UNREACHABLE});
    assert_true(asker->over && asker->end == MESH_END_UNAVAILABLE);
}

TEST_CASE(a_node_alone_is_drained)
{
    struct node *node = node_ready(0, "one");
    node_register(node, "m");
    assert_int_equal(ask_wait(node, "m", NULL), MESH_END_OK);
    runner_drain(node->runner);
    runner_drain(node->runner);
    assert_true(node_look(node).draining);
    NODES_WAIT(node->drained == 1); /* no node could take it */
    assert_int_equal(node->unloads, 1);
}

TEST_CASE(a_node_without_models_is_drained_at_once)
{
    struct node *node = node_ready(0, "one");
    runner_drain(node->runner);
    NODES_WAIT(node->drained == 1);
    assert_true(node_look(node).drained);
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
