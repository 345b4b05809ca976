/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: how a split is shared, that a session stays with its target, that a replaced table holds
 * for the next try, and which priority a request gets. The simulator (tests/gateway) has the rest.
 */
#include "../test.h"
#include "base/check.h"
#include "gateway/core/gateway_core.h"

enum { ENDPOINTS = 2, REQUESTS = 8, DRAWS = 3000, SQL = 10, RED = 20, BLUE = 30 };

static const uint64_t every_pool[ENDPOINTS] = {1, 1};

static struct gateway_action
step(struct gateway *core, const struct gateway_event *event)
{
    uint32_t count;
    const struct gateway_action *actions = gateway_step(core, event, &count);
    for (uint32_t i = 0; i < count; i++)
        if (actions[i].kind == GATEWAY_SEND || actions[i].kind == GATEWAY_REFUSE)
            return actions[i];
    return (struct gateway_action){.kind = GATEWAY_FREED};
}

static struct gateway *
core_make(uint32_t waiting)
{
    const struct gateway_config config = {
        .seed = 1,
        .endpoints_max = ENDPOINTS,
        .requests_max = REQUESTS,
        .tries_max = 2,
        .prefix_blocks_max = 512,
        .scrape_ms_min = 50,
        .scrape_ms_max = 5000,
        .objective_window_ms = 1000,
        .flow_control = {.threshold = 1,
                         .saturation = {.waiting_max = 5, .kv_used_max = 0.8, .stale_ms = 200}}};
    struct gateway *core = gateway_create(&config);
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        step(core, &(struct gateway_event){.kind = GATEWAY_ADDED,
                                           .endpoint = i,
                                           .identity = i + 1,
                                           .pools = 1,
                                           .apart = 1u << GATEWAY_PORT_GRPC});
        step(core, &(struct gateway_event){.kind = GATEWAY_SCRAPED,
                                           .endpoint = i,
                                           .figures = {.is_known = true, .waiting = waiting}});
    }
    return core;
}

