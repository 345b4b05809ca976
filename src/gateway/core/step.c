/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step. endpoint_enter alone changes an endpoint's state:
 *
 *     FREE -> DOWN <-> UP <-> SUSPECT -> DOWN;   any -> LEAVING -> FREE
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/core/state.h"

enum {
    PROBE_MS = 250,    /* C4: the first probe after an ejection */
    SCRAPE_SHARE = 10, /* C3: without requests, at most one tenth of the time */
    JITTER_DIVISOR = 4,
    FAILURES_MAX = 3, /* E5 */
};

/* ---- actions ---- */

/* A step scrapes each endpoint and rolls out to it once, and acts three times more on one or two.
 */
static size_t
actions_max(const struct gateway_config *config)
{
    return 2 * (size_t)config->endpoints_max + 8;
}

static struct gateway_action *
act(struct gateway *gateway, enum gateway_action_kind kind, uint32_t endpoint)
{
    CHECK(gateway->action_count < actions_max(&gateway->config));
    struct gateway_action *action = &gateway->actions[gateway->action_count++];
    *action = (struct gateway_action){
        .kind = kind, .endpoint = endpoint, .request = NONE, .target = NONE};
    return action;
}

static struct core_endpoint *
endpoint_at(struct gateway *gateway, uint32_t number)
{
    CHECK(number < gateway->config.endpoints_max);
    return &gateway->endpoints[number];
}

static struct core_request *
request_at(struct gateway *gateway, uint32_t number)
{
    CHECK(number < gateway->config.requests_max);
    return &gateway->requests[number];
}

/* ---- endpoints ---- */

/* E2. Its own counts of requests in flight stay: these requests are real. */
static void
endpoint_forget(struct core_endpoint *endpoint)
{
    endpoint->is_known = false;
    endpoint->waiting = 0;
    endpoint->running = 0;
    endpoint->kv_used = 0;
    endpoint->base_model = 0;
    endpoint->adapters_max = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < endpoint->adapter_count; i++)
        if (endpoint->adapters[i].in_flight > 0) {
            endpoint->adapters[kept] = endpoint->adapters[i];
            endpoint->adapters[kept].pending = 0;
            endpoint->adapters[kept++].is_reported = false;
        }
    endpoint->adapter_count = kept;
    prefix_clear(&endpoint->prefix);
    rollout_forget(endpoint);
}

static void
endpoint_enter(struct gateway *gateway, uint32_t number, enum gateway_state state)
{
    static const bool edges[][GATEWAY_LEAVING + 1] = {
        [GATEWAY_FREE] = {[GATEWAY_DOWN] = true},
        [GATEWAY_DOWN] = {[GATEWAY_UP] = true, [GATEWAY_LEAVING] = true},
        [GATEWAY_SUSPECT] = {[GATEWAY_UP] = true, [GATEWAY_DOWN] = true, [GATEWAY_LEAVING] = true},
        [GATEWAY_UP] = {[GATEWAY_SUSPECT] = true, [GATEWAY_DOWN] = true, [GATEWAY_LEAVING] = true},
        [GATEWAY_LEAVING] = {[GATEWAY_FREE] = true},
    };
    struct core_endpoint *endpoint = endpoint_at(gateway, number);
    CHECK(edges[endpoint->state][state]);
    CHECK(state != GATEWAY_FREE ||
          (endpoint->in_flight == 0 && !endpoint->is_scraping && !endpoint->rollout.is_busy));
    gateway->counts.ejected += state == GATEWAY_DOWN && (endpoint->state == GATEWAY_UP ||
                                                         endpoint->state == GATEWAY_SUSPECT);
    gateway->counts.returned += state == GATEWAY_UP && endpoint->state == GATEWAY_DOWN;
    endpoint->state = state;
    queue_reopen(gateway);
    act(gateway, GATEWAY_CHANGED, number)->state = state;
}

/* E1: what no client can cause ejects at once. */
static void
eject(struct gateway *gateway, uint32_t number)
{
    struct core_endpoint *endpoint = endpoint_at(gateway, number);
    if (endpoint->state != GATEWAY_UP && endpoint->state != GATEWAY_SUSPECT)
        return;
    endpoint_enter(gateway, number, GATEWAY_DOWN);
    endpoint_forget(endpoint);
    endpoint->is_void = endpoint->is_scraping;
    endpoint->delay_ms = PROBE_MS;
    endpoint->next_ms = gateway->now_ms + PROBE_MS;
}

