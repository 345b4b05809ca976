/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: candidates, filters, weighted scorers, a picker. Which of them run, and with what
 * weights, is data (struct gateway_scheduler).
 */
#include "base/check.h"
#include "gateway/core/state.h"

const char *const gateway_scorer_names[GATEWAY_SCORER_COUNT] = {
    "queue-scorer",         "running-requests-size-scorer", "kv-cache-utilization-scorer",
    "lora-affinity-scorer", "prefix-cache-scorer",          "session-affinity-scorer",
    "token-load-scorer",    "header-label-affinity-scorer",
};
const char *const gateway_picker_names[GATEWAY_PICKER_COUNT] = {
    "max-score-picker",
    "random-picker",
    "weighted-random-picker",
    "seed-picker",
};

uint64_t
core_random(struct gateway *gateway) /* splitmix64 */
{
    uint64_t z = gateway->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- figures ---- */

static uint32_t
endpoint_running(const struct core_endpoint *endpoint)
{
    return endpoint->running > endpoint->in_flight ? endpoint->running : endpoint->in_flight;
}

/* ---- scorers: 0 to 1 for each candidate ---- */

struct schedule_task {
    struct gateway *gateway;
    const struct gateway_ask *ask;
    uint32_t *at; /* candidates */
    uint32_t count;
    bool is_listed; /* S8: a candidate of this state or a better one lists the model */
};

static struct core_endpoint *
endpoint_of(const struct schedule_task *task, uint32_t candidate)
{
    return &task->gateway->endpoints[task->at[candidate]];
}

/* The fewest score 1, the most 0; 1 if all have the same (S3). */
static void
score_fewest(const struct schedule_task *task, double weight,
             uint32_t (*figure)(const struct core_endpoint *endpoint))
{
    uint32_t min = UINT32_MAX;
    uint32_t max = 0;
    for (uint32_t i = 0; i < task->count; i++) {
        uint32_t value = figure(endpoint_of(task, i));
        min = value < min ? value : min;
        max = value > max ? value : max;
    }
    for (uint32_t i = 0; i < task->count; i++) {
        double room = max - figure(endpoint_of(task, i));
        task->gateway->scores[i] += max == min ? weight : weight * room / (max - min);
    }
}

static void
score_queue(const struct schedule_task *task, double weight)
{
    score_fewest(task, weight, endpoint_waiting);
}

static void
score_running(const struct schedule_task *task, double weight)
{
    score_fewest(task, weight, endpoint_running);
}

static void
score_kv_cache(const struct schedule_task *task, double weight)
{
    for (uint32_t i = 0; i < task->count; i++)
        task->gateway->scores[i] += weight * (1 - endpoint_of(task, i)->kv_used);
}

static void
score_adapter(const struct schedule_task *task, double weight)
{
    for (uint32_t i = 0; i < task->count; i++) {
        struct core_endpoint *endpoint = endpoint_of(task, i);
        const struct core_adapter *adapter = endpoint_adapter(endpoint, task->ask->model);
        bool is_loaded =
            endpoint->base_model == task->ask->model ||
            (adapter != NULL && adapter->is_reported && adapter->state == GATEWAY_ADAPTER_LOADED);
        task->gateway->scores[i] +=
            weight * (is_loaded                                          ? 1
                      : endpoint->adapter_count < endpoint->adapters_max ? 0.8
                      : adapter != NULL                                  ? 0.6
                                                                         : 0);
    }
}

static void
score_prefix(const struct schedule_task *task, double weight)
{
    if (task->ask->block_count == 0)
        return;
    for (uint32_t i = 0; i < task->count; i++)
        task->gateway->scores[i] += weight *
                                    prefix_match(&endpoint_of(task, i)->prefix, task->ask) /
                                    task->ask->block_count;
}

/* Rendezvous hashing (S5): without state, and the same on every gateway with the same endpoints. */
static void
score_session(const struct schedule_task *task, double weight)
{
    uint32_t best = NONE;
    uint64_t most = 0;
    for (uint32_t i = 0; i < task->count && task->ask->session != 0; i++) {
        uint64_t key[2] = {task->ask->session, endpoint_of(task, i)->identity};
        uint64_t hash = gateway_name_hash(key, sizeof(key));
        if (hash > most) {
            most = hash;
            best = i;
        }
    }
    if (best != NONE)
        task->gateway->scores[best] += weight;
}

static void
score_tokens(const struct schedule_task *task, double weight)
{
    double max = task->gateway->config.scheduler.tokens_max;
    for (uint32_t i = 0; i < task->count; i++) {
        double tokens = (double)endpoint_of(task, i)->tokens;
        task->gateway->scores[i] += tokens < max ? weight * (1 - tokens / max) : 0;
    }
}

static void
score_label(const struct schedule_task *task, double weight)
{
    for (uint32_t i = 0; i < task->count && task->ask->label != 0; i++)
        task->gateway->scores[i] += endpoint_of(task, i)->label == task->ask->label ? weight : 0;
}

static void (*const scorers[GATEWAY_SCORER_COUNT])(const struct schedule_task *task,
                                                   double weight) = {
    score_queue,  score_running, score_kv_cache, score_adapter,
    score_prefix, score_session, score_tokens,   score_label,
};

/* ---- pickers: a candidate ---- */

/* Ties are broken at random. */
static uint32_t
pick_max_score(const struct schedule_task *task)
{
    const double *scores = task->gateway->scores;
    uint32_t best = 0;
    uint32_t ties = 1;
    for (uint32_t i = 1; i < task->count; i++) {
        if (scores[i] > scores[best]) {
            best = i;
            ties = 1;
        } else if (scores[i] == scores[best] && core_random(task->gateway) % ++ties == 0) {
            best = i;
        }
    }
    return best;
}

static uint32_t
pick_random(const struct schedule_task *task)
{
    CHECK(task->count > 0);
    return (uint32_t)(core_random(task->gateway) % task->count);
}

static uint32_t
pick_weighted_random(const struct schedule_task *task)
{
    const double *scores = task->gateway->scores;
    double sum = 0;
    for (uint32_t i = 0; i < task->count; i++)
        sum += scores[i];
    if (!(sum > 0))
        return pick_random(task);
    double left = sum * (double)(core_random(task->gateway) >> 11) / (double)(UINT64_C(1) << 53);
    uint32_t pick = 0;
    while (pick + 1 < task->count && left >= scores[pick])
        left -= scores[pick++];
    return pick;
}

/* S6 as scores: the most pending of those that have the adapter and are below the limit; else the
 * fewest adapters, then the least pending. */
static uint32_t
pick_seed(const struct schedule_task *task)
{
    struct gateway *gateway = task->gateway;
    bool any = false;
    for (uint32_t i = 0; i < task->count; i++) {
        struct core_endpoint *endpoint = endpoint_of(task, i);
        const struct core_adapter *adapter = endpoint_adapter(endpoint, task->ask->model);
        uint32_t pending = adapter_pending(adapter);
        bool has = adapter != NULL && pending < gateway->config.scheduler.seed_pending_max;
        gateway->scores[i] = has ? pending : -1.0;
        any = any || has;
    }
    for (uint32_t i = 0; i < task->count && !any; i++) {
        const struct core_endpoint *endpoint = endpoint_of(task, i);
        double pending = (double)endpoint_waiting(endpoint) + endpoint->running;
        gateway->scores[i] = -(double)endpoint->adapter_count - pending / (pending + 1);
    }
    return pick_max_score(task);
}

static uint32_t (*const pickers[GATEWAY_PICKER_COUNT])(const struct schedule_task *task) = {
    pick_max_score,
    pick_random,
    pick_weighted_random,
    pick_seed,
};

/* ---- candidates and filters ---- */

static bool
was_tried(const struct core_request *request, uint32_t endpoint)
{
    for (uint32_t i = 0; i < request->tried_count; i++)
        if (request->tried[i] == endpoint)
            return true;
    return false;
}

/* S7, R2. */
static bool
is_allowed(const struct gateway_ask *ask, const struct core_endpoint *endpoint)
{
    uint32_t i = 0;
    if (ask->pools != 0 && (ask->pools & endpoint->pools) == 0)
        return false;
    while (i < ask->subset_count && ask->subset[i] != endpoint->identity)
        i++;
    return ask->subset == NULL || i < ask->subset_count;
}

static uint32_t
gather(const struct schedule_task *task, const struct core_request *request,
       enum gateway_state state)
{
    struct gateway *gateway = task->gateway;
    uint32_t count = 0;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++)
        if (gateway->endpoints[i].state == state && !was_tried(request, i) &&
            is_allowed(task->ask, &gateway->endpoints[i]))
            gateway->candidates[count++] = i;
    return count;
}