static void
route(struct gateway *core, const struct gateway_route *given, const struct gateway_target *targets,
      uint32_t count)
{
    struct gateway_route only = *given;
    only.target_count = count;
    const struct gateway_routes routes = {.routes = &only,
                                          .route_count = 1,
                                          .targets = targets,
                                          .target_count = count,
                                          .pools = every_pool};
    step(core, &(struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
}

/* Asks, and ends what was sent. */
static struct gateway_action
ask(struct gateway *core, const struct gateway_ask *asked)
{
    struct gateway_action action =
        step(core, &(struct gateway_event){.kind = GATEWAY_REQUEST, .ask = *asked});
    if (action.kind == GATEWAY_SEND)
        step(core, &(struct gateway_event){.kind = GATEWAY_ENDED, .end = GATEWAY_END_CANCELLED});
    return action;
}

TEST_CASE(test_a_split_is_shared_by_weight)
{
    const struct gateway_target targets[] = {{.model = RED, .pools = 1, .weight = 1},
                                             {.model = BLUE, .pools = 1, .weight = 3}};
    struct gateway *core = core_make(0);
    uint32_t blue = 0;
    route(core, &(struct gateway_route){.model = SQL}, targets, 2);
    for (int i = 0; i < DRAWS; i++)
        blue += ask(core, &(struct gateway_ask){.model = SQL}).target;
    assert_in_range(blue, DRAWS * 70 / 100, DRAWS * 80 / 100);
    for (uint64_t session = 1; session < 20; session++) {
        const struct gateway_ask asked = {.model = SQL, .session = session};
        uint32_t target = ask(core, &asked).target;
        for (int i = 0; i < 5; i++)
            assert_int_equal(ask(core, &asked).target, target);
    }
    gateway_check(core);
    gateway_destroy(core);
}

TEST_CASE(test_weights_of_zero_are_alike)
{
    const struct gateway_target targets[] = {{.model = RED, .pools = 1},
                                             {.model = BLUE, .pools = 1}};
    struct gateway *core = core_make(0);
    uint32_t blue = 0;
    route(core, &(struct gateway_route){.model = SQL}, targets, 2);
    for (int i = 0; i < DRAWS; i++)
        blue += ask(core, &(struct gateway_ask){.model = SQL}).target;
    assert_in_range(blue, DRAWS * 45 / 100, DRAWS * 55 / 100);
    gateway_destroy(core);
}

TEST_CASE(test_the_newest_routes_hold)
{
    const struct gateway_target targets[] = {{.model = RED, .pools = 1, .weight = 1}};
    struct gateway *core = core_make(0);
    assert_int_equal(ask(core, &(struct gateway_ask){.model = BLUE}).kind, GATEWAY_SEND);
    route(core, &(struct gateway_route){.model = SQL}, targets, 1);
    assert_int_equal(ask(core, &(struct gateway_ask){.model = BLUE}).refusal,
                     GATEWAY_REFUSED_UNKNOWN);
    assert_int_equal(ask(core, &(struct gateway_ask){.model = 0}).kind, GATEWAY_SEND);
    const struct gateway_ask asked = {.model = SQL};
    step(core, &(struct gateway_event){.kind = GATEWAY_REQUEST, .ask = asked});
    route(core, &(struct gateway_route){.model = BLUE}, targets, 1);
    struct gateway_action action =
        step(core, &(struct gateway_event){
                       .kind = GATEWAY_TRY_FAILED, .failure = GATEWAY_FAILED_BUSY, .ask = asked});
    assert_int_equal(action.kind, GATEWAY_REFUSE);
    gateway_check(core);
    gateway_destroy(core);
}

/* Saturated: negative priorities are refused. */
TEST_CASE(test_a_route_gives_its_priority)
{
    const struct gateway_target targets[] = {{.model = RED, .pools = 1, .weight = 1}};
    struct gateway *core = core_make(100);
    route(core, &(struct gateway_route){.model = SQL, .has_priority = true, .priority = -1},
          targets, 1);
    assert_int_equal(ask(core, &(struct gateway_ask){.model = SQL}).refusal, GATEWAY_REFUSED_SHED);
    assert_int_equal(
        ask(core, &(struct gateway_ask){.model = SQL, .has_priority = true, .priority = 0}).kind,
        GATEWAY_SEND);
    gateway_destroy(core);
}

/* E6: a try at a port that is shut would be wasted while the next tier has an open one. */
TEST_CASE(test_a_fallback_goes_before_a_shut_port)
{
    const struct gateway_target targets[] = {{.model = RED, .pools = 1},
                                             {.model = BLUE, .pools = 2, .tier = 1}};
    const struct gateway_route given = {.model = SQL, .target_count = 2};
    const struct gateway_routes routes = {.routes = &given,
                                          .route_count = 1,
                                          .targets = targets,
                                          .target_count = 2,
                                          .pools = (const uint64_t[ENDPOINTS]){1, 2}};
    const struct gateway_ask asked = {.model = SQL, .port = GATEWAY_PORT_GRPC};
    struct gateway *core = core_make(0);
    step(core, &(struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    assert_int_equal(
        step(core, &(struct gateway_event){.kind = GATEWAY_REQUEST, .ask = asked}).endpoint, 0);
    struct gateway_event refused = {
        .kind = GATEWAY_TRY_FAILED, .failure = GATEWAY_FAILED_UNREACHABLE, .ask = asked};
    assert_int_equal(step(core, &refused).endpoint, 1);
    step(core, &(struct gateway_event){.kind = GATEWAY_ENDED, .end = GATEWAY_END_CANCELLED});
    struct gateway_action action = ask(core, &asked);
    assert_int_equal(action.endpoint, 1);
    assert_int_equal(action.target, 1);
    assert_int_equal(ask(core, &(struct gateway_ask){.model = SQL}).endpoint, 0);
    step(core, &(struct gateway_event){.kind = GATEWAY_REQUEST, .ask = asked});
    assert_int_equal(step(core, &refused).endpoint, 0); /* the last one left */
    gateway_check(core);
    gateway_destroy(core);
}

/* T2: servers that cannot be reached do not hide that those which can are busy, and a port that is
 * known to be shut is not tried behind them; it may have the model that another lacks. */
TEST_CASE(test_a_busy_server_outweighs_a_shut_port)
{
    static const struct {
        bool is_shut; /* the second, from the start */
        uint32_t tries;
        enum gateway_failure failures[ENDPOINTS];
        enum gateway_refusal refusal;
    } cases[] = {
        {true, 1, {GATEWAY_FAILED_BUSY}, GATEWAY_REFUSED_BUSY},
        {false, 2, {GATEWAY_FAILED_BUSY, GATEWAY_FAILED_UNREACHABLE}, GATEWAY_REFUSED_BUSY},
        {false, 2, {GATEWAY_FAILED_UNREACHABLE, GATEWAY_FAILED_BUSY}, GATEWAY_REFUSED_BUSY},
        {false, 2, {GATEWAY_FAILED_BUSY, GATEWAY_FAILED_BROKE}, GATEWAY_REFUSED_FAILED},
        {true, 2, {GATEWAY_FAILED_ABSENT, GATEWAY_FAILED_UNREACHABLE}, GATEWAY_REFUSED_FAILED},
        {true, 2, {GATEWAY_FAILED_BROKE, GATEWAY_FAILED_BUSY}, GATEWAY_REFUSED_FAILED},
        {true, 2, {GATEWAY_FAILED_UNREACHABLE, GATEWAY_FAILED_BROKE}, GATEWAY_REFUSED_FAILED},
    };
    static const uint64_t second = 2; /* its identity */
    const struct gateway_ask asked = {.port = GATEWAY_PORT_GRPC};
    const struct gateway_ask to_second = {
        .port = GATEWAY_PORT_GRPC, .subset = &second, .subset_count = 1};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct gateway *core = core_make(0);
        struct gateway_event failed = {
            .kind = GATEWAY_TRY_FAILED, .failure = GATEWAY_FAILED_UNREACHABLE, .ask = to_second};
        if (cases[i].is_shut) {
            step(core, &(struct gateway_event){.kind = GATEWAY_REQUEST, .ask = to_second});
            assert_int_equal(step(core, &failed).refusal, GATEWAY_REFUSED_FAILED);
        }
        step(core, &(struct gateway_event){.kind = GATEWAY_REQUEST, .ask = asked});
        failed.ask = asked;
        struct gateway_action action = {.kind = GATEWAY_SEND};
        for (uint32_t k = 0; k < cases[i].tries; k++) {
            assert_int_equal(action.kind, GATEWAY_SEND);
            failed.failure = cases[i].failures[k];
            action = step(core, &failed);
        }
        assert_int_equal(action.kind, GATEWAY_REFUSE);
        assert_int_equal(action.refusal, cases[i].refusal);
        gateway_check(core);
        gateway_destroy(core);
    }
}

TEST_CASE(test_prefixes_of_targets_differ)
{
    const struct gateway_target red[] = {{.model = RED, .pools = 1, .weight = 1}};
    const struct gateway_target blue[] = {{.model = BLUE, .pools = 1, .weight = 1}};
    const uint64_t blocks[] = {1000, 2000};
    const struct gateway_ask asked = {.model = SQL, .blocks = blocks, .block_count = 2};
    struct gateway *core = core_make(0);
    route(core, &(struct gateway_route){.model = SQL}, red, 1);
    for (int i = 0; i < 16; i++) /* on both endpoints */
        ask(core, &asked);
    uint64_t matched = gateway_counts(core)->blocks_matched;
    assert_true(matched > 0);
    route(core, &(struct gateway_route){.model = SQL}, blue, 1);
    ask(core, &asked);
    assert_int_equal(gateway_counts(core)->blocks_matched, matched);
    gateway_destroy(core);
}

/* ---- objectives ---- */

/* A request that takes so long for ten tokens. */
static void
answer(struct gateway *core, uint64_t model, int64_t from_ms, int64_t took_ms)
{
    step(core, &(struct gateway_event){
                   .kind = GATEWAY_REQUEST, .now_ms = from_ms, .ask = {.model = model}});
    step(core, &(struct gateway_event){.kind = GATEWAY_STARTED, .now_ms = from_ms});
    step(core, &(struct gateway_event){.kind = GATEWAY_ENDED,
                                       .now_ms = from_ms + took_ms,
                                       .end = GATEWAY_END_OK,
                                       .answer_tokens = 10});
}

/* A share of a quarter of the answers may take longer than 10 ms for a token. Saturated, and
 * without flow control. */
TEST_CASE(test_an_objective_is_judged_by_windows)
{
    const struct gateway_target targets[] = {{.model = RED, .pools = 1, .weight = 1},
                                             {.pools = 1, .weight = 1}};
    const struct gateway_route given[] = {
        {.first_target = 1, .target_count = 1},
        {.model = SQL, .target_count = 1, .latency_ms = 10, .over_share = 0.25}};
    const struct gateway_routes routes = {.routes = given,
                                          .route_count = 2,
                                          .targets = targets,
                                          .target_count = 2,
                                          .pools = every_pool};
    struct gateway *core = core_make(100);
    struct gateway_objective_view view;
    step(core, &(struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    assert_false(gateway_look_objective(core, 0, &view));
    for (int i = 0; i < 4; i++)
        answer(core, SQL, 1000 + 200 * i, i == 0 ? 101 : 100);
    const struct gateway_event other = {
        .kind = GATEWAY_REQUEST, .now_ms = 2000, .ask = {.model = BLUE}};
    assert_int_equal(step(core, &other).kind, GATEWAY_SEND);
    step(core, &(struct gateway_event){.kind = GATEWAY_ENDED, .end = GATEWAY_END_CANCELLED});
    assert_true(gateway_look_objective(core, 1, &view));
    assert_true(!view.is_missed && view.met == 1 && view.missed == 0);
    for (int i = 0; i < 4; i++)
        answer(core, SQL, 2000 + 200 * i, i < 2 ? 101 : 100);
    step(core, &(struct gateway_event){.kind = GATEWAY_TICK, .now_ms = 3000});
    assert_true(gateway_look_objective(core, 1, &view));
    assert_true(view.is_missed && view.met == 1 && view.missed == 1);
    assert_int_equal(step(core, &other).refusal, GATEWAY_REFUSED_SHED);
    assert_int_equal(
        ask(core, &(struct gateway_ask){.model = BLUE, .priority = 1, .has_priority = true}).kind,
        GATEWAY_SEND);
    assert_int_equal(ask(core, &(struct gateway_ask){.model = SQL}).kind, GATEWAY_SEND);
    step(core, &(struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    assert_int_equal(step(core, &other).refusal, GATEWAY_REFUSED_SHED);
    step(core, &(struct gateway_event){.kind = GATEWAY_TICK, .now_ms = 4000}); /* no answers */
    assert_int_equal(step(core, &other).kind, GATEWAY_SEND);
    gateway_check(core);
    gateway_destroy(core);
}

/* ---- roll-out ---- */

/* The load that is due for endpoint 0; 0: none. */
static uint64_t
load_due(struct gateway *core, int64_t now_ms, enum gateway_event_kind ended)
{
    uint32_t count;
    struct gateway_event event = {.kind = ended, .now_ms = now_ms};
    if (ended == GATEWAY_SCRAPED) {
        event.figures.is_known = event.figures.has_catalogue = true;
        gateway_step(core, &(struct gateway_event){.kind = GATEWAY_TICK, .now_ms = now_ms}, &count);
    }
    const struct gateway_action *actions = gateway_step(core, &event, &count);
    for (uint32_t i = 0; i < count; i++)
        if (actions[i].kind == GATEWAY_LOAD && actions[i].endpoint == 0)
            return actions[i].adapter;
    return 0;
}

TEST_CASE(test_an_adapter_that_fails_delays_no_other)
{
    const struct gateway_target targets[] = {{.pools = 1, .weight = 1}};
    const struct gateway_route given[] = {{.target_count = 1}};
    const struct gateway_rollout rollouts[] = {{.adapter = RED, .pools = 1},
                                               {.adapter = BLUE, .pools = 1}};
    const struct gateway_routes routes = {.routes = given,
                                          .route_count = 1,
                                          .targets = targets,
                                          .target_count = 1,
                                          .rollouts = rollouts,
                                          .rollout_count = 2,
                                          .pools = every_pool};
    struct gateway *core = core_make(0);
    step(core, &(struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    assert_int_equal(load_due(core, 10000, GATEWAY_SCRAPED), RED);
    assert_int_equal(load_due(core, 10000, GATEWAY_ADAPTER_FAILED), 0);
    assert_int_equal(load_due(core, 11000, GATEWAY_TICK), BLUE);
    assert_int_equal(load_due(core, 11000, GATEWAY_ADAPTER_DONE), RED);
    assert_int_equal(load_due(core, 11000, GATEWAY_ADAPTER_DONE), 0);
    gateway_check(core);
    gateway_destroy(core);
}

/* Its list does not show what we loaded. */
TEST_CASE(test_a_server_with_too_many_adapters_is_reported_once)
{
    const struct gateway_target targets[] = {{.pools = 1, .weight = 1}};
    const struct gateway_route given[] = {{.target_count = 1}};
    const struct gateway_rollout rollouts[] = {{.adapter = RED, .pools = 1}};
    const struct gateway_routes routes = {.routes = given,
                                          .route_count = 1,
                                          .targets = targets,
                                          .target_count = 1,
                                          .rollouts = rollouts,
                                          .rollout_count = 1,
                                          .pools = every_pool};
    struct gateway *core = core_make(0);
    uint64_t listed[GATEWAY_ADAPTERS_MAX];
    uint32_t count;
    for (uint32_t i = 0; i < GATEWAY_ADAPTERS_MAX; i++)
        listed[i] = 1000 + i;
    step(core, &(struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    gateway_step(core, &(struct gateway_event){.kind = GATEWAY_TICK, .now_ms = 10000}, &count);
    const struct gateway_action *actions =
        gateway_step(core,
                     &(struct gateway_event){.kind = GATEWAY_SCRAPED,
                                             .now_ms = 10000,
                                             .figures = {.is_known = true,
                                                         .has_catalogue = true,
                                                         .catalogue_count = GATEWAY_ADAPTERS_MAX,
                                                         .catalogue = listed}},
                     &count);
    assert_int_equal(count, 1);
    assert_int_equal(actions[0].kind, GATEWAY_LOAD);
    assert_int_equal(load_due(core, 10000, GATEWAY_ADAPTER_DONE), 0);
    gateway_destroy(core);
}

TEST_MAIN()
