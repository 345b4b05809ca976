/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: which of three endpoints with given figures gets a request, for each scorer,
 * filter and picker; among them the reference's hermetic cases. A rig of one core on a scripted
 * clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "gateway/core/gateway_core.h"

enum { ENDPOINTS = 3, REQUESTS = 64, DRAWS = 40 };

struct rig {
    struct gateway *core;
    uint32_t next_request;
};

/* An endpoint as scraped: adapters are letters, in capitals if loaded. */
struct shown {
    uint32_t waiting;
    uint32_t running;
    double kv_used;
    const char *adapters;
};

static uint64_t
name(char letter)
{
    return gateway_name_hash(&letter, 1);
}

/* All are scraped again, with catalogues of adapters, in capitals the base model; NULL: a server
 * without one. */
static void
list(struct rig *rig, int64_t now_ms, const char *const catalogues[ENDPOINTS])
{
    uint32_t count;
    gateway_step(rig->core, &(struct gateway_event){.kind = GATEWAY_TICK, .now_ms = now_ms},
                 &count);
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        uint64_t catalogue[GATEWAY_ADAPTERS_MAX];
        struct gateway_figures figures = {
            .is_known = true, .adapters_max = 2, .catalogue = catalogue};
        figures.has_catalogue = catalogues[i] != NULL;
        for (const char *at = catalogues[i]; at != NULL && *at != '\0'; at++)
            if (*at < 'a')
                figures.base_model = name((char)(*at | 0x20));
            else
                catalogue[figures.catalogue_count++] = name(*at);
        gateway_step(
            rig->core,
            &(struct gateway_event){
                .kind = GATEWAY_SCRAPED, .now_ms = now_ms, .endpoint = i, .figures = figures},
            &count);
    }
}

static void
scrape(struct rig *rig, uint32_t endpoint, const struct shown *shown)
{
    uint32_t count;
    struct gateway_adapter adapters[8];
    struct gateway_figures figures = {.is_known = true,
                                      .waiting = shown->waiting,
                                      .running = shown->running,
                                      .kv_used = shown->kv_used,
                                      .base_model = name('0'),
                                      .adapters_max = 2,
                                      .adapters = adapters};
    for (const char *at = shown->adapters; *at != '\0'; at++)
        adapters[figures.adapter_count++] = (struct gateway_adapter){
            name((char)(*at | 0x20)), *at < 'a' ? GATEWAY_ADAPTER_LOADED : GATEWAY_ADAPTER_WAITING,
            0};
    gateway_step(
        rig->core,
        &(struct gateway_event){
            .kind = GATEWAY_SCRAPED, .now_ms = 1, .endpoint = endpoint, .figures = figures},
        &count);
}

static struct rig
rig_make(const struct gateway_scheduler *scheduler, const struct shown shown[ENDPOINTS])
{
    const struct gateway_config config = {.seed = 1,
                                          .endpoints_max = ENDPOINTS,
                                          .requests_max = REQUESTS,
                                          .tries_max = 2,
                                          .prefix_blocks_max = 512,
                                          .scrape_ms_min = 50,
                                          .scrape_ms_max = 5000,
                                          .scheduler = *scheduler};
    struct rig rig = {.core = gateway_create(&config)};
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        uint32_t count;
        gateway_step(rig.core,
                     &(struct gateway_event){.kind = GATEWAY_ADDED,
                                             .now_ms = 1,
                                             .endpoint = i,
                                             .identity = i + 1,
                                             .apart = 1u << GATEWAY_PORT_GRPC},
                     &count);
        scrape(&rig, i, &shown[i]);
    }
    return rig;
}

static uint32_t
send(struct rig *rig, struct gateway_ask ask)
{
    uint32_t count;
    const struct gateway_action *actions = gateway_step(
        rig->core,
        &(struct gateway_event){
            .kind = GATEWAY_REQUEST, .now_ms = 2, .request = rig->next_request++, .ask = ask},
        &count);
    for (uint32_t i = 0; i < count; i++)
        if (actions[i].kind == GATEWAY_SEND)
            return actions[i].endpoint;
    return ENDPOINTS;
}