/* Keeps a candidate: swaps it with the first that is not kept, so that nothing is lost (S2). */
static void
keep(const struct schedule_task *task, uint32_t candidate, uint32_t *kept)
{
    uint32_t number = task->at[*kept];
    task->at[(*kept)++] = task->at[candidate];
    task->at[candidate] = number;
}

/* S8. */
static void
drop_unlisted(struct schedule_task *task)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < task->count && !task->is_listed; i++)
        task->is_listed = rollout_listing(endpoint_of(task, i), task->ask->model) == LISTING_HAS;
    for (uint32_t i = 0; task->is_listed && i < task->count; i++)
        if (rollout_listing(endpoint_of(task, i), task->ask->model) != LISTING_LACKS)
            keep(task, i, &kept);
    if (task->is_listed)
        task->count = kept;
}

/* E6. */
static void
drop_shut(struct schedule_task *task)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < task->count; i++)
        if (!port_is_shut(task->gateway, endpoint_of(task, i), task->ask->port))
            keep(task, i, &kept);
    task->count = kept;
}

/* Finds the candidates in the best state that has some. */
static void
gather_best(struct schedule_task *task, const struct core_request *request, enum core_ports ports)
{
    static const enum gateway_state states[] = {GATEWAY_UP, GATEWAY_SUSPECT, GATEWAY_DOWN};
    bool is_open = (task->ask->pools & task->gateway->routes.open_pools) != 0;
    bool any = false;
    for (uint32_t i = 0; i < ARRAY_COUNT(states) && task->count == 0; i++) {
        if (states[i] == GATEWAY_DOWN && (any || !is_open)) /* R6 */
            break;
        task->count = gather(task, request, states[i]); /* S1 */
        any = any || task->count > 0;
        task->gateway->draft.usable_count = task->count;
        drop_unlisted(task);
        if (ports == PORTS_OPEN)
            drop_shut(task);
    }
}

