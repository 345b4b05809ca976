/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the gain of adapter-aware routing: servers that hold three adapters each, fifteen
   adapters of
 * which the first five get 60 % of the requests, the next 30 %, the last 10 %; no shared prefixes.
 * The servers are tests/llm-server on virtual time. Prints the time to the first token that nine of
 * ten requests stay below, for several schedulers and shares of the pool's capacity; capacity is
 * what the pool completes of the base model.
 *
 *     lora_mix [REQUESTS [LOAD_MS]]
 *
 * REQUESTS, 20000 by default, are those of each of three seeds; an adapter loads in LOAD_MS, 500 by
 * default, during which its server does nothing else. Exits 1 if the default scheduler is not the
 * best one at each load.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "base/check.h"
#include "gateway/config/picker_config.h"
#include "gateway/core/gateway_core.h"

enum {
    SERVERS = 10,
    SLOTS = 3,
    ADAPTERS = 15,
    OPEN_MAX = 65536,
    BATCH_MAX = 256,
    KV_TOKENS = 2810 * 16 - 512,
    SCRAPE_US = 1000,
    START_US = 1000000,
    PROMPT_MIN = 50,
    PROMPT_SPAN = 300,
    ANSWER_MIN = 50,
    ANSWER_SPAN = 260,
    SEEDS = 3,
    BASE_MODEL = 1000,
};

enum mix_route { BY_CORE, ROUND_ROBIN };

static int64_t load_ms = 500;

struct policy {
    const char *name;
    enum mix_route route;
    bool sees_activity; /* as the reference: adapters with requests, not those loaded */
    struct gateway_scheduler scheduler;
};

struct job {
    int64_t arrived_us;
    uint32_t adapter; /* 0: the base model */
    uint32_t prompt;
    uint32_t left;
    uint32_t made;
    uint32_t server;
    bool is_open;
    bool was_seen; /* its first token */
};

struct slot {
    uint32_t adapter;
    int64_t used_us;
};

struct engine {
    uint32_t waiting[OPEN_MAX];
    uint32_t waiting_count;
    uint32_t running[BATCH_MAX];
    uint32_t running_count;
    struct slot slots[SLOTS];
    int64_t step_ends_us; /* 0: idle */
    int64_t scraped_us;   /* 0: no scrape is under way */
};

struct mix {
    const struct policy *policy;
    uint64_t random;
    int64_t now_us;
    struct gateway *core;
    struct engine engines[SERVERS];
    struct job jobs[OPEN_MAX];
    uint32_t free[OPEN_MAX];
    uint32_t free_count;
    uint32_t next_server;
    double rate; /* per second */
    bool only_base;
    uint32_t arrivals_left;
    int64_t arrives_us;
    uint64_t completed;
    int64_t load_us;
    uint64_t loads;
    double *waits_ms; /* to the first tokens */
    uint32_t wait_count;
};

/* ---- the servers, as in tests/llm-server ---- */

static uint64_t
kv_used(const struct mix *mix, const struct engine *engine)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < engine->running_count; i++) {
        const struct job *job = &mix->jobs[engine->running[i]];
        tokens += job->prompt + job->made;
    }
    return tokens;
}

static bool
is_running(const struct mix *mix, const struct engine *engine, uint32_t adapter)
{
    for (uint32_t i = 0; i < engine->running_count; i++)
        if (mix->jobs[engine->running[i]].adapter == adapter)
            return true;
    return false;
}

/* Adds the time that it takes. False: all slots are in use. */
static bool
place_adapter(struct mix *mix, struct engine *engine, uint32_t adapter, int64_t *at_us)
{
    struct slot *oldest = NULL;
    for (int i = 0; i < SLOTS && adapter != 0; i++) {
        struct slot *slot = &engine->slots[i];
        if (slot->adapter == adapter) {
            slot->used_us = *at_us;
            return true;
        }
        bool is_free = slot->adapter == 0 || !is_running(mix, engine, slot->adapter);
        if (is_free && (oldest == NULL || slot->used_us < oldest->used_us))
            oldest = slot;
    }
    if (adapter == 0)
        return true;
    if (oldest == NULL)
        return false;
    *at_us += mix->load_us;
    mix->loads++;
    *oldest = (struct slot){adapter, *at_us};
    return true;
}

