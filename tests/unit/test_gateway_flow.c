/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flow control where the simulator takes the core's word: the figure of the utilization detector,
 * staleness, the cost of tokens, and what lets a request out of the queue. One core on a scripted
 * clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "gateway/core/gateway_core.h"

enum { ENDPOINTS = 2, REQUESTS = 64, SCRAPE_MS = 50, START_MS = 1000, SHARE_MS = 8000 };

struct rig {
    struct gateway *core;
    int64_t now_ms;
    uint32_t sent[REQUESTS]; /* in this order */
    uint32_t sent_count;
    uint32_t refused_count;
    enum gateway_refusal refusal;
    bool is_scraping[ENDPOINTS];
};

/* Steps, and ticks as long as the core wants it at once. */
static void
step(struct rig *rig, struct gateway_event event)
{
    do {
        uint32_t count;
        event.now_ms = rig->now_ms;
        const struct gateway_action *actions = gateway_step(rig->core, &event, &count);
        for (uint32_t i = 0; i < count; i++) {
            if (actions[i].kind == GATEWAY_SEND)
                rig->sent[rig->sent_count++] = actions[i].request;
            if (actions[i].kind == GATEWAY_SCRAPE)
                rig->is_scraping[actions[i].endpoint] = true;
            if (actions[i].kind == GATEWAY_REFUSE) {
                rig->refused_count++;
                rig->refusal = actions[i].refusal;
            }
        }
        event = (struct gateway_event){.kind = GATEWAY_TICK};
    } while (gateway_next_ms(rig->core) <= rig->now_ms);
    gateway_check(rig->core);
}

static void
scrape(struct rig *rig, uint32_t endpoint, uint32_t waiting, double kv_used)
{
    rig->is_scraping[endpoint] = false;
    step(rig, (struct gateway_event){
                  .kind = GATEWAY_SCRAPED,
                  .endpoint = endpoint,
                  .figures = {.is_known = true, .waiting = waiting, .kv_used = kv_used}});
}

static void
request(struct rig *rig, uint32_t number, struct gateway_ask ask)
{
    ask.model = ask.model != 0 ? ask.model : 1;
    step(rig, (struct gateway_event){.kind = GATEWAY_REQUEST, .request = number, .ask = ask});
}

static struct gateway_flow_control
control_make(void)
{
    return (struct gateway_flow_control){
        .is_on = true,
        .threshold = 1,
        .no_endpoint_ttl_ms = 500,
        .saturation = {.waiting_max = 5, .kv_used_max = 0.8, .stale_ms = 200},
        .other = {.ttl_ms = 100, .input_weight = 1, .output_weight = 3},
    };
}

/* Both endpoints are up, and each is scraped whenever a scrape is due. */
static struct rig
rig_make(const struct gateway_flow_control *control)
{
    const struct gateway_config config = {.seed = 1,
                                          .endpoints_max = ENDPOINTS,
                                          .requests_max = REQUESTS,
                                          .tries_max = 2,
                                          .prefix_blocks_max = 8,
                                          .scrape_ms_min = SCRAPE_MS,
                                          .scrape_ms_max = 5000,
                                          .share_window_ms = SHARE_MS,
                                          .flow_control = *control};
    struct rig rig = {.core = gateway_create(&config), .now_ms = START_MS};
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        step(&rig, (struct gateway_event){.kind = GATEWAY_ADDED, .endpoint = i, .identity = i + 1});
        scrape(&rig, i, 0, 0);
    }
    return rig;
}

/* Lets time pass until the next scrapes are under way, and answers them. */
static void
scrape_both(struct rig *rig, uint32_t waiting, double kv_used)
{
    while (!rig->is_scraping[0] || !rig->is_scraping[1]) {
        rig->now_ms++;
        step(rig, (struct gateway_event){.kind = GATEWAY_TICK});
    }
    for (uint32_t i = 0; i < ENDPOINTS; i++)
        scrape(rig, i, waiting, kv_used);
}

static void
test_utilization_is_the_mean_of_the_fullest(void **state)
{
    (void)state;
    struct gateway_flow_control control = control_make();
    control.is_on = false;
    struct rig rig = rig_make(&control);
    assert_true(gateway_pool_saturation(rig.core, GATEWAY_ALL_POOLS) == 0);
    rig.now_ms += 6000;
    step(&rig, (struct gateway_event){.kind = GATEWAY_TICK});
    scrape(&rig, 0, 5, 0.4); /* 1 by its queue */
    scrape(&rig, 1, 1, 0.4); /* 0.5 by its KV cache */
    assert_true(gateway_pool_saturation(rig.core, GATEWAY_ALL_POOLS) == 0.75);
    for (uint32_t i = 0; i < ENDPOINTS; i++)
        step(&rig, (struct gateway_event){.kind = GATEWAY_REMOVED, .endpoint = i});
    assert_true(gateway_pool_saturation(rig.core, GATEWAY_ALL_POOLS) == 1);
    gateway_destroy(rig.core);
}