/* S2. */
static void
filter(struct schedule_task *task, const struct gateway_filter *by)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < task->count; i++) {
        const struct core_endpoint *endpoint = endpoint_of(task, i);
        if (endpoint_waiting(endpoint) < by->waiting_max && endpoint->kv_used < by->kv_used_max)
            keep(task, i, &kept);
    }
    if (kept > 0)
        task->count = kept;
}

/* ---- reasons ---- */

/* Adds the weighted score of one scorer to each endpoint. */
static void
score(const struct schedule_task *task, enum gateway_scorer scorer, double weight)
{
    struct gateway *gateway = task->gateway;
    double *parts = gateway->parts;
    if (parts != NULL)
        parts += (size_t)scorer * gateway->config.endpoints_max;
    for (uint32_t i = 0; parts != NULL && i < task->count; i++)
        parts[i] = -gateway->scores[i];
    if (weight > 0)
        scorers[scorer](task, weight);
    for (uint32_t i = 0; parts != NULL && i < task->count; i++)
        parts[i] += gateway->scores[i];
}

static struct gateway_reason
reason_of(const struct schedule_task *task, uint32_t candidate)
{
    const struct gateway *gateway = task->gateway;
    struct gateway_reason reason = {.endpoint = task->at[candidate],
                                    .total = gateway->scores[candidate]};
    for (uint32_t i = 0; i < GATEWAY_SCORER_COUNT; i++)
        reason.parts[i] = gateway->parts[(size_t)i * gateway->config.endpoints_max + candidate];
    return reason;
}

/* The chosen one, then the others in the order of their scores. */
static void
keep_reasons(const struct schedule_task *task, uint32_t pick)
{
    struct gateway_choice *draft = &task->gateway->draft;
    draft->candidate_count = task->count;
    draft->reasons[0] = reason_of(task, pick);
    draft->reason_count = 1;
    for (uint32_t i = 0; i < task->count; i++) {
        double total = task->gateway->scores[i];
        uint32_t at = draft->reason_count;
        while (at > 1 && draft->reasons[at - 1].total < total)
            at--;
        if (i == pick || at == GATEWAY_REASONS_MAX)
            continue;
        uint32_t last = draft->reason_count < GATEWAY_REASONS_MAX ? draft->reason_count++
                                                                  : GATEWAY_REASONS_MAX - 1;
        for (; last > at; last--)
            draft->reasons[last] = draft->reasons[last - 1];
        draft->reasons[at] = reason_of(task, i);
    }
}

uint32_t
schedule(struct gateway *gateway, const struct core_request *request, const struct gateway_ask *ask,
         enum core_ports ports)
{
    const struct gateway_scheduler *data = &gateway->config.scheduler;
    struct schedule_task task = {.gateway = gateway, .ask = ask, .at = gateway->candidates};
    gather_best(&task, request, ports);
    if (task.count == 0)
        return NONE;
    for (uint32_t i = 0; i < data->filter_count; i++)
        filter(&task, &data->filters[i]);
    CHECK(task.count > 0); /* S2 */
    for (uint32_t i = 0; i < task.count; i++)
        gateway->scores[i] = 0;
    for (enum gateway_scorer i = 0; i < GATEWAY_SCORER_COUNT; i++)
        score(&task, i, data->weights[i]);
    uint32_t pick = pickers[data->picker](&task);
    CHECK(pick < task.count);
    if (gateway->parts != NULL)
        keep_reasons(&task, pick);
    return task.at[pick];
}

uint32_t
gateway_fallbacks(struct gateway *gateway, uint32_t number, const struct gateway_ask *ask,
                  uint32_t *endpoints, uint32_t max)
{
    CHECK(number < gateway->config.requests_max);
    struct core_request request = gateway->requests[number];
    struct gateway_ask routed = *ask;
    uint32_t count = 0;
    uint32_t last = request.endpoint;
    route_apply(&request, &routed);
    while (count < max && request.tried_count < GATEWAY_TRIES_MAX) {
        request.tried[request.tried_count++] = last;
        last = schedule(gateway, &request, &routed, PORTS_OPEN);
        if (last == NONE)
            last = schedule(gateway, &request, &routed, PORTS_ANY);
        if (last == NONE)
            break;
        endpoints[count++] = last;
    }
    return count;
}