static int64_t
admit(struct mix *mix, struct engine *engine, int64_t at_us)
{
    uint32_t kept = 0;
    bool is_over = false;
    for (uint32_t i = 0; i < engine->waiting_count; i++) {
        uint32_t number = engine->waiting[i];
        const struct job *job = &mix->jobs[number];
        is_over = is_over || engine->running_count == BATCH_MAX ||
                  (engine->running_count > 0 && kv_used(mix, engine) + job->prompt > KV_TOKENS);
        if (is_over || !place_adapter(mix, engine, job->adapter, &at_us)) {
            engine->waiting[kept++] = number;
            continue;
        }
        engine->running[engine->running_count++] = number;
        at_us += (int64_t)(1e6 * fmax(0.04, 6.769e-5 * job->prompt + 0.01969));
    }
    engine->waiting_count = kept;
    return at_us;
}

static void
engine_begin(struct mix *mix, struct engine *engine)
{
    engine->step_ends_us = 0;
    if (engine->waiting_count == 0 && engine->running_count == 0)
        return;
    int64_t at_us = admit(mix, engine, mix->now_us);
    double decode =
        5.353e-7 * (double)kv_used(mix, engine) + 1.0265e-4 * engine->running_count + 0.014;
    engine->step_ends_us = at_us + (int64_t)(1e6 * decode);
}

/* ---- the gateway ---- */

static void step(struct mix *mix, struct gateway_event event);

static void
enqueue(struct mix *mix, uint32_t number, uint32_t server)
{
    struct engine *engine = &mix->engines[server];
    mix->jobs[number].server = server;
    engine->waiting[engine->waiting_count++] = number;
    if (engine->step_ends_us == 0)
        engine_begin(mix, engine);
}

static void
step(struct mix *mix, struct gateway_event event)
{
    uint32_t count;
    event.now_ms = mix->now_us / 1000;
    const struct gateway_action *actions = gateway_step(mix->core, &event, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (actions[i].kind == GATEWAY_SCRAPE)
            mix->engines[actions[i].endpoint].scraped_us = mix->now_us + SCRAPE_US;
        if (actions[i].kind == GATEWAY_SEND)
            enqueue(mix, actions[i].request, actions[i].endpoint);
        CHECK(actions[i].kind != GATEWAY_REFUSE);
    }
}

static void
show_adapter(struct gateway_figures *figures, struct gateway_adapter *adapters, uint32_t adapter,
             enum gateway_adapter_state state)
{
    for (uint32_t i = 0; i < figures->adapter_count; i++)
        if (adapters[i].name == adapter)
            return;
    if (figures->adapter_count < GATEWAY_ADAPTERS_MAX && adapter != 0)
        adapters[figures->adapter_count++] = (struct gateway_adapter){adapter, state, 0};
}

static void
scrape_ends(struct mix *mix, uint32_t number)
{
    struct engine *engine = &mix->engines[number];
    struct gateway_adapter adapters[GATEWAY_ADAPTERS_MAX];
    struct gateway_figures figures = {.is_known = true,
                                      .waiting = engine->waiting_count,
                                      .running = engine->running_count,
                                      .kv_used = (double)kv_used(mix, engine) / KV_TOKENS,
                                      .base_model = BASE_MODEL,
                                      .adapters_max = SLOTS,
                                      .adapters = adapters};
    for (int i = 0; i < SLOTS; i++)
        if (!mix->policy->sees_activity || is_running(mix, engine, engine->slots[i].adapter))
            show_adapter(&figures, adapters, engine->slots[i].adapter, GATEWAY_ADAPTER_LOADED);
    for (uint32_t i = 0; i < engine->waiting_count; i++)
        show_adapter(&figures, adapters, mix->jobs[engine->waiting[i]].adapter,
                     GATEWAY_ADAPTER_WAITING);
    engine->scraped_us = 0;
    step(mix,
         (struct gateway_event){.kind = GATEWAY_SCRAPED, .endpoint = number, .figures = figures});
}

static void
job_ends(struct mix *mix, uint32_t number)
{
    mix->jobs[number].is_open = false;
    mix->completed++;
    if (mix->policy->route == BY_CORE)
        step(mix, (struct gateway_event){
                      .kind = GATEWAY_ENDED, .request = number, .end = GATEWAY_END_OK});
    mix->free[mix->free_count++] = number;
}