/* Sends and cancels, so that nothing stays but what was learned. */
static uint32_t
choice(struct rig *rig, struct gateway_ask ask)
{
    uint32_t count;
    uint32_t endpoint = send(rig, ask);
    gateway_step(rig->core,
                 &(struct gateway_event){.kind = GATEWAY_ENDED,
                                         .now_ms = 2,
                                         .request = --rig->next_request,
                                         .end = GATEWAY_END_CANCELLED},
                 &count);
    gateway_check(rig->core);
    return endpoint;
}

static const struct shown idle[ENDPOINTS] = {{0, 0, 0, ""}, {0, 0, 0, ""}, {0, 0, 0, ""}};

static void
test_each_scorer_alone(void **state)
{
    (void)state;
    static const struct {
        enum gateway_scorer scorer;
        char model;
        uint32_t wanted;
        struct shown shown[ENDPOINTS];
    } cases[] = {
        {GATEWAY_SCORE_QUEUE, 'a', 1, {{3, 0, .2, ""}, {0, 9, .9, ""}, {10, 0, .2, ""}}},
        {GATEWAY_SCORE_RUNNING, 'a', 2, {{0, 5, 0, ""}, {0, 4, 0, ""}, {9, 3, 1, ""}}},
        {GATEWAY_SCORE_KV_CACHE, 'a', 0, {{9, 9, .1, ""}, {0, 0, .2, ""}, {0, 0, .3, ""}}},
        {GATEWAY_SCORE_ADAPTER, 'a', 1, {{0, 0, 0, "B"}, {9, 9, .9, "AB"}, {0, 0, 0, ""}}},
        /* room, before waiting, before neither */
        {GATEWAY_SCORE_ADAPTER, 'a', 2, {{0, 0, 0, "BC"}, {0, 0, 0, "aB"}, {0, 0, 0, "B"}}},
        {GATEWAY_SCORE_ADAPTER, 'a', 1, {{0, 0, 0, "BC"}, {0, 0, 0, "aB"}, {0, 0, 0, "CD"}}},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_MAX_SCORE};
        scheduler.weights[cases[i].scorer] = 1;
        struct rig rig = rig_make(&scheduler, cases[i].shown);
        for (int k = 0; k < DRAWS; k++)
            assert_int_equal(choice(&rig, (struct gateway_ask){.model = name(cases[i].model)}),
                             cases[i].wanted);
        gateway_destroy(rig.core);
    }
}

/* The reference's hermetic cases, with its weights. */
static void
test_reference_cases(void **state)
{
    (void)state;
    const struct gateway_scheduler scheduler = {
        .weights =
            {[GATEWAY_SCORE_QUEUE] = 2, [GATEWAY_SCORE_KV_CACHE] = 2, [GATEWAY_SCORE_ADAPTER] = 3},
        .picker = GATEWAY_PICK_MAX_SCORE};
    const struct shown lightest[] = {{3, 0, .2, ""}, {0, 0, .1, "FT"}, {10, 0, .2, ""}};
    const struct shown adapter[] = {{10, 0, .2, "FB"}, {10, 0, .4, "FT"}, {10, 0, .3, "FB"}};
    struct rig rig = rig_make(&scheduler, lightest);
    assert_int_equal(choice(&rig, (struct gateway_ask){.model = name('t')}), 1);
    gateway_destroy(rig.core);
    rig = rig_make(&scheduler, adapter);
    assert_int_equal(choice(&rig, (struct gateway_ask){.model = name('t')}), 1);
    gateway_destroy(rig.core);
}

/* An answer that reports its server's queue replaces the count of requests sent there. */
static void
test_a_report_replaces_the_count(void **state)
{
    (void)state;
    struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_MAX_SCORE};
    scheduler.weights[GATEWAY_SCORE_QUEUE] = 1;
    struct rig rig =
        rig_make(&scheduler, (const struct shown[]){{0, 0, 0, ""}, {20, 0, 0, ""}, {20, 0, 0, ""}});
    uint32_t count;
    struct gateway_event started = {.kind = GATEWAY_STARTED, .now_ms = 2};
    for (int i = 0; i < 10; i++)
        assert_int_equal(send(&rig, (struct gateway_ask){.model = 1}), 0);
    started.report = (struct gateway_report){.has_waiting = true, .waiting = 30};
    gateway_step(rig.core, &started, &count);
    assert_int_not_equal(choice(&rig, (struct gateway_ask){.model = 1}), 0);
    started.request = 1;
    started.report = (struct gateway_report){.has_waiting = true, .waiting = 0};
    gateway_step(rig.core, &started, &count);
    for (int i = 0; i < 20; i++)
        assert_int_equal(send(&rig, (struct gateway_ask){.model = 1}), 0);
    gateway_check(rig.core);
    gateway_destroy(rig.core);
}