static void
test_figures_age_only_in_use(void **state)
{
    (void)state;
    struct gateway_flow_control control = control_make();
    control.is_on = false;
    for (int ignores = 0; ignores < 2; ignores++) {
        control.saturation.ignores_stale = ignores;
        struct rig rig = rig_make(&control);
        rig.now_ms += 4000;
        assert_true(gateway_pool_saturation(rig.core, GATEWAY_ALL_POOLS) == 0);
        request(&rig, 0, (struct gateway_ask){0});
        assert_int_equal(rig.sent_count, 1);
        rig.now_ms += 201;
        step(&rig, (struct gateway_event){.kind = GATEWAY_TICK});
        assert_true(gateway_pool_saturation(rig.core, GATEWAY_ALL_POOLS) == (ignores ? 0 : 0.5));
        gateway_destroy(rig.core);
    }
}

static void
test_room_lets_requests_out_and_time_ends_waits(void **state)
{
    (void)state;
    struct gateway_flow_control control = control_make();
    struct rig rig = rig_make(&control);
    request(&rig, 0, (struct gateway_ask){0});
    assert_int_equal(rig.sent_count, 1);
    scrape_both(&rig, 0, 0.8);
    for (uint32_t i = 1; i < 4; i++)
        request(&rig, i, (struct gateway_ask){0});
    assert_int_equal(rig.sent_count, 1);
    scrape_both(&rig, 0, 0.79);
    assert_int_equal(rig.sent_count, 4); /* each in a step of its own */
    scrape_both(&rig, 9, 0);
    request(&rig, 4, (struct gateway_ask){0});
    rig.now_ms += 99;
    step(&rig, (struct gateway_event){.kind = GATEWAY_TICK});
    assert_int_equal(rig.refused_count, 0);
    assert_true(gateway_next_ms(rig.core) == rig.now_ms + 1);
    rig.now_ms++;
    step(&rig, (struct gateway_event){.kind = GATEWAY_TICK});
    assert_int_equal(rig.refused_count, 1);
    assert_int_equal(rig.refusal, GATEWAY_REFUSED_EXPIRED);
    gateway_destroy(rig.core);
}

/* Seven requests wait, one after the other, while the pool is saturated; then they leave. */
static void
expect_order(const struct gateway_flow_control *control, const struct gateway_ask asks[7],
             const uint32_t order[7])
{
    struct rig rig = rig_make(control);
    scrape_both(&rig, 5, 0);
    for (uint32_t i = 0; i < 7; i++) {
        request(&rig, i, asks[i]);
        rig.now_ms++;
    }
    assert_int_equal(rig.sent_count, 0);
    for (int i = 0; i < 7; i++) {
        scrape_both(&rig, 0, 0); /* some leave; these are seen as waiting */
        for (uint32_t k = 0; k < rig.sent_count; k++)
            assert_int_equal(rig.sent[k], order[k]);
        if (rig.sent_count == 7)
            break;
    }
    assert_int_equal(rig.sent_count, 7);
    gateway_destroy(rig.core);
}

static void
test_orders(void **state)
{
    (void)state;
    struct gateway_flow_control control = control_make();
    control.other.ttl_ms = 10000;
    const struct gateway_ask costs[7] = {{.flow = 1, .tokens = 4000}, {.flow = 1, .tokens = 10},
                                         {.flow = 1, .tokens = 10},   {.flow = 2, .tokens = 1000},
                                         {.flow = 2, .tokens = 1000}, {.flow = 2, .tokens = 1000},
                                         {.flow = 2, .tokens = 1000}};
    control.other.fairness = GATEWAY_FAIR_STRICT;
    expect_order(&control, costs, (const uint32_t[]){0, 1, 2, 3, 4, 5, 6});
    control.other.fairness = GATEWAY_FAIR_ROUND_ROBIN;
    expect_order(&control, costs, (const uint32_t[]){0, 3, 1, 4, 2, 5, 6});
    control.other.fairness = GATEWAY_FAIR_TOKENS; /* 4384 for the first, 1384 for the others */
    expect_order(&control, costs, (const uint32_t[]){0, 3, 4, 5, 6, 1, 2});
    const struct gateway_ask objectives[7] = {
        {0}, {.slo_ms = 900}, {.slo_ms = 300}, {.priority = 1}, {.priority = -5, .slo_ms = 1},
        {0}, {.slo_ms = 100}};
    control.other.fairness = GATEWAY_FAIR_STRICT;
    control.other_negative = control.other;
    control.other.ordering = GATEWAY_ORDER_SLO;
    expect_order(&control, objectives, (const uint32_t[]){3, 6, 2, 1, 0, 5, 4});
    control.other.ordering = GATEWAY_ORDER_TTL;
    expect_order(&control, objectives, (const uint32_t[]){3, 0, 1, 2, 5, 6, 4});
    control.bands[0] = control.other;
    control.bands[0].priority = -5;
    control.bands[0].ttl_ms = 1; /* expires before there is room */
    control.band_count = 1;
    struct rig rig = rig_make(&control);
    scrape_both(&rig, 5, 0);
    request(&rig, 0, objectives[4]);
    scrape_both(&rig, 0, 0);
    assert_int_equal(rig.refusal, GATEWAY_REFUSED_EXPIRED);
    gateway_destroy(rig.core);
}