/* Each running job gets a token. */
static void
engine_step(struct mix *mix, struct engine *engine)
{
    uint32_t kept = 0;
    uint32_t ended[BATCH_MAX];
    uint32_t ended_count = 0;
    for (uint32_t i = 0; i < engine->running_count; i++) {
        uint32_t number = engine->running[i];
        struct job *job = &mix->jobs[number];
        job->made++;
        if (!job->was_seen) {
            job->was_seen = true;
            mix->waits_ms[mix->wait_count++] = (double)(mix->now_us - job->arrived_us) / 1000;
            if (mix->policy->route == BY_CORE)
                step(mix, (struct gateway_event){.kind = GATEWAY_STARTED, .request = number});
        }
        if (--job->left > 0)
            engine->running[kept++] = number;
        else
            ended[ended_count++] = number;
    }
    engine->running_count = kept;
    for (uint32_t i = 0; i < ended_count; i++)
        job_ends(mix, ended[i]);
    engine_begin(mix, engine);
}

static uint32_t
draw_adapter(struct mix *mix)
{
    double share = random_unit(&mix->random);
    uint32_t group = share < 0.6 ? 0 : share < 0.9 ? 1 : 2;
    return 1 + group * (ADAPTERS / 3) + (uint32_t)(random_draw(&mix->random) % (ADAPTERS / 3));
}

static void
arrive(struct mix *mix)
{
    mix->arrives_us = mix->now_us + (int64_t)(-log(random_unit(&mix->random)) / mix->rate * 1e6);
    mix->arrivals_left--;
    CHECK(mix->free_count > 0);
    uint32_t number = mix->free[--mix->free_count];
    struct job *job = &mix->jobs[number];
    *job = (struct job){.is_open = true, .arrived_us = mix->now_us};
    job->adapter = mix->only_base ? 0 : draw_adapter(mix);
    job->prompt = PROMPT_MIN + (uint32_t)(random_draw(&mix->random) % PROMPT_SPAN);
    job->left = ANSWER_MIN + (uint32_t)(random_draw(&mix->random) % ANSWER_SPAN);
    if (mix->policy->route == ROUND_ROBIN) {
        enqueue(mix, number, mix->next_server++ % SERVERS);
        return;
    }
    struct gateway_ask ask = {.model = job->adapter != 0 ? job->adapter : BASE_MODEL,
                              .tokens = job->prompt};
    step(mix, (struct gateway_event){.kind = GATEWAY_REQUEST, .request = number, .ask = ask});
}

/* ---- a run ---- */

static void
happen(struct mix *mix)
{
    int64_t tick_ms = gateway_next_ms(mix->core);
    int64_t next_us = tick_ms < INT64_MAX / 1000 ? tick_ms * 1000 : INT64_MAX;
    uint32_t ends = SERVERS;
    uint32_t scrape = SERVERS;
    bool arrives = mix->arrivals_left > 0 && mix->arrives_us < next_us;
    if (arrives)
        next_us = mix->arrives_us;
    for (uint32_t i = 0; i < SERVERS; i++) {
        const struct engine *engine = &mix->engines[i];
        if (engine->step_ends_us > 0 && engine->step_ends_us < next_us) {
            next_us = engine->step_ends_us;
            ends = i;
            scrape = SERVERS;
        }
        if (engine->scraped_us > 0 && engine->scraped_us < next_us) {
            next_us = engine->scraped_us;
            scrape = i;
            ends = SERVERS;
        }
    }
    mix->now_us = next_us > mix->now_us ? next_us : mix->now_us;
    if (scrape < SERVERS)
        scrape_ends(mix, scrape);
    else if (ends < SERVERS)
        engine_step(mix, &mix->engines[ends]);
    else if (arrives)
        arrive(mix);
    else
        step(mix, (struct gateway_event){.kind = GATEWAY_TICK});
}

static struct mix *
mix_create(const struct policy *policy, uint64_t seed, double rate, uint32_t requests)
{
    const struct gateway_config config = {.seed = seed,
                                          .endpoints_max = SERVERS,
                                          .requests_max = OPEN_MAX,
                                          .tries_max = 1,
                                          .prefix_blocks_max = 8,
                                          .scrape_ms_min = 50,
                                          .scrape_ms_max = 5000,
                                          .scheduler = policy->scheduler};
    struct mix *mix = calloc(1, sizeof(*mix));
    CHECK(mix != NULL);
    mix->policy = policy;
    mix->random = seed;
    mix->now_us = START_US;
    mix->arrives_us = START_US + 10 * SCRAPE_US; /* when all endpoints are up */
    mix->core = gateway_create(&config);
    mix->rate = rate;
    mix->load_us = load_ms * 1000;
    mix->arrivals_left = requests;
    mix->waits_ms = calloc(requests, sizeof(*mix->waits_ms));
    CHECK(mix->waits_ms != NULL);
    for (uint32_t i = 0; i < OPEN_MAX; i++)
        mix->free[mix->free_count++] = i;
    for (uint32_t i = 0; i < SERVERS; i++)
        step(mix, (struct gateway_event){.kind = GATEWAY_ADDED, .endpoint = i, .identity = i + 1});
    return mix;
}