/* S6 with what an answer reports: the adapter's queue there is longer than ours. */
static void
test_reported_adapters_draw_the_seed_picker(void **state)
{
    (void)state;
    struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_SEED, .seed_pending_max = 9};
    struct rig rig =
        rig_make(&scheduler, (const struct shown[]){{0, 0, 0, ""}, {0, 0, 0, "T"}, {0, 0, 0, ""}});
    const struct gateway_ask ask = {.model = name('t')};
    struct gateway_adapter adapter = {name('t'), GATEWAY_ADAPTER_LOADED, 5};
    struct gateway_event started = {.kind = GATEWAY_STARTED, .now_ms = 2};
    uint32_t count;
    assert_int_equal(send(&rig, ask), 1);
    uint32_t other = send(&rig, (struct gateway_ask){.model = name('0')});
    assert_int_not_equal(other, 1);
    started.request = 1;
    started.report =
        (struct gateway_report){.has_adapters = true, .adapter_count = 1, .adapters = &adapter};
    gateway_step(rig.core, &started, &count);
    assert_int_equal(choice(&rig, ask), other);
    started.request = 0;
    started.report.adapter_count = 0; /* its own request still counts there */
    gateway_step(rig.core, &started, &count);
    assert_int_equal(choice(&rig, ask), other);
    gateway_check(rig.core);
    gateway_destroy(rig.core);
}

static void
test_requests_since_the_scrape_count_as_waiting(void **state)
{
    (void)state;
    struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_MAX_SCORE};
    scheduler.weights[GATEWAY_SCORE_QUEUE] = 1;
    struct rig rig = rig_make(&scheduler, idle);
    uint32_t sent[ENDPOINTS + 1] = {0};
    for (int i = 0; i < 30; i++)
        sent[send(&rig, (struct gateway_ask){.model = 1})]++;
    for (int i = 0; i < ENDPOINTS; i++)
        assert_int_equal(sent[i], 10);
    gateway_destroy(rig.core);
}

static void
test_tokens_in_flight_weigh_more_than_requests(void **state)
{
    (void)state;
    struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_MAX_SCORE, .tokens_max = 100000};
    scheduler.weights[GATEWAY_SCORE_TOKENS] = 1;
    struct rig rig = rig_make(&scheduler, idle);
    uint32_t first = send(&rig, (struct gateway_ask){.model = 1, .tokens = 10000});
    for (int i = 0; i < 10; i++)
        assert_int_not_equal(send(&rig, (struct gateway_ask){.model = 1, .tokens = 1000}), first);
    gateway_destroy(rig.core);
}

static void
test_prefixes_draw_and_fade(void **state)
{
    (void)state;
    struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_MAX_SCORE};
    scheduler.weights[GATEWAY_SCORE_PREFIX] = 1;
    struct rig rig = rig_make(&scheduler, idle);
    char prompt[GATEWAY_BLOCK_BYTES * 20];
    uint64_t blocks[GATEWAY_BLOCKS_MAX];
    memset(prompt, 'p', sizeof(prompt));
    struct gateway_ask ask = {.model = 1, .blocks = blocks};
    ask.block_count = gateway_prefix_hash(1, prompt, sizeof(prompt) - 1, blocks);
    assert_int_equal(ask.block_count, 19);
    uint32_t first = choice(&rig, ask);
    prompt[GATEWAY_BLOCK_BYTES * 10] = 'q'; /* the second half differs */
    ask.block_count = gateway_prefix_hash(1, prompt, sizeof(prompt), blocks);
    for (int i = 0; i < DRAWS; i++)
        assert_int_equal(choice(&rig, ask), first);
    assert_int_equal(gateway_counts(rig.core)->blocks_matched, 10 + (DRAWS - 1) * 20);
    ask.block_count = gateway_prefix_hash(2, prompt, sizeof(prompt), blocks); /* another model */
    uint64_t matched = gateway_counts(rig.core)->blocks_matched;
    choice(&rig, ask);
    assert_int_equal(gateway_counts(rig.core)->blocks_matched, matched);
    for (int i = 0; i < 400; i++) { /* more than all endpoints remember */
        memcpy(prompt, &i, sizeof(i));
        ask.block_count = gateway_prefix_hash(1, prompt, sizeof(prompt), blocks);
        choice(&rig, ask);
    }
    memset(prompt, 'p', sizeof(prompt));
    ask.block_count = gateway_prefix_hash(1, prompt, sizeof(prompt), blocks);
    matched = gateway_counts(rig.core)->blocks_matched;
    choice(&rig, ask);
    assert_true(gateway_counts(rig.core)->blocks_matched < matched + 10);
    gateway_destroy(rig.core);
}