/* E4: a request may itself be the reason, so the endpoint is asked at once, and used meanwhile only
 * if no other is left. */
static void
doubt(struct gateway *gateway, uint32_t number)
{
    struct core_endpoint *endpoint = endpoint_at(gateway, number);
    if (endpoint->state != GATEWAY_UP)
        return;
    endpoint_enter(gateway, number, GATEWAY_SUSPECT);
    endpoint->is_void = endpoint->is_scraping;
    endpoint->next_ms = gateway->now_ms;
}

/* E6: a scrape could not tell when it is well again. */
static void
eject_port(struct gateway *gateway, uint32_t number, enum gateway_port port)
{
    struct core_endpoint *endpoint = endpoint_at(gateway, number);
    if (endpoint->ports[port].is_apart)
        port_shut(gateway, endpoint, port);
    else
        eject(gateway, number);
}

static void
suspect(struct gateway *gateway, uint32_t number, enum gateway_port port)
{
    if (++endpoint_at(gateway, number)->ports[port].failures >= FAILURES_MAX) /* E5 */
        eject_port(gateway, number, port);
    else
        doubt(gateway, number);
}

/* A removed endpoint's number is free when nothing refers to it. */
static void
leave_look(struct gateway *gateway, uint32_t number)
{
    struct core_endpoint *endpoint = endpoint_at(gateway, number);
    if (endpoint->state != GATEWAY_LEAVING || endpoint->in_flight > 0 || endpoint->is_scraping ||
        endpoint->rollout.is_busy)
        return;
    endpoint_enter(gateway, number, GATEWAY_FREE);
    prefix_fini(&endpoint->prefix);
    while (gateway->endpoint_limit > 0 &&
           gateway->endpoints[gateway->endpoint_limit - 1].state == GATEWAY_FREE)
        gateway->endpoint_limit--;
    act(gateway, GATEWAY_FREED, number);
}

static void
on_added(struct gateway *gateway, const struct gateway_event *event)
{
    uint32_t number = event->endpoint;
    struct core_endpoint *endpoint = endpoint_at(gateway, number);
    CHECK(endpoint->state == GATEWAY_FREE);
    memset(endpoint, 0, sizeof(*endpoint));
    if (number >= gateway->endpoint_limit)
        gateway->endpoint_limit = number + 1;
    prefix_init(&endpoint->prefix, gateway->config.prefix_blocks_max);
    endpoint_enter(gateway, number, GATEWAY_DOWN);
    endpoint->identity = event->identity;
    endpoint->label = event->label;
    endpoint->pools = event->pools;
    for (uint32_t i = 0; i < GATEWAY_PORT_COUNT; i++)
        endpoint->ports[i].is_apart = (event->apart & 1u << i) != 0;
    endpoint->next_ms = gateway->now_ms;
    endpoint->delay_ms = PROBE_MS;
}

/* ---- scrapes ---- */

static int64_t
clamp(int64_t value, int64_t min, int64_t max)
{
    return value < min ? min : value > max ? max : value;
}

/* C1 to C3: often while requests were sent since the last scrape began and there is a choice to be
 * made; else ever more rarely. */
static void
plan_scrape(struct gateway *gateway, struct core_endpoint *endpoint)
{
    const struct gateway_config *config = &gateway->config;
    bool is_down = endpoint->state == GATEWAY_DOWN;
    bool is_used = endpoint->sent != endpoint->sent_at_begin || endpoint->in_flight > 0 ||
                   gateway->queue.count > 0;
    int64_t took_ms = gateway->now_ms - endpoint->began_ms;
    int64_t delay_ms = is_down || !is_used ? 2 * endpoint->delay_ms : config->scrape_ms_min;
    if (delay_ms < SCRAPE_SHARE * took_ms)
        delay_ms = SCRAPE_SHARE * took_ms;
    endpoint->delay_ms = clamp(delay_ms, config->scrape_ms_min, config->scrape_ms_max);
    uint64_t spread = (uint64_t)(endpoint->delay_ms / JITTER_DIVISOR) + 1;
    endpoint->next_ms =
        gateway->now_ms + endpoint->delay_ms - (int64_t)(core_random(gateway) % spread);
}

