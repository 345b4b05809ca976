/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what the runner of one node does with its peers: the address book, tries that are sent on
 * and come back, or are abandoned while their end is coming, figures of replies, ensures, and what
 * a peer sends here. The peer is the test; its record is reported as a store would.
 */
#include "test_mesh_runner_rig.h"

#include "mesh/edge/runner.h"
#include "mesh/store/store.h"

static struct {
    struct runner_call *call; /* of the last forward */
    struct runner_attempt attempt;
    uint32_t forwards, abandons, ensures, peers, gone;
    bool unreachable; /* nobody is there */
    bool comes;       /* the end of what is abandoned is under way */
    char address[64];
    char ensured[ID_MAX];
} there;

static enum runner_begun
forward(void *context, struct runner_call *call, const struct runner_attempt *attempt,
        struct runner_end *end)
{
    (void)context;
    there.call = call;
    there.attempt = *attempt;
    there.forwards++;
    assert_string_equal(attempt->instance, "two");
    end->end = MESH_END_UNREACHABLE;
    return there.unreachable ? RUNNER_ENDED : RUNNER_UNDER_WAY;
}

static bool
abandon(void *context, struct runner_call *call, uint32_t number)
{
    (void)context;
    assert_ptr_equal(call, there.call);
    assert_int_equal(number, there.attempt.number);
    there.abandons++;
    return !there.comes;
}

static bool
ensure(void *context, const struct mesh_ensure *what)
{
    (void)context;
    assert_string_equal(what->instance, "two");
    snprintf(there.ensured, sizeof(there.ensured), "%s", what->model);
    there.ensures++;
    return !there.unreachable;
}

static void
on_peer(void *context, const struct runner_peer *peer)
{
    (void)context;
    assert_string_equal(peer->instance, "two");
    assert_int_equal(peer->start_ms, 1000);
    snprintf(there.address, sizeof(there.address), "%s", peer->address);
    there.peers++;
}

static void
on_peer_gone(void *context, const char *instance)
{
    (void)context;
    assert_string_equal(instance, "two");
    there.gone++;
}

/* As the store would report it. */
static void
notify(const struct node *node, enum store_table table, const char *id, const char *value,
       uint64_t revision)
{
    const struct store_events events = runner_events(node->runner);
    events.on_put(events.context, &(struct store_record){.table = table,
                                                         .id = id,
                                                         .value = value,
                                                         .value_bytes = strlen(value),
                                                         .create_revision = 1000,
                                                         .revision = revision});
}

#define TWO                                                                                        \
    "{\"startTime\":1000,\"addr\":\"127.0.0.1:9\",\"lruTime\":5,\"cap\":10000,\"used\":%d,"        \
    "\"count\":1}"

static void
notify_two(const struct node *node, int used_units, uint64_t revision)
{
    char value[160];
    snprintf(value, sizeof(value), TWO, used_units);
    notify(node, STORE_INSTANCES, "two", value, revision);
}

static struct node *node;

#define AT_TWO                                                                                     \
    "{\"type\":\"t\",\"mPath\":\"p\",\"instanceIds\":{\"two\":2000},\"loaded\":{\"two\":2000}}"

static int
set_up_with(int64_t clearance_ns)
{
    struct event_base *base = event_base_new();
    nodes_begin(base);
    memset(&there, 0, sizeof(there));
    struct runner_options options = {.peers = {.forward = forward,
                                               .abandon = abandon,
                                               .ensure = ensure,
                                               .on_peer = on_peer,
                                               .on_peer_gone = on_peer_gone},
                                     .clearance_ns = clearance_ns};
    node = node_open(0, "one", options);
    node_runtime_ready(node, ROOM);
    NODES_WAIT(runner_is_ready(node->runner) && node_look(node).session != 0 &&
               node_look(node).instances > 0);
    notify_two(node, 9000, 1001);
    write_raw(node, STORE_MODELS, "m", AT_TWO);
    NODES_WAIT(node_look(node).models == 1);
    return 0;
}