static void
mix_destroy(struct mix *mix)
{
    gateway_destroy(mix->core);
    free(mix->waits_ms);
    free(mix);
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The wait that 90 % of the requests after the first fifth stay below; adds to `loads`. */
static double
run(const struct policy *policy, uint64_t seed, double rate, uint32_t requests, uint64_t *loads)
{
    struct mix *mix = mix_create(policy, seed, rate, requests);
    while (mix->completed < requests)
        happen(mix);
    uint32_t skipped = requests / 5;
    uint32_t count = mix->wait_count - skipped;
    qsort(mix->waits_ms + skipped, count, sizeof(*mix->waits_ms), compare);
    double wait_ms = mix->waits_ms[skipped + count * 9 / 10];
    *loads += mix->loads;
    mix_destroy(mix);
    return wait_ms;
}

/* Requests per second of the base model, when there are always enough. */
static double
capacity(const struct policy *policy)
{
    enum { REQUESTS = 20000 };
    struct mix *mix = mix_create(policy, 1, 100 * REQUESTS, REQUESTS);
    mix->only_base = true;
    while (mix->completed < REQUESTS * 9 / 10) /* the last ones leave servers idle */
        happen(mix);
    double seconds = (double)(mix->now_us - START_US) / 1e6;
    mix_destroy(mix);
    return REQUESTS * 9 / 10 / seconds;
}

int
main(int count, char **arguments)
{
    static const double loads[] = {0.5, 0.6, 0.7, 0.8, 0.9};
    static struct policy policies[] = {
        {.name = "the default", .route = BY_CORE},
        {.name = "round robin", .route = ROUND_ROBIN},
        {.name = "seed-picker",
         .route = BY_CORE,
         .scheduler = {.picker = GATEWAY_PICK_SEED, .seed_pending_max = 100000}},
        {.name = "seed-picker, threshold 16",
         .route = BY_CORE,
         .scheduler = {.picker = GATEWAY_PICK_SEED, .seed_pending_max = 16}},
        {.name = "reference",
         .route = BY_CORE,
         .sees_activity = true,
         .scheduler = {.weights = {[GATEWAY_SCORE_QUEUE] = 2,
                                   [GATEWAY_SCORE_KV_CACHE] = 2,
                                   [GATEWAY_SCORE_PREFIX] = 3}}},
        {.name = "reference, lora-affinity",
         .route = BY_CORE,
         .sees_activity = true,
         .scheduler = {.weights = {[GATEWAY_SCORE_QUEUE] = 2,
                                   [GATEWAY_SCORE_KV_CACHE] = 2,
                                   [GATEWAY_SCORE_ADAPTER] = 2,
                                   [GATEWAY_SCORE_PREFIX] = 3}}},
    };
    uint32_t requests = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : 20000;
    load_ms = count > 2 ? strtol(arguments[2], NULL, 10) : load_ms;
    struct gateway_flow_control unused;
    double best[ARRAY_COUNT(loads)];
    bool is_best = true;
    picker_config_init(&policies[0].scheduler, &unused);
    double per_second = capacity(&policies[0]);
    printf("p90 of the time to the first token, ms; capacity %.1f requests per second\n%-26s",
           per_second, "");
    for (size_t i = 0; i < ARRAY_COUNT(loads); i++)
        printf("%9.1f", loads[i]);
    printf("   adapters loaded per 1000 requests\n");
    for (size_t k = 0; k < ARRAY_COUNT(policies); k++) {
        uint64_t loaded[ARRAY_COUNT(loads)] = {0};
        printf("%-26s", policies[k].name);
        for (size_t i = 0; i < ARRAY_COUNT(loads); i++) {
            double sum = 0;
            for (uint64_t seed = 1; seed <= SEEDS; seed++)
                sum += run(&policies[k], seed, loads[i] * per_second, requests, &loaded[i]);
            printf("%9.0f", sum / SEEDS);
            best[i] = k == 0 ? sum : best[i];
            is_best = is_best && (k == 0 || best[i] < sum);
        }
        for (size_t i = 0; i < ARRAY_COUNT(loads); i++)
            printf("%s%.0f", i == 0 ? "   " : " ", 1000.0 * (double)loaded[i] / SEEDS / requests);
        printf("\n");
        fflush(stdout);
    }
    return is_best ? EXIT_SUCCESS : EXIT_FAILURE;
}