static void
test_sessions_stay_until_their_endpoint_dies(void **state)
{
    (void)state;
    struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_MAX_SCORE};
    scheduler.weights[GATEWAY_SCORE_SESSION] = 1;
    struct rig rig = rig_make(&scheduler, idle);
    uint32_t homes[DRAWS];
    uint32_t used[ENDPOINTS + 1] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        homes[i] = choice(&rig, (struct gateway_ask){.model = 1, .session = i + 1});
        assert_int_equal(choice(&rig, (struct gateway_ask){.model = 1, .session = i + 1}),
                         homes[i]);
        used[homes[i]]++;
    }
    assert_true(used[0] > 0 && used[1] > 0 && used[2] > 0);
    uint32_t count;
    gateway_step(rig.core,
                 &(struct gateway_event){.kind = GATEWAY_REMOVED, .now_ms = 3, .endpoint = 1},
                 &count);
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint32_t now = choice(&rig, (struct gateway_ask){.model = 1, .session = i + 1});
        assert_true(homes[i] == 1 ? now != 1 : now == homes[i]);
    }
    gateway_destroy(rig.core);
}

/* E5: three late streams in a row eject, three late long answers do not. */
static void
test_late_answers(void **state)
{
    (void)state;
    struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_MAX_SCORE};
    for (int is_streamed = 0; is_streamed < 2; is_streamed++) {
        struct rig rig = rig_make(&scheduler, idle);
        const uint64_t first = 1; /* the identity of endpoint 0 */
        struct gateway_ask ask = {.subset = &first, .subset_count = 1, .is_streamed = is_streamed};
        struct gateway_view view;
        uint32_t count;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(send(&rig, ask), 0);
            gateway_step(rig.core,
                         &(struct gateway_event){.kind = GATEWAY_TRY_FAILED,
                                                 .now_ms = 2,
                                                 .request = rig.next_request - 1,
                                                 .failure = GATEWAY_FAILED_LATE,
                                                 .ask = ask},
                         &count);
            gateway_look(rig.core, 0, &view);
            assert_int_equal(view.state, is_streamed && i == 2 ? GATEWAY_DOWN : GATEWAY_SUSPECT);
        }
        gateway_check(rig.core);
        gateway_destroy(rig.core);
    }
}

/* A try at endpoint 0; the state that its end leaves. */
static enum gateway_state
fail_at_first(struct rig *rig, enum gateway_port port, enum gateway_failure failure, int64_t now_ms)
{
    static const uint64_t first = 1; /* its identity */
    const struct gateway_ask ask = {.port = port, .subset = &first, .subset_count = 1};
    struct gateway_view view;
    uint32_t count;
    assert_int_equal(send(rig, ask), 0);
    gateway_step(rig->core,
                 &(struct gateway_event){.kind = GATEWAY_TRY_FAILED,
                                         .now_ms = now_ms,
                                         .request = --rig->next_request,
                                         .failure = failure,
                                         .ask = ask},
                 &count);
    gateway_look(rig->core, 0, &view);
    return view.state;
}