static int
set_up(void **state)
{
    (void)state;
    return set_up_with(0);
}

static int
set_up_judged(void **state)
{
    (void)state;
    return set_up_with(3600 * NS_PER_S);
}

static int
set_up_late(void **state)
{
    (void)state;
    return set_up_with(1);
}

static int
tear_down(void **state)
{
    (void)state;
    nodes_end();
    event_base_free(nodes.base);
    return 0;
}

TEST_CASE(the_address_book_is_kept)
{
    assert_int_equal(there.peers, 1); /* not of this node */
    assert_string_equal(there.address, "127.0.0.1:9");
    const struct store_events events = runner_events(node->runner);
    events.on_gone(events.context, STORE_INSTANCES, "two", 1010);
    assert_int_equal(there.gone, 1);
    assert_int_equal(node_look(node).instances, 1);
}

TEST_CASE(a_call_goes_to_the_copy_and_its_answer_ends_it)
{
    struct asker *asker = ask(node, "m");
    assert_int_equal(there.forwards, 1);
    assert_int_equal(there.attempt.hop, MESH_HOP_HIT);
    assert_true(there.attempt.create_revision > 0);
    assert_true(there.attempt.deadline_ns < asker->call.deadline_ns); /* R10 */
    const struct runner_figures figures = {.start_ms = 1000,
                                           .figures = {.capacity_units = 10000, .free_units = 77}};
    runner_try_ended(
        node->runner, &asker->call, there.attempt.number,
        &(struct runner_end){.end = MESH_END_OK, .figures = &figures, .instance = "two"});
    assert_false(asker->over); /* that is the peers' affair */
    assert_int_equal(node_look(node).calls, 0);
    assert_true(runner_call_cancelled(node->runner, &asker->call)); /* it is over */
    assert_int_equal(there.abandons, 0);
}

static void
see_two(void *context, const struct mesh_instance *instance)
{
    if (strcmp(instance->id, "two") == 0)
        *(uint64_t *)context = instance->figures.free_units;
}

TEST_CASE(figures_of_replies_are_taken)
{
    uint64_t free_units = 0;
    struct runner_figures figures = {.start_ms = 1000,
                                     .figures = {.capacity_units = 10000, .free_units = 77}};
    struct asker *asker = ask(node, "m");
    const struct runner_end end = {.end = MESH_END_OK, .figures = &figures, .instance = "two"};
    runner_try_ended(node->runner, &asker->call, there.attempt.number, &end);
    runner_visit_instances(node->runner, 0, 9, see_two, &free_units);
    assert_int_equal(free_units, 77);
    figures.start_ms = 999; /* of a process that is no more */
    figures.figures.free_units = 55;
    asker = ask(node, "m");
    runner_try_ended(node->runner, &asker->call, there.attempt.number, &end);
    runner_visit_instances(node->runner, 0, 9, see_two, &free_units);
    assert_int_equal(free_units, 77);
}

TEST_CASE(a_try_that_fails_is_routed_on)
{
    char by[ID_MAX];
    struct asker *asker = ask(node, "m");
    runner_try_ended(node->runner, &asker->call, there.attempt.number,
                     &(struct runner_end){.end = MESH_END_UNREACHABLE});
    NODES_WAIT(asker->over); /* loaded here */
    assert_int_equal(asker->end, MESH_END_OK);
    assert_string_equal(asker->by, "one");
    there.unreachable = true;
    assert_int_equal(ask_wait(node, "m", by), MESH_END_OK);
    const struct runner_counts counts = node_look(node).counts;
    assert_int_equal(counts.tried[MESH_END_UNREACHABLE], counts.forwarded);
    assert_int_equal(counts.entered[RUNNER_ELSEWHERE], 0);
    assert_int_equal(counts.entered[RUNNER_WAITED], 1);
}