/* C2: a request makes fresh figures useful again. */
static void
hasten_scrapes(struct gateway *gateway)
{
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        struct core_endpoint *endpoint = &gateway->endpoints[i];
        int64_t soon_ms = endpoint->began_ms + gateway->config.scrape_ms_min;
        if (endpoint->state != GATEWAY_UP || endpoint->is_scraping ||
            endpoint->next_ms <= soon_ms || endpoint->delay_ms <= gateway->config.scrape_ms_min)
            continue;
        endpoint->delay_ms = gateway->config.scrape_ms_min;
        endpoint->next_ms = soon_ms > gateway->now_ms ? soon_ms : gateway->now_ms;
    }
}

static void
on_tick(struct gateway *gateway)
{
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        struct core_endpoint *endpoint = &gateway->endpoints[i];
        struct gateway_action due;
        if (rollout_next(gateway, endpoint, &due)) {
            struct gateway_action *action = act(gateway, due.kind, i);
            action->adapter = due.adapter;
        }
        if (endpoint->state == GATEWAY_FREE || endpoint->state == GATEWAY_LEAVING ||
            endpoint->is_scraping || endpoint->next_ms > gateway->now_ms)
            continue;
        endpoint->is_scraping = true;
        endpoint->is_void = false;
        endpoint->began_ms = gateway->now_ms;
        endpoint->sent_at_begin = endpoint->sent;
        gateway->counts.scrapes++;
        act(gateway, GATEWAY_SCRAPE, i);
    }
}

static void
take_adapters(struct gateway *gateway, struct core_endpoint *endpoint,
              const struct gateway_adapter *adapters, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < endpoint->adapter_count; i++)
        if (endpoint->adapters[i].in_flight > 0) {
            endpoint->adapters[kept] = endpoint->adapters[i];
            endpoint->adapters[kept].pending = 0;
            endpoint->adapters[kept++].is_reported = false;
        }
    endpoint->adapter_count = kept;
    for (uint32_t i = 0; i < count; i++) {
        const struct gateway_adapter *reported = &adapters[i];
        struct core_adapter *adapter = endpoint_adapter(endpoint, reported->name);
        if (adapter == NULL && endpoint->adapter_count == GATEWAY_ADAPTERS_MAX) {
            gateway->counts.adapters_ignored++;
            continue;
        }
        if (adapter == NULL) {
            adapter = &endpoint->adapters[endpoint->adapter_count++];
            *adapter = (struct core_adapter){.name = reported->name};
        }
        if (!adapter->is_reported || adapter->state == GATEWAY_ADAPTER_WAITING)
            adapter->state = reported->state;
        if (adapter->pending < reported->pending)
            adapter->pending = reported->pending;
        adapter->is_reported = true;
    }
}

static void
take_figures(struct gateway *gateway, struct core_endpoint *endpoint,
             const struct gateway_figures *figures)
{
    endpoint->is_known = figures->is_known;
    endpoint->seen_ms = gateway->now_ms;
    endpoint->waiting = figures->waiting;
    endpoint->running = figures->running;
    bool is_share = figures->kv_used >= 0 && figures->kv_used <= 1; /* false also for NaN */
    endpoint->kv_used = is_share ? figures->kv_used : figures->kv_used > 1 ? 1 : 0;
    endpoint->base_model = figures->base_model;
    rollout_list(endpoint, figures);
    endpoint->adapters_max = figures->adapters_max;
    endpoint->sent_seen = endpoint->sent_at_begin;
    take_adapters(gateway, endpoint, figures->adapters, figures->adapter_count);
}

static void
on_scraped(struct gateway *gateway, const struct gateway_event *event)
{
    uint32_t number = event->endpoint;
    struct core_endpoint *endpoint = endpoint_at(gateway, number);
    CHECK(endpoint->is_scraping);
    endpoint->is_scraping = false;
    if (endpoint->state == GATEWAY_LEAVING) {
        leave_look(gateway, number);
        return;
    }
    if (endpoint->is_void && event->kind == GATEWAY_SCRAPED) /* E3 */
        return;
    if (event->kind == GATEWAY_SCRAPE_FAILED) {
        gateway->counts.scrapes_failed++;
        if (endpoint->state == GATEWAY_DOWN)
            plan_scrape(gateway, endpoint);
        else
            eject(gateway, number);
        return;
    }
    if (endpoint->state != GATEWAY_UP) {
        endpoint->delay_ms = gateway->config.scrape_ms_min;
        endpoint_enter(gateway, number, GATEWAY_UP);
    }
    take_figures(gateway, endpoint, &event->figures);
    plan_scrape(gateway, endpoint);
}