static void
test_tokens_in_flight_fill_a_pool(void **state)
{
    (void)state;
    struct gateway_flow_control control = control_make();
    control.saturation =
        (struct gateway_saturation){.detector = GATEWAY_DETECT_CONCURRENCY, .tokens_max = 1000};
    struct rig rig = rig_make(&control);
    for (uint32_t i = 0; i < 3; i++)
        request(&rig, i, (struct gateway_ask){.tokens = 400}); /* 1000 with its answer */
    assert_int_equal(rig.sent_count, 2);
    assert_true(gateway_pool_saturation(rig.core, GATEWAY_ALL_POOLS) == 1);
    step(&rig,
         (struct gateway_event){.kind = GATEWAY_ENDED, .request = 0, .end = GATEWAY_END_CANCELLED});
    assert_int_equal(rig.sent_count, 3);
    gateway_destroy(rig.core);
}

static void
answer(struct rig *rig, uint64_t model, uint64_t prompt_tokens, uint64_t answer_tokens)
{
    request(rig, 0, (struct gateway_ask){.model = model, .tokens = 100});
    step(rig, (struct gateway_event){.kind = GATEWAY_STARTED, .request = 0});
    step(rig, (struct gateway_event){.kind = GATEWAY_ENDED,
                                     .request = 0,
                                     .end = GATEWAY_END_OK,
                                     .prompt_tokens = prompt_tokens,
                                     .answer_tokens = answer_tokens});
}

/* Whether a model is served by a pool that is saturated. */
static bool
is_served(struct rig *rig, uint64_t model)
{
    uint32_t before = rig->sent_count;
    scrape_both(rig, 5, 0);
    request(rig, 0, (struct gateway_ask){.model = model});
    if (rig->sent_count == before) {
        assert_int_equal(rig->refusal, GATEWAY_REFUSED_SHARE);
        return false;
    }
    step(rig,
         (struct gateway_event){.kind = GATEWAY_ENDED, .request = 0, .end = GATEWAY_END_CANCELLED});
    return true;
}

static void
test_more_than_a_share_of_tokens(void **state)
{
    (void)state;
    struct gateway_flow_control control = control_make();
    control.is_on = false;
    struct rig rig = rig_make(&control);
    answer(&rig, 1, 1000, 200);
    assert_true(is_served(&rig, 1)); /* it is alone */
    answer(&rig, 2, 1000, 200);
    assert_true(is_served(&rig, 1)); /* exactly its share */
    answer(&rig, 1, 0, 0);           /* not said: 100 + 128 */
    assert_false(is_served(&rig, 1));
    assert_true(is_served(&rig, 2));
    scrape_both(&rig, 4, 0);
    request(&rig, 1, (struct gateway_ask){.model = 1}); /* there is room */
    assert_int_equal(rig.refused_count, 1);
    rig.now_ms += SHARE_MS / 2;
    answer(&rig, 2, 0, 1);
    rig.now_ms += SHARE_MS / 2 + SHARE_MS / 8; /* what was before is forgotten */
    answer(&rig, 3, 0, 2);
    assert_true(is_served(&rig, 1));
    assert_false(is_served(&rig, 3));
    gateway_destroy(rig.core);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utilization_is_the_mean_of_the_fullest),
        cmocka_unit_test(test_figures_age_only_in_use),
        cmocka_unit_test(test_room_lets_requests_out_and_time_ends_waits),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_tokens_in_flight_fill_a_pool),
        cmocka_unit_test(test_more_than_a_share_of_tokens),
    };
    return cmocka_run_group_tests_name("gateway_flow", tests, NULL, NULL);
}
