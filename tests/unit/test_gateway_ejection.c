/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With the default settings, a server that has ended gets no more requests a second after the first
 * that came since: one that refuses them at once, one that is silent after its scrape, although it
 * was scraped as rarely as may be. A core on virtual time.
 */
#include "../test.h"
#include "gateway/config/settings.h"
#include "gateway/core/gateway_core.h"

enum { IDLE_MS = 60000, BOUND_MS = 1000 };

struct rig {
    struct gateway_settings settings;
    struct gateway *core;
    int64_t now_ms;
};

/* Returns whether the step has an action of that kind. */
static bool
step(struct rig *rig, enum gateway_action_kind kind, struct gateway_event event)
{
    uint32_t count;
    bool is_found = false;
    event.now_ms = rig->now_ms;
    const struct gateway_action *actions = gateway_step(rig->core, &event, &count);
    for (uint32_t i = 0; i < count; i++)
        is_found = is_found || actions[i].kind == kind;
    return is_found;
}

/* The scrape that is due next begins. */
static void
begin_scrape(struct rig *rig)
{
    rig->now_ms = gateway_next_ms(rig->core);
    assert_true(step(rig, GATEWAY_SCRAPE, (struct gateway_event){.kind = GATEWAY_TICK}));
}

static enum gateway_state
state_of(const struct rig *rig)
{
    struct gateway_view view;
    gateway_look(rig->core, 0, &view);
    return view.state;
}

/* One server, which has been idle for long. */
static void
start(struct rig *rig)
{
    settings_init(&rig->settings);
    const struct gateway_config config = {.seed = 1,
                                          .endpoints_max = 1,
                                          .requests_max = 1,
                                          .tries_max = 1,
                                          .prefix_blocks_max = 8,
                                          .scrape_ms_min = rig->settings.scrape_ms_min,
                                          .scrape_ms_max = rig->settings.scrape_ms_max,
                                          .scheduler = rig->settings.scheduler,
                                          .flow_control = rig->settings.flow_control};
    rig->core = gateway_create(&config);
    rig->now_ms = 1;
    step(rig, GATEWAY_CHANGED, (struct gateway_event){.kind = GATEWAY_ADDED, .identity = 1});
    while (rig->now_ms < IDLE_MS) {
        step(rig, GATEWAY_CHANGED, (struct gateway_event){.kind = GATEWAY_SCRAPED});
        assert_int_equal(state_of(rig), GATEWAY_UP);
        begin_scrape(rig);
    }
    step(rig, GATEWAY_CHANGED, (struct gateway_event){.kind = GATEWAY_SCRAPED});
    assert_true(gateway_next_ms(rig->core) > rig->now_ms + BOUND_MS);
}

TEST_CASE(test_a_server_that_refuses)
{
    struct rig rig;
    start(&rig);
    assert_true(step(&rig, GATEWAY_SEND, (struct gateway_event){.kind = GATEWAY_REQUEST}));
    step(&rig, GATEWAY_CHANGED,
         (struct gateway_event){.kind = GATEWAY_TRY_FAILED, .failure = GATEWAY_FAILED_UNREACHABLE});
    assert_int_equal(state_of(&rig), GATEWAY_DOWN);
    gateway_destroy(rig.core);
}

TEST_CASE(test_a_server_that_is_silent)
{
    struct rig rig;
    start(&rig);
    int64_t began_ms = rig.now_ms;
    assert_true(step(&rig, GATEWAY_SEND, (struct gateway_event){.kind = GATEWAY_REQUEST}));
    begin_scrape(&rig);
    rig.now_ms += rig.settings.scrape_timeout_ms;
    step(&rig, GATEWAY_CHANGED, (struct gateway_event){.kind = GATEWAY_SCRAPE_FAILED});
    assert_int_equal(state_of(&rig), GATEWAY_DOWN);
    assert_in_range(rig.now_ms - began_ms, 0, BOUND_MS);
    gateway_destroy(rig.core);
}

TEST_MAIN()