static void
on_removed(struct gateway *gateway, uint32_t number)
{
    endpoint_enter(gateway, number, GATEWAY_LEAVING);
    leave_look(gateway, number);
}

static void
on_adapter(struct gateway *gateway, const struct gateway_event *event)
{
    rollout_done(gateway, endpoint_at(gateway, event->endpoint), event->kind);
    leave_look(gateway, event->endpoint);
}

/* ---- requests ---- */

static void
count_adapter(struct core_endpoint *endpoint, struct core_request *request, uint64_t model)
{
    request->adapter = 0;
    if (model == 0 || model == endpoint->base_model)
        return;
    struct core_adapter *adapter = endpoint_adapter(endpoint, model);
    if (adapter == NULL && endpoint->adapter_count == GATEWAY_ADAPTERS_MAX)
        return;
    if (adapter == NULL) {
        adapter = &endpoint->adapters[endpoint->adapter_count++];
        *adapter = (struct core_adapter){.name = model, .state = GATEWAY_ADAPTER_WAITING};
    }
    adapter->in_flight++;
    request->adapter = model;
}

static void
uncount_adapter(struct core_endpoint *endpoint, const struct core_request *request)
{
    struct core_adapter *adapter =
        request->adapter != 0 ? endpoint_adapter(endpoint, request->adapter) : NULL;
    if (adapter == NULL)
        return;
    CHECK(adapter->in_flight > 0);
    if (--adapter->in_flight == 0 && !adapter->is_reported)
        *adapter = endpoint->adapters[--endpoint->adapter_count];
}

/* The try under way is over. */
static uint32_t
take_back(struct gateway *gateway, struct core_request *request)
{
    uint32_t number = request->endpoint;
    struct core_endpoint *endpoint = endpoint_at(gateway, number);
    CHECK(endpoint->in_flight > 0 && endpoint->tokens >= request->tokens);
    endpoint->in_flight--;
    endpoint->tokens -= request->tokens;
    uncount_adapter(endpoint, request);
    if (endpoint->rollout.ours_count > 0) /* L3 */
        endpoint->rollout.is_complete = false;
    request->endpoint = NONE;
    return number;
}

static void
request_free(struct core_request *request)
{
    *request = (struct core_request){.state = REQUEST_FREE, .endpoint = NONE};
}

static void
refuse(struct gateway *gateway, uint32_t number, enum gateway_refusal refusal)
{
    struct core_request *request = request_at(gateway, number);
    CHECK(!gateway->has_refused && request->endpoint == NONE && request->flow == NULL);
    struct gateway_action *action = act(gateway, GATEWAY_REFUSE, NONE);
    action->request = number;
    action->refusal = refusal;
    gateway->counts.refused++;
    gateway->has_refused = true;
    request_free(request);
}

/* T2. */
static enum gateway_refusal
refusal_of(const struct core_request *request)
{
    uint32_t reached = request->tries - request->unreachable_count;
    uint32_t declined = request->busy_count + request->absent_count;
    bool are_busy = request->busy_count > 0 && declined == reached;
    return request->tries == 0                       ? GATEWAY_REFUSED_NO_ENDPOINT
           : request->absent_count == request->tries ? GATEWAY_REFUSED_UNKNOWN
           : are_busy                                ? GATEWAY_REFUSED_BUSY
                                                     : GATEWAY_REFUSED_FAILED;
}

/* A prompt and its answer, as the reference estimates them. */
static uint64_t
tokens_in_flight(uint64_t prompt)
{
    return prompt < UINT32_MAX ? prompt * 5 / 2 : UINT32_MAX;
}

static void
keep_choice(struct gateway *gateway, uint32_t number, const struct gateway_ask *ask)
{
    const struct core_request *request = &gateway->requests[number];
    CHECK(gateway->choice_count < CHOICES_MAX);
    struct gateway_choice *choice = &gateway->choices[gateway->choice_count++];
    *choice = gateway->draft;
    choice->request = number;
    choice->endpoint = request->endpoint;
    choice->model = ask->model;
    choice->priority = ask->priority;
    choice->tries = request->tries;
}