/* Whether requests for the port go to endpoint 0 although others are as good. */
static bool
is_used(struct rig *rig, enum gateway_port port, int64_t now_ms)
{
    uint32_t count;
    bool is_used = false;
    gateway_step(rig->core, &(struct gateway_event){.kind = GATEWAY_TICK, .now_ms = now_ms},
                 &count);
    for (int i = 0; i < DRAWS; i++)
        is_used = choice(rig, (struct gateway_ask){.port = port}) == 0 || is_used;
    return is_used;
}

/* E6: a port that scrapes do not ask is shut by itself, for twice as long each time. */
static void
test_ports_are_judged_apart(void **state)
{
    (void)state;
    const struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_RANDOM};
    const enum gateway_port http = GATEWAY_PORT_HTTP;
    const enum gateway_port grpc = GATEWAY_PORT_GRPC;
    struct rig rig = rig_make(&scheduler, idle);
    assert_true(is_used(&rig, grpc, 2));
    assert_int_equal(fail_at_first(&rig, grpc, GATEWAY_FAILED_UNREACHABLE, 1000), GATEWAY_UP);
    assert_false(is_used(&rig, grpc, 1249));
    assert_true(is_used(&rig, http, 1249) && is_used(&rig, grpc, 1250));
    assert_int_equal(fail_at_first(&rig, grpc, GATEWAY_FAILED_UNREACHABLE, 2000), GATEWAY_UP);
    assert_true(!is_used(&rig, grpc, 2499) && is_used(&rig, grpc, 2500));
    uint32_t count;
    const uint64_t first = 1;
    assert_int_equal(
        send(&rig, (struct gateway_ask){.port = grpc, .subset = &first, .subset_count = 1}), 0);
    gateway_step(rig.core,
                 &(struct gateway_event){
                     .kind = GATEWAY_STARTED, .now_ms = 2500, .request = rig.next_request - 1},
                 &count);
    for (int i = 0; i < 3; i++) {
        assert_true(i == 0 || is_used(&rig, http, 3000));
        assert_int_equal(fail_at_first(&rig, grpc, GATEWAY_FAILED_BROKE, 3000),
                         i < 2 ? GATEWAY_SUSPECT : GATEWAY_UP);
        for (int scrapes = i == 0 ? 2 : 1; scrapes > 0; scrapes--) /* one was under way: E3 */
            gateway_step(rig.core, &(struct gateway_event){.kind = GATEWAY_SCRAPED}, &count);
    }
    assert_true(!is_used(&rig, grpc, 3249) && is_used(&rig, grpc, 3250));
    assert_int_equal(gateway_counts(rig.core)->ports_shut, 3);
    assert_int_equal(gateway_counts(rig.core)->ejected, 0);
    assert_int_equal(fail_at_first(&rig, http, GATEWAY_FAILED_UNREACHABLE, 4000), GATEWAY_DOWN);
    gateway_check(rig.core);
    gateway_destroy(rig.core);
}

/* Endpoint 1 becomes a SUSPECT. */
static void
doubt_second(struct rig *rig)
{
    static const uint64_t second = 2; /* its identity */
    const struct gateway_ask ask = {.subset = &second, .subset_count = 1};
    uint32_t count;
    assert_int_equal(send(rig, ask), 1);
    gateway_step(rig->core,
                 &(struct gateway_event){.kind = GATEWAY_TRY_FAILED,
                                         .request = --rig->next_request,
                                         .failure = GATEWAY_FAILED_LATE,
                                         .ask = ask},
                 &count);
}

/* E6: an endpoint whose port is shut is no candidate beside a SUSPECT; alone, it is tried. */
static void
test_a_shut_port_comes_behind_suspects(void **state)
{
    (void)state;
    static const uint64_t identities[] = {1, 2};
    const struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_RANDOM};
    const enum gateway_port grpc = GATEWAY_PORT_GRPC;
    struct rig rig = rig_make(&scheduler, idle);
    struct gateway_ask ask = {.port = grpc, .subset = identities, .subset_count = 2};
    assert_int_equal(fail_at_first(&rig, grpc, GATEWAY_FAILED_UNREACHABLE, 1000), GATEWAY_UP);
    doubt_second(&rig);
    for (int i = 0; i < DRAWS; i++)
        assert_int_equal(choice(&rig, ask), 1);
    ask.port = GATEWAY_PORT_HTTP;
    assert_int_equal(choice(&rig, ask), 0);
    assert_int_equal(fail_at_first(&rig, grpc, GATEWAY_FAILED_UNREACHABLE, 1000), GATEWAY_UP);
    gateway_destroy(rig.core);
}