/* A stream that is cut off: its owner has notified its caller. */
TEST_CASE(a_try_that_fails_with_an_answer_is_over)
{
    struct asker *asker = ask(node, "m");
    runner_try_ended(node->runner, &asker->call, there.attempt.number,
                     &(struct runner_end){.end = MESH_END_UNREACHABLE, .is_answered = true});
    assert_false(asker->over);
    const struct runner_view look = node_look(node);
    assert_int_equal(look.calls, 0);
    assert_int_equal(look.counts.forwarded, 1);
    assert_int_equal(look.counts.tried[MESH_END_UNREACHABLE], 1);
    assert_int_equal(look.counts.entered[RUNNER_ELSEWHERE], 1);
}

TEST_CASE(an_abandoned_try_is_over)
{
    struct asker *asker = ask(node, "m");
    assert_true(runner_call_cancelled(node->runner, &asker->call));
    assert_int_equal(there.abandons, 1);
    assert_int_equal(node_look(node).calls, 0);
    runner_try_ended(node->runner, &asker->call, there.attempt.number,
                     &(struct runner_end){.end = MESH_END_OK}); /* late */
    assert_false(asker->over);
    assert_int_equal(node_look(node).counts.entered[RUNNER_CANCELLED], 1);
    assert_int_equal(node_look(node).counts.entered[RUNNER_ELSEWHERE], 0);
}

TEST_CASE(an_end_that_is_coming_is_waited_for)
{
    there.comes = true;
    struct asker *asker = ask(node, "m");
    assert_false(runner_call_cancelled(node->runner, &asker->call));
    assert_false(runner_call_cancelled(node->runner, &asker->call));
    assert_int_equal(there.abandons, 1);
    assert_int_equal(node_look(node).calls, 1);
    runner_try_ended(node->runner, &asker->call, there.attempt.number,
                     &(struct runner_end){.end = MESH_END_UNREACHABLE});
    assert_int_equal(node_look(node).calls, 0);
    assert_int_equal(there.forwards, 1); /* for nobody */
    assert_false(asker->over);
    assert_int_equal(node_look(node).counts.entered[RUNNER_CANCELLED], 1);
    assert_true(runner_call_cancelled(node->runner, &asker->call));
}

/* ---- what a peer sends here ---- */

static const struct mesh_tried STRANGER = {"nobody we know", 3, MESH_LIST_LOAD};

static struct asker *
arrives(const char *model, enum mesh_hop hop, uint64_t create_revision, struct mesh_tried tried)
{
    struct asker *asker = calloc(1, sizeof(*asker));
    CHECK(asker != NULL);
    asker->node = node;
    snprintf(asker->model, sizeof(asker->model), "%s", model);
    asker->tried[0] = tried;
    asker->call = (struct runner_call){.type = &asker_type,
                                       .model = asker->model,
                                       .hop = hop,
                                       .create_revision = create_revision,
                                       .tried = asker->tried,
                                       .tried_count = 1,
                                       .deadline_ns = clock_now_ns() + NODES_WAIT_S * NS_PER_S};
    asker_add(asker);
    runner_call(node->runner, &asker->call);
    return asker;
}

TEST_CASE(a_hit_is_served_or_not_here)
{
    const struct asker *asker = arrives("m", MESH_HOP_HIT, 1000, STRANGER);
    assert_true(asker->over && asker->end == MESH_END_NOT_HERE);
    node_register(node, "n");
    assert_int_equal(ask_wait(node, "n", NULL), MESH_END_OK);
    asker = arrives("n", MESH_HOP_HIT, 1, STRANGER);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_OK);
    assert_int_equal(there.forwards, 0);
    const struct runner_counts counts = node_look(node).counts;
    assert_int_equal(counts.passed[RUNNER_REFUSED + (int)MESH_END_NOT_HERE], 1);
    assert_int_equal(counts.passed[RUNNER_HERE], 1);
    assert_int_equal(counts.entered[RUNNER_HERE] + counts.entered[RUNNER_WAITED], 1);
}