static void
count_send(struct gateway *gateway, const struct core_request *request,
           const struct core_endpoint *endpoint, const struct gateway_ask *ask)
{
    gateway->counts.sent++;
    gateway->counts.retried += request->tries > 0;
    gateway->counts.blocks += ask->block_count;
    gateway->counts.blocks_matched += prefix_match(&endpoint->prefix, ask);
}

/* T1: sends it to the best endpoint that it has not tried, or refuses it. */
static void
place(struct gateway *gateway, uint32_t number, const struct gateway_ask *asked)
{
    struct core_request *request = request_at(gateway, number);
    struct gateway_ask routed = *asked;
    const struct gateway_ask *ask = &routed;
    uint32_t target;
    bool may_try = request->tries < route_tries_max(gateway, asked);
    uint32_t chosen = may_try ? route_schedule(gateway, request, &routed, &target) : NONE;
    if (chosen == NONE) {
        routed = *asked;
        bool is_admitted = request->tries > 0 || route_admit(gateway, &routed);
        refuse(gateway, number, is_admitted ? refusal_of(request) : GATEWAY_REFUSED_UNKNOWN);
        return;
    }
    struct core_endpoint *endpoint = &gateway->endpoints[chosen];
    CHECK(request->endpoint == NONE && request->flow == NULL);
    CHECK(endpoint->state != GATEWAY_FREE && endpoint->state != GATEWAY_LEAVING); /* S1 */
    count_send(gateway, request, endpoint, ask);
    request->tries++;
    request->state = REQUEST_SENT;
    request->endpoint = chosen;
    request->port = ask->port;
    endpoint->in_flight++;
    request->tokens = tokens_in_flight(ask->tokens);
    request->model = asked->model;
    request->prompt_tokens = ask->tokens;
    endpoint->tokens += request->tokens;
    endpoint->sent++;
    count_adapter(endpoint, request, ask->model);
    if (endpoint->state != GATEWAY_DOWN)    /* E2 */
        prefix_add(&endpoint->prefix, ask); /* S4 */
    if (gateway->config.keeps_reasons)
        keep_choice(gateway, number, asked);
    struct gateway_action *action = act(gateway, GATEWAY_SEND, chosen);
    action->request = number;
    action->target = target;
}

/* Returns whether its pools are saturated and it goes to none of them all the same. */
static bool
lacks_room(const struct gateway *gateway, const struct gateway_ask *ask)
{
    uint64_t pools = route_pools(gateway, ask);
    return pools != 0 && gateway_pool_saturation(gateway, pools) >= 1 &&
           !route_is_open(gateway, ask);
}

/* F1, O3. */
static bool
is_shed(const struct gateway *gateway, const struct gateway_ask *ask)
{
    return (ask->priority < 0 || objective_sheds(gateway, ask)) && lacks_room(gateway, ask);
}

static void
on_request(struct gateway *gateway, const struct gateway_event *event)
{
    CHECK(request_at(gateway, event->request)->state == REQUEST_FREE);
    CHECK(event->ask.block_count <= GATEWAY_BLOCKS_MAX);
    struct gateway_ask ask = event->ask;
    request_at(gateway, event->request)->arrived_ms = gateway->now_ms;
    ask.is_raised = objective_raises(gateway, &ask);
    hasten_scrapes(gateway);
    if (!route_admit(gateway, &ask)) { /* R1 */
        gateway->counts.unknown++;
        refuse(gateway, event->request, GATEWAY_REFUSED_UNKNOWN);
    } else if (share_exceeded(gateway, ask.model) && lacks_room(gateway, &ask)) {
        gateway->counts.share_exceeded++; /* F7 */
        refuse(gateway, event->request, GATEWAY_REFUSED_SHARE);
    } else if (gateway->config.flow_control.is_on && route_pools(gateway, &ask) != 0 &&
               !route_is_open(gateway, &ask)) {
        if (queue_add(gateway, event->request, &ask)) {
            gateway->counts.queued++;
            return;
        }
        gateway->counts.queue_full++;
        refuse(gateway, event->request, GATEWAY_REFUSED_QUEUE_FULL);
    } else if (is_shed(gateway, &ask)) {
        gateway->counts.shed++;
        refuse(gateway, event->request, GATEWAY_REFUSED_SHED);
    } else {
        place(gateway, event->request, &ask);
    }
}

/* F3: at most one request leaves the queue in a step, so that a step is short; as long as another
 * may follow, the next tick is due at once. */