/* S8 goes before E6: a SUSPECT that lacks the model would answer that there is none. */
static void
test_a_shut_port_comes_before_what_lacks_the_model(void **state)
{
    (void)state;
    static const uint64_t identities[] = {1, 2};
    static const char *const catalogues[ENDPOINTS] = {"a", "b", "a"};
    const struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_RANDOM};
    struct rig rig = rig_make(&scheduler, idle);
    struct gateway_ask ask = {
        .port = GATEWAY_PORT_GRPC, .model = name('a'), .subset = identities, .subset_count = 2};
    list(&rig, 10000, catalogues);
    assert_int_equal(fail_at_first(&rig, ask.port, GATEWAY_FAILED_UNREACHABLE, 10000), GATEWAY_UP);
    doubt_second(&rig);
    for (int i = 0; i < DRAWS; i++)
        assert_int_equal(choice(&rig, ask), 0);
    ask.model = name('b');
    assert_int_equal(choice(&rig, ask), 1);
    gateway_destroy(rig.core);
}

static void
test_filters_and_random_pickers(void **state)
{
    (void)state;
    struct gateway_scheduler scheduler = {.filters = {{.waiting_max = 5, .kv_used_max = .8}},
                                          .filter_count = 1,
                                          .picker = GATEWAY_PICK_RANDOM};
    const struct shown one_fits[] = {{5, 0, 0, ""}, {4, 0, .7, ""}, {0, 0, .8, ""}};
    const struct shown none_fits[] = {{5, 0, 0, ""}, {6, 0, 0, ""}, {0, 0, .9, ""}};
    uint32_t used[ENDPOINTS + 1] = {0};
    struct rig rig = rig_make(&scheduler, one_fits);
    for (int i = 0; i < DRAWS; i++)
        assert_int_equal(choice(&rig, (struct gateway_ask){.model = 1}), 1);
    gateway_destroy(rig.core);
    rig = rig_make(&scheduler, none_fits);
    for (int i = 0; i < DRAWS; i++)
        used[choice(&rig, (struct gateway_ask){.model = 1})]++;
    assert_true(used[0] > 0 && used[1] > 0 && used[2] > 0);
    gateway_destroy(rig.core);
    scheduler = (struct gateway_scheduler){.picker = GATEWAY_PICK_WEIGHTED_RANDOM};
    scheduler.weights[GATEWAY_SCORE_KV_CACHE] = 1;
    const struct shown weights[] = {{0, 0, .1, ""}, {0, 0, .8, ""}, {0, 0, 1, ""}};
    memset(used, 0, sizeof(used));
    rig = rig_make(&scheduler, weights);
    for (int i = 0; i < 10 * DRAWS; i++)
        used[choice(&rig, (struct gateway_ask){.model = 1})]++;
    assert_true(used[0] > 2 * used[1] && used[1] > 20 && used[2] == 0);
    gateway_destroy(rig.core);
}

static void
test_seed_picker(void **state)
{
    (void)state;
    const struct gateway_scheduler scheduler = {.picker = GATEWAY_PICK_SEED, .seed_pending_max = 4};
    const struct shown shown[] = {{0, 0, 0, "AB"}, {7, 0, 0, "A"}, {9, 9, 0, ""}};
    struct rig rig = rig_make(&scheduler, shown);
    struct gateway_ask a = {.model = name('a')};
    uint32_t first =
        send(&rig, a); /* either of those that have it, then the same until it is full */
    assert_true(first < 2);
    for (int i = 1; i < 4; i++)
        assert_int_equal(send(&rig, a), first);
    for (int i = 0; i < 4; i++)
        assert_int_equal(send(&rig, a), 1 - first);
    assert_int_equal(send(&rig, a), 2); /* all are full: the fewest adapters */
    gateway_destroy(rig.core);
    const struct shown alike[] = {{5, 0, 0, "B"}, {4, 0, 0, "B"}, {4, 1, 0, "B"}};
    rig = rig_make(&scheduler, alike);
    assert_int_equal(choice(&rig, a), 1); /* then the least pending */
    gateway_destroy(rig.core);
}