TEST_CASE(a_load_is_loaded_here)
{
    node_register(node, "n");
    const struct asker *asker = arrives("n", MESH_HOP_LOAD, 1, STRANGER);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_OK);
    assert_int_equal(node->loads, 1);
    assert_int_equal(node_look(node).counts.passed[RUNNER_WAITED], 1);
}

TEST_CASE(what_was_tried_counts)
{
    const struct asker *asker = arrives("m", MESH_HOP_LOAD, 1, STRANGER);
    assert_int_equal(there.forwards, 1); /* R6: the copy over there */
    asker = arrives("m", MESH_HOP_LOAD, 1, (struct mesh_tried){"two", 2000, MESH_LIST_HIT});
    assert_int_equal(there.forwards, 1);
    NODES_WAIT(asker->over);
    assert_int_equal(asker->end, MESH_END_OK);
    runner_try_ended(node->runner, there.call, there.attempt.number,
                     &(struct runner_end){.end = MESH_END_OK});
}

TEST_CASE(an_ensure_loads_here)
{
    node_register(node, "n");
    runner_ensure(node->runner, &(struct mesh_ensure){.model = "n",
                                                      .class = MESH_CLASS_COPY,
                                                      .target = 1,
                                                      .size_bytes = MODEL_BYTES});
    runner_ensure(node->runner, &(struct mesh_ensure){.model = "unknown", .target = 1});
    NODES_WAIT(node_holds(node, "n"));
    assert_int_equal(node->sizes, 0); /* it was said */
}

TEST_CASE(a_drain_asks_the_peer)
{
    node_register(node, "n");
    assert_int_equal(ask_wait(node, "n", NULL), MESH_END_OK);
    notify_two(node, 100, 1020); /* it has room */
    runner_drain(node->runner);
    NODES_WAIT(there.ensures > 0);
    assert_string_equal(there.ensured, "n");
    assert_int_equal(node->drained, 0); /* D3 */
}

/* The core is notified, and goes on: the model stays here. */
TEST_CASE(an_ensure_that_nobody_takes)
{
    there.unreachable = true;
    a_drain_asks_the_peer(state);
    NODES_WAIT(node_look(node).calls == 0);
    assert_true(node_holds(node, "n"));
}

/* ---- clearance ---- */

static void
fail_to_load(const char *model)
{
    uint64_t failures = node_look(node).counts.load_failures;
    node->fails = "it is broken";
    runner_ensure(node->runner, &(struct mesh_ensure){.model = model,
                                                      .class = MESH_CLASS_COPY,
                                                      .target = 2,
                                                      .size_bytes = MODEL_BYTES});
    NODES_WAIT(node_look(node).counts.load_failures == failures + 1);
}

static void
fail_three_of_two(void)
{
    static const char *const models[] = {"a", "b", "c"};
    for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
        write_raw(node, STORE_MODELS, models[i], AT_TWO);
        NODES_WAIT(node_look(node).models == 2 + i);
        assert_true(runner_is_ready(node->runner));
        fail_to_load(models[i]);
    }
}

TEST_CASE_WITH(who_cannot_load_what_others_have_is_not_ready, set_up_judged, tear_down)
{
    fail_three_of_two();
    assert_false(runner_is_ready(node->runner));
    node->fails = NULL;
    node_register(node, "n");
    assert_int_equal(ask_wait(node, "n", NULL), MESH_END_OK); /* it serves on */
    assert_false(runner_is_ready(node->runner));              /* C2: for good */
}

TEST_CASE_WITH(loads_long_after_the_start_do_not_count, set_up_late, tear_down)
{
    fail_three_of_two();
    assert_true(runner_is_ready(node->runner));
}

TEST_CASE_WITH(what_nobody_has_may_be_the_models_fault, set_up_judged, tear_down)
{
    static const char *const models[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
        node_register(node, models[i]);
        fail_to_load(models[i]);
    }
    assert_true(runner_is_ready(node->runner));
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