static void
on_queue(struct gateway *gateway)
{
    struct core_queue *queue = &gateway->queue;
    queue->is_eager = queue->count > 0 && gateway->has_refused;
    if (queue->count == 0 || gateway->has_refused)
        return;
    uint32_t expired = queue_expired(gateway);
    if (expired != NONE) {
        uint64_t pools = request_at(gateway, expired)->flow->pools;
        gateway->counts.queue_expired++;
        queue_remove(gateway, expired);
        refuse(gateway, expired,
               pools_have_endpoint(gateway, pools) ? GATEWAY_REFUSED_EXPIRED
                                                   : GATEWAY_REFUSED_NO_ENDPOINT);
        queue->is_eager = queue->count > 0;
        return;
    }
    uint32_t first = queue_opened(gateway);
    if (first == NONE)
        first = queue_first(gateway);
    queue->is_eager = first != NONE || queue->opened_at < gateway->config.requests_max;
    if (first == NONE)
        return;
    struct gateway_ask ask = request_at(gateway, first)->ask;
    queue_serve(gateway, first);
    place(gateway, first, &ask);
    queue->is_eager = queue->count > 0;
}

static void
on_try_failed(struct gateway *gateway, const struct gateway_event *event)
{
    struct core_request *request = request_at(gateway, event->request);
    CHECK(request->state == REQUEST_SENT);
    uint32_t endpoint = take_back(gateway, request);
    if (event->failure == GATEWAY_FAILED_UNREACHABLE)
        eject_port(gateway, endpoint, request->port);
    else if (event->failure == GATEWAY_FAILED_LATE && !event->ask.is_streamed) /* E5 */
        doubt(gateway, endpoint);
    else if (event->failure == GATEWAY_FAILED_BROKE || event->failure == GATEWAY_FAILED_LATE)
        suspect(gateway, endpoint, request->port);
    request->busy_count += event->failure == GATEWAY_FAILED_BUSY;
    request->absent_count += event->failure == GATEWAY_FAILED_ABSENT;
    request->unreachable_count += event->failure == GATEWAY_FAILED_UNREACHABLE;
    request->tried[request->tried_count++] = endpoint;
    route_fail(gateway, request, event);
    place(gateway, event->request, &event->ask);
    leave_look(gateway, endpoint);
}

/* S3: newer than the last scrape. A report without a queue leaves the count of what was sent. */
static void
take_report(struct gateway *gateway, struct core_endpoint *endpoint,
            const struct gateway_report *report)
{
    if (endpoint->state != GATEWAY_UP && endpoint->state != GATEWAY_SUSPECT) /* E2 */
        return;
    if (report->has_waiting) {
        endpoint->is_known = true;
        endpoint->waiting = report->waiting;
        endpoint->sent_seen = endpoint->sent;
    }
    if (report->has_kv_used && report->kv_used >= 0) /* false also for NaN */
        endpoint->kv_used = report->kv_used < 1 ? report->kv_used : 1;
    if (report->has_running)
        endpoint->running = report->running;
    if (report->has_adapters)
        take_adapters(gateway, endpoint, report->adapters, report->adapter_count);
}

static void
on_ended(struct gateway *gateway, const struct gateway_event *event)
{
    struct core_request *request = request_at(gateway, event->request);
    if (request->state == REQUEST_QUEUED) {
        CHECK(event->end == GATEWAY_END_CANCELLED);
        gateway->counts.queue_left++;
        queue_remove(gateway, event->request);
        request_free(request);
        return;
    }
    CHECK(request->state == REQUEST_STARTED ||
          (request->state == REQUEST_SENT && event->end == GATEWAY_END_CANCELLED));
    uint32_t endpoint = take_back(gateway, request);
    if (event->end == GATEWAY_END_OK) {
        take_report(gateway, endpoint_at(gateway, endpoint), &event->report);
        share_count(gateway, request, event);
        objective_count(gateway, request, event);
    }
    if (event->end == GATEWAY_END_BROKE)
        suspect(gateway, endpoint, request->port);
    request_free(request);
    leave_look(gateway, endpoint);
}

static void
on_started(struct gateway *gateway, const struct gateway_event *event)
{
    struct core_request *request = request_at(gateway, event->request);
    CHECK(request->state == REQUEST_SENT);
    request->state = REQUEST_STARTED; /* T3 */
    struct core_endpoint *endpoint = endpoint_at(gateway, request->endpoint);
    port_succeed(endpoint, request->port);
    take_report(gateway, endpoint, &event->report);
}