/* S7; an unknown model counts for no adapter; the fallbacks follow in order, within the subset. */
static void
test_subsets_and_fallbacks(void **state)
{
    (void)state;
    const struct gateway_scheduler scheduler = {.weights = {[GATEWAY_SCORE_KV_CACHE] = 1}};
    const struct shown shown[] = {{0, 0, .3, ""}, {0, 0, .1, ""}, {0, 0, .2, ""}};
    const uint64_t identities[] = {1, 3, 99};
    const struct {
        uint32_t subset_count;
        uint32_t chosen;
        uint32_t fallback_count;
        uint32_t fallbacks[2];
    } cases[] = {
        {0, ENDPOINTS, 0, {0}}, {1, 0, 0, {0}}, {3, 2, 1, {0}}, {UINT32_MAX, 1, 2, {2, 0}}};
    struct rig rig = rig_make(&scheduler, shown);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        bool is_any = cases[i].subset_count == UINT32_MAX;
        const struct gateway_ask ask = {.subset = is_any ? NULL : identities,
                                        .subset_count = is_any ? 0 : cases[i].subset_count};
        uint32_t found[ENDPOINTS];
        assert_int_equal(send(&rig, ask), cases[i].chosen);
        if (cases[i].chosen == ENDPOINTS)
            continue;
        assert_int_equal(gateway_fallbacks(rig.core, rig.next_request - 1, &ask, found, ENDPOINTS),
                         cases[i].fallback_count);
        assert_memory_equal(found, cases[i].fallbacks, cases[i].fallback_count * sizeof(found[0]));
        gateway_check(rig.core);
    }
    gateway_destroy(rig.core);
}

/* S8. The bits are the endpoints that may be chosen for `a`. */
static void
test_catalogues(void **state)
{
    (void)state;
    const struct gateway_scheduler scheduler = {.weights = {[GATEWAY_SCORE_KV_CACHE] = 1}};
    const struct shown shown[ENDPOINTS] = {{0, 0, 0, ""}, {0, 0, 0, ""}, {0, 0, 0, ""}};
    const struct {
        const char *catalogues[ENDPOINTS];
        uint32_t chosen;
    } cases[] = {{{NULL, "b", "a"}, 5}, {{"", "b", "c"}, 7},    {{"", "b", "ab"}, 4},
                 {{"b", "a", "a"}, 6},  {{"A", "Ba", "Cb"}, 3}, {{"A", "B", "C"}, 7},
                 {{"a", "a", "a"}, 7}};
    const struct gateway_ask a = {.model = name('a')};
    struct rig rig = rig_make(&scheduler, shown);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint32_t chosen = 0;
        list(&rig, 10000 * (int64_t)(i + 1), cases[i].catalogues);
        for (int k = 0; k < DRAWS; k++)
            chosen |= 1U << choice(&rig, a);
        assert_int_equal(chosen, cases[i].chosen);
    }
    gateway_destroy(rig.core);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_scorer_alone),
        cmocka_unit_test(test_reference_cases),
        cmocka_unit_test(test_reported_adapters_draw_the_seed_picker),
        cmocka_unit_test(test_a_report_replaces_the_count),
        cmocka_unit_test(test_requests_since_the_scrape_count_as_waiting),
        cmocka_unit_test(test_tokens_in_flight_weigh_more_than_requests),
        cmocka_unit_test(test_prefixes_draw_and_fade),
        cmocka_unit_test(test_sessions_stay_until_their_endpoint_dies),
        cmocka_unit_test(test_late_answers),
        cmocka_unit_test(test_ports_are_judged_apart),
        cmocka_unit_test(test_a_shut_port_comes_behind_suspects),
        cmocka_unit_test(test_a_shut_port_comes_before_what_lacks_the_model),
        cmocka_unit_test(test_filters_and_random_pickers),
        cmocka_unit_test(test_seed_picker),
        cmocka_unit_test(test_subsets_and_fallbacks),
        cmocka_unit_test(test_catalogues),
    };
    return cmocka_run_group_tests_name("gateway_schedule", tests, NULL, NULL);
}