/* ---- the step ---- */

const struct gateway_action *
gateway_step(struct gateway *gateway, const struct gateway_event *event, uint32_t *count)
{
    if (event->now_ms > gateway->now_ms)
        gateway->now_ms = event->now_ms;
    gateway->action_count = gateway->choice_count = 0;
    gateway->has_refused = false;
    objective_roll(gateway);
    switch (event->kind) {
    case GATEWAY_TICK: break;
    case GATEWAY_ROUTED:
        route_take(gateway, event->routes);
        queue_regroup(gateway);
        queue_reopen(gateway);
        break;
    case GATEWAY_ADDED: on_added(gateway, event); break;
    case GATEWAY_REMOVED: on_removed(gateway, event->endpoint); break;
    case GATEWAY_SCRAPED:
    case GATEWAY_SCRAPE_FAILED: on_scraped(gateway, event); break;
    case GATEWAY_ADAPTER_DONE:
    case GATEWAY_ADAPTER_FAILED: on_adapter(gateway, event); break;
    case GATEWAY_REQUEST: on_request(gateway, event); break;
    case GATEWAY_TRY_FAILED: on_try_failed(gateway, event); break;
    case GATEWAY_STARTED: on_started(gateway, event); break;
    case GATEWAY_ENDED: on_ended(gateway, event); break;
    }
    on_queue(gateway);
    on_tick(gateway);
    *count = gateway->action_count;
    return gateway->actions;
}

int64_t
gateway_next_ms(const struct gateway *gateway)
{
    const struct core_queue *queue = &gateway->queue;
    int64_t next_ms = INT64_MAX;
    if (queue->expiry != NULL)
        next_ms = queue->is_eager || queue->expiry->key < gateway->now_ms ? gateway->now_ms
                                                                          : queue->expiry->key;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        const struct core_endpoint *endpoint = &gateway->endpoints[i];
        bool waits = endpoint->state != GATEWAY_FREE && endpoint->state != GATEWAY_LEAVING &&
                     !endpoint->is_scraping;
        if (waits && endpoint->next_ms < next_ms)
            next_ms = endpoint->next_ms;
        int64_t rollout_ms = rollout_next_ms(gateway, endpoint);
        next_ms = rollout_ms < next_ms ? rollout_ms : next_ms;
    }
    return next_ms;
}

struct gateway *
gateway_create(const struct gateway_config *config)
{
    CHECK(config->tries_max >= 1 && config->tries_max <= GATEWAY_TRIES_MAX);
    CHECK(config->share_window_ms >= 0 && config->scrape_ms_min > 0 &&
          config->scrape_ms_min <= config->scrape_ms_max);
    struct gateway *gateway = calloc(1, sizeof(*gateway));
    CHECK(gateway != NULL);
    gateway->config = *config;
    gateway->random = config->seed;
    gateway->endpoints = calloc(config->endpoints_max, sizeof(*gateway->endpoints));
    gateway->requests = calloc(config->requests_max, sizeof(*gateway->requests));
    gateway->actions = calloc(actions_max(config), sizeof(*gateway->actions));
    gateway->scores = calloc(config->endpoints_max, sizeof(*gateway->scores));
    gateway->candidates = calloc(config->endpoints_max, sizeof(*gateway->candidates));
    if (config->keeps_reasons) {
        gateway->parts =
            calloc((size_t)GATEWAY_SCORER_COUNT * config->endpoints_max, sizeof(*gateway->parts));
        CHECK(gateway->parts != NULL);
    }
    CHECK(gateway->endpoints != NULL && gateway->requests != NULL && gateway->actions != NULL &&
          gateway->scores != NULL && gateway->candidates != NULL);
    for (uint32_t i = 0; i < config->requests_max; i++)
        request_free(&gateway->requests[i]);
    queue_init(gateway);
    route_init(gateway);
    return gateway;
}

void
gateway_destroy(struct gateway *gateway)
{
    if (gateway == NULL)
        return;
    for (uint32_t i = 0; i < gateway->config.endpoints_max; i++)
        prefix_fini(&gateway->endpoints[i].prefix);
    queue_fini(gateway);
    route_fini(gateway);
    free(gateway->endpoints);
    free(gateway->requests);
    free(gateway->actions);
    free(gateway->scores);
    free(gateway->candidates);
    free(gateway->parts);
    free(gateway);
}
