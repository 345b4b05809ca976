/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that wait (F3 to F6): bands by priority and pools, in each a heap of flows by the
 * service that they got, in each of these a heap of requests in their order.
 *
 * A flow outlives its requests, or a tenant that sends one request at a time would never be charged
 * for the last. There are twice as many flows as requests; of those without one, the flow that has
 * been idle longest gives its memory to a new one.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/core/state.h"

#define OWNER(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* The reference's estimate of an answer, which ignores what the client asks for. */
enum { OUTPUT_TOKENS = 128 };

enum { OPENED_LOOKS = 256 }; /* in one step */

const char *const gateway_fairness_names[GATEWAY_FAIRNESS_COUNT] = {
    "global-strict-fairness-policy",
    "round-robin-fairness-policy",
    "vtc-fairness-policy",
};
const char *const gateway_ordering_names[GATEWAY_ORDERING_COUNT] = {
    "fcfs-ordering-policy",
    "edf-ordering-policy",
    "slo-deadline-ordering-policy",
};
const uint32_t gateway_wait_buckets_ms[GATEWAY_WAIT_BUCKETS] = {1,    10,   50,    100,   250,
                                                                1000, 5000, 10000, 30000, 60000};

/* ---- bands ---- */

/* The band of a request, made if need be; NULL: there are too many. */
static struct core_band *
band_find(struct gateway *gateway, const struct gateway_ask *ask)
{
    int32_t priority = ask->priority;
    uint64_t pools = route_pools(gateway, ask);
    const struct gateway_flow_control *control = &gateway->config.flow_control;
    const struct gateway_band *config = priority < 0 ? &control->other_negative : &control->other;
    struct core_band *spare = NULL;
    for (uint32_t i = 0; i < control->band_count; i++)
        if (control->bands[i].priority == priority)
            config = &control->bands[i];
    for (uint32_t i = 0; i < GATEWAY_BANDS_MAX; i++) {
        struct core_band *band = &gateway->queue.bands[i];
        if (band->is_used && band->config.priority == priority &&
            band->is_raised == ask->is_raised && band->pools == pools)
            return band;
        bool is_better = spare == NULL || (spare->is_used && !band->is_used);
        if (!band->is_configured && band->count == 0 && is_better)
            spare = band;
    }
    if (spare == NULL)
        return NULL;
    *spare = (struct core_band){
        .is_used = true, .is_raised = ask->is_raised, .pools = pools, .config = *config};
    spare->config.priority = priority;
    spare->epoch = ++gateway->queue.order;
    return spare;
}

/* ---- flows ---- */

static void
flow_rest(struct core_queue *queue, struct core_flow *flow)
{
    flow->newer = &queue->idle;
    flow->older = queue->idle.older;
    flow->older->newer = flow;
    queue->idle.older = flow;
}

static void
flow_wake(struct core_flow *flow)
{
    flow->newer->older = flow->older;
    flow->older->newer = flow->newer;
    flow->newer = flow->older = NULL;
}

static uint64_t
flow_hash(const struct gateway *gateway, uint64_t id, const struct core_band *band)
{
    uint64_t key[5] = {gateway->config.seed, id, (uint64_t)(int64_t)band->config.priority,
                       band->is_raised, band->pools};
    return gateway_name_hash(key, sizeof(key));
}

static struct core_flow *
flow_find(struct gateway *gateway, uint64_t id, const struct core_band *band)
{
    struct core_queue *queue = &gateway->queue;
    uint64_t hash = flow_hash(gateway, id, band);
    struct hash_entry *entry = hash_table_first(&queue->named, hash);
    for (; entry != NULL; entry = hash_table_next(entry)) {
        struct core_flow *known = (struct core_flow *)entry;
        if (known->id == id && known->priority == band->config.priority &&
            known->is_raised == band->is_raised && known->pools == band->pools)
            return known;
    }
    struct core_flow *flow = queue->idle.newer;
    CHECK(flow != &queue->idle); /* there are more flows than requests */
    if (flow->is_named)
        hash_table_remove(&queue->named, &flow->entry);
    flow->is_named = true;
    flow->id = id;
    flow->priority = band->config.priority;
    flow->is_raised = band->is_raised;
    flow->pools = band->pools;
    flow->epoch = UINT64_MAX;
    hash_table_add(&queue->named, &flow->entry, hash);
    return flow;
}

/* F4: a flow that comes back starts where the least served one is, and so cannot claim the time in
 * which it had no requests. */
static void
flow_join(struct gateway *gateway, struct core_flow *flow, struct core_band *band)
{
    int64_t least = band->flows != NULL ? band->flows->key : band->served;
    flow_wake(flow);
    flow->band = band;
    if (flow->epoch != band->epoch)
        flow->in_band.key = INT64_MIN;
    flow->epoch = band->epoch;
    if (band->config.fairness == GATEWAY_FAIR_ROUND_ROBIN)
        flow->in_band.key = ++band->turns;
    else if (flow->in_band.key < least)
        flow->in_band.key = least;
    flow->in_band.order = gateway->queue.order++;
    pairing_heap_push(&band->flows, &flow->in_band);
}

static void
flow_charge(struct gateway *gateway, struct core_flow *flow, const struct gateway_ask *ask)
{
    struct core_band *band = flow->band;
    double cost = band->config.input_weight * (double)ask->tokens +
                  band->config.output_weight * OUTPUT_TOKENS;
    int64_t charged = cost < 1 ? 1 : cost < 1e12 ? (int64_t)cost : (int64_t)1e12;
    band->served = flow->in_band.key;
    pairing_heap_remove(&band->flows, &flow->in_band);
    if (band->config.fairness == GATEWAY_FAIR_ROUND_ROBIN)
        flow->in_band.key = ++band->turns;
    else
        flow->in_band.key += charged;
    flow->in_band.order = gateway->queue.order++;
    pairing_heap_push(&band->flows, &flow->in_band);
}

/* ---- requests ---- */

static bool
is_room(uint64_t used, uint64_t more, uint64_t max)
{
    return max == 0 || (used <= max && more <= max - used);
}

/* All bands of a priority share its limits. */
static bool
has_room(const struct core_queue *queue, const struct core_band *band, uint64_t bytes)
{
    uint64_t requests = 0;
    uint64_t used = 0;
    for (uint32_t i = 0; i < GATEWAY_BANDS_MAX; i++)
        if (queue->bands[i].config.priority == band->config.priority) {
            requests += queue->bands[i].count;
            used += queue->bands[i].bytes;
        }
    return is_room(requests, 1, band->config.requests_max) &&
           is_room(used, bytes, band->config.bytes_max);
}

static int64_t
order_key(const struct core_request *request, enum gateway_ordering ordering)
{
    if (ordering == GATEWAY_ORDER_TTL)
        return request->by_expiry.key;
    if (ordering == GATEWAY_ORDER_SLO)
        return request->ask.slo_ms > 0 ? request->queued_ms + request->ask.slo_ms : INT64_MAX;
    return request->queued_ms;
}

static int64_t
ttl_of(const struct gateway *gateway, const struct core_request *request,
       const struct core_band *band)
{
    return request->had_endpoint ? band->config.ttl_ms
                                 : gateway->config.flow_control.no_endpoint_ttl_ms;
}

/* Its times and the keys of its heaps are set. */
static void
request_enter(struct gateway *gateway, struct core_request *request, struct core_band *band)
{
    struct core_queue *queue = &gateway->queue;
    bool is_shared = band->config.fairness == GATEWAY_FAIR_STRICT;
    struct core_flow *flow = flow_find(gateway, is_shared ? 0 : request->ask.flow, band);
    request->flow = flow;
    if (flow->waiting == NULL)
        flow_join(gateway, flow, band);
    pairing_heap_push(&flow->waiting, &request->in_flow);
    pairing_heap_push(&queue->expiry, &request->by_expiry);
    queue->count++;
    queue->bytes += request->ask.bytes;
    band->count++;
    band->bytes += request->ask.bytes;
}

bool
queue_add(struct gateway *gateway, uint32_t number, const struct gateway_ask *ask)
{
    const struct gateway_flow_control *control = &gateway->config.flow_control;
    struct core_queue *queue = &gateway->queue;
    struct core_request *request = &gateway->requests[number];
    struct core_band *band = band_find(gateway, ask);
    if (band == NULL || !is_room(queue->count, 1, control->requests_max) ||
        !is_room(queue->bytes, ask->bytes, control->bytes_max) ||
        !has_room(queue, band, ask->bytes))
        return false;
    request->state = REQUEST_QUEUED;
    request->ask = *ask;
    request->queued_ms = gateway->now_ms;
    request->had_endpoint = pools_have_endpoint(gateway, band->pools);
    request->by_expiry.key = gateway->now_ms + ttl_of(gateway, request, band);
    request->by_expiry.order = request->in_flow.order = queue->order++;
    request->in_flow.key = order_key(request, band->config.ordering);
    request_enter(gateway, request, band);
    return true;
}

void
queue_remove(struct gateway *gateway, uint32_t number)
{
    struct core_queue *queue = &gateway->queue;
    struct core_request *request = &gateway->requests[number];
    struct core_flow *flow = request->flow;
    struct core_band *band = flow->band;
    CHECK(request->state == REQUEST_QUEUED);
    pairing_heap_remove(&queue->expiry, &request->by_expiry);
    pairing_heap_remove(&flow->waiting, &request->in_flow);
    queue->count--;
    queue->bytes -= request->ask.bytes;
    band->count--;
    band->bytes -= request->ask.bytes;
    request->flow = NULL;
    if (flow->waiting != NULL)
        return;
    pairing_heap_remove(&band->flows, &flow->in_band);
    flow->band = NULL;
    flow_rest(queue, flow);
}

static uint32_t
number_of(const struct gateway *gateway, const struct core_request *request)
{
    return (uint32_t)(request - gateway->requests);
}

static const struct core_request *
first_of(const struct core_band *band)
{
    const struct core_flow *flow = OWNER(band->flows, struct core_flow, in_band);
    return OWNER(flow->waiting, struct core_request, in_flow);
}

/* F3, O2; of other pools, the one that has waited longer. */
static bool
is_before(const struct core_band *band, const struct core_band *other)
{
    if (band->config.priority != other->config.priority)
        return band->config.priority > other->config.priority;
    if (band->is_raised != other->is_raised)
        return band->is_raised;
    return first_of(band)->in_flow.order < first_of(other)->in_flow.order;
}

/* The first band with pools that are not among `seen`, or with none; NULL: there is none. */
static const struct core_band *
next_band(const struct gateway *gateway, uint64_t seen)
{
    const struct core_band *best = NULL;
    for (uint32_t i = 0; i < GATEWAY_BANDS_MAX; i++) {
        const struct core_band *band = &gateway->queue.bands[i];
        bool may_follow = band->count > 0 && (band->pools == 0 || (band->pools & ~seen) != 0);
        if (may_follow && (best == NULL || is_before(band, best)))
            best = band;
    }
    return best;
}

/* A request without pools leaves to be refused. */
static bool
has_way(const struct gateway *gateway, const struct core_band *band)
{
    return band->pools == 0 ||
           (pools_have_endpoint(gateway, band->pools) &&
            gateway_pool_saturation(gateway, band->pools) < gateway->config.flow_control.threshold);
}

/* Bands whose pools have all been seen are passed over: their endpoints are awaited, or they have
 * none. So endpoints are walked for 64 bands at most. */
uint32_t
queue_first(const struct gateway *gateway)
{
    uint64_t seen = 0;
    uint64_t awaited = 0; /* pools with an endpoint for which others wait already */
    const struct core_band *band = next_band(gateway, 0);
    for (; band != NULL; band = next_band(gateway, seen)) {
        if ((band->pools & awaited) == 0 && has_way(gateway, band))
            return number_of(gateway, first_of(band));
        seen |= band->pools;
        awaited |= pools_sharing(gateway, band->pools);
    }
    return NONE;
}

void
queue_reopen(struct gateway *gateway)
{
    gateway->queue.opened_at = gateway->routes.open_pools != 0 ? 0 : gateway->config.requests_max;
}

uint32_t
queue_opened(struct gateway *gateway)
{
    struct core_queue *queue = &gateway->queue;
    for (uint32_t i = 0; i < OPENED_LOOKS && queue->opened_at < gateway->config.requests_max; i++) {
        uint32_t number = queue->opened_at++;
        const struct core_request *request = &gateway->requests[number];
        if (request->state == REQUEST_QUEUED && route_is_open(gateway, &request->ask))
            return number;
    }
    return NONE;
}

/* Without a free band a request stays where it is. */
void
queue_regroup(struct gateway *gateway)
{
    for (uint32_t i = 0; i < gateway->config.requests_max && gateway->queue.count > 0; i++) {
        struct core_request *request = &gateway->requests[i];
        if (request->state != REQUEST_QUEUED ||
            request->flow->pools == route_pools(gateway, &request->ask))
            continue;
        struct core_band *band = band_find(gateway, &request->ask);
        if (band == NULL)
            continue;
        queue_remove(gateway, i);
        request_enter(gateway, request, band);
    }
}

void
queue_serve(struct gateway *gateway, uint32_t number)
{
    struct core_request *request = &gateway->requests[number];
    struct core_band *band = request->flow->band;
    int64_t waited_ms = gateway->now_ms - request->queued_ms;
    uint32_t bucket = 0;
    while (bucket < GATEWAY_WAIT_BUCKETS && waited_ms > gateway_wait_buckets_ms[bucket])
        bucket++;
    band->waits[bucket]++;
    band->waited_ms += (uint64_t)waited_ms;
    flow_charge(gateway, request->flow, &request->ask);
    queue_remove(gateway, number);
}

/* F6: one that outlived its time waits on if meanwhile another time applies. */
static bool
is_over(struct gateway *gateway, struct core_request *request)
{
    bool has_endpoint = pools_have_endpoint(gateway, request->flow->pools);
    if (has_endpoint == request->had_endpoint)
        return true;
    request->had_endpoint = has_endpoint;
    int64_t until_ms = request->queued_ms + ttl_of(gateway, request, request->flow->band);
    if (until_ms <= gateway->now_ms)
        return true;
    pairing_heap_remove(&gateway->queue.expiry, &request->by_expiry);
    request->by_expiry.key = until_ms;
    pairing_heap_push(&gateway->queue.expiry, &request->by_expiry);
    return false;
}

uint32_t
queue_expired(struct gateway *gateway)
{
    const struct core_queue *queue = &gateway->queue;
    if (queue->expiry == NULL || queue->expiry->key > gateway->now_ms)
        return NONE;
    struct core_request *request = OWNER(queue->expiry, struct core_request, by_expiry);
    return is_over(gateway, request) ? number_of(gateway, request) : NONE;
}

/* ---- life ---- */

void
queue_init(struct gateway *gateway)
{
    const struct gateway_flow_control *control = &gateway->config.flow_control;
    struct core_queue *queue = &gateway->queue;
    uint32_t flow_count = 2 * gateway->config.requests_max;
    if (!control->is_on)
        return;
    CHECK(control->threshold > 0 && control->band_count <= GATEWAY_BANDS_CONFIGURED_MAX);
    queue->flows = calloc(flow_count, sizeof(*queue->flows));
    CHECK(queue->flows != NULL);
    queue->idle.newer = queue->idle.older = &queue->idle;
    for (uint32_t i = 0; i < flow_count; i++)
        flow_rest(queue, &queue->flows[i]);
    for (uint32_t i = 0; i < control->band_count; i++)
        queue->bands[i] = (struct core_band){.is_used = true,
                                             .is_configured = true,
                                             .pools = GATEWAY_ALL_POOLS,
                                             .config = control->bands[i]};
}

void
queue_fini(struct gateway *gateway)
{
    hash_table_fini(&gateway->queue.named);
    free(gateway->queue.flows);
}

/* F6: it waits for one of two times, and no longer. */
static void
check_queued(const struct gateway *gateway, const struct core_request *request)
{
    const struct core_flow *flow = request->flow;
    CHECK(flow->band != NULL && flow->waiting != NULL);
    CHECK(flow->band->config.priority == request->ask.priority);
    CHECK(flow->pools == flow->band->pools && flow->is_raised == flow->band->is_raised);
    CHECK(request->by_expiry.key == request->queued_ms + ttl_of(gateway, request, flow->band));
}

/* A flow is in the list of idle ones, or in a band. */
static void
check_flows(const struct gateway *gateway)
{
    const struct core_queue *queue = &gateway->queue;
    uint32_t idle = 0;
    uint32_t listed = 0;
    for (uint32_t i = 0; i < 2 * gateway->config.requests_max; i++) {
        const struct core_flow *flow = &queue->flows[i];
        CHECK((flow->band == NULL) == (flow->waiting == NULL));
        CHECK((flow->band == NULL) == (flow->newer != NULL));
        idle += flow->band == NULL;
    }
    for (const struct core_flow *flow = queue->idle.newer; flow != &queue->idle;
         flow = flow->newer) {
        CHECK(flow->newer->older == flow);
        listed++;
    }
    CHECK(listed == idle);
}

void
queue_check(const struct gateway *gateway)
{
    const struct core_queue *queue = &gateway->queue;
    uint32_t count = 0;
    uint32_t in_bands = 0;
    uint64_t bytes = 0;
    uint64_t bytes_in_bands = 0;
    for (uint32_t i = 0; i < gateway->config.requests_max; i++) {
        const struct core_request *request = &gateway->requests[i];
        if (request->state != REQUEST_QUEUED) {
            CHECK(request->flow == NULL);
            continue;
        }
        count++;
        bytes += request->ask.bytes;
        check_queued(gateway, request);
    }
    for (uint32_t i = 0; i < GATEWAY_BANDS_MAX; i++) {
        in_bands += queue->bands[i].count;
        bytes_in_bands += queue->bands[i].bytes;
        CHECK((queue->bands[i].count == 0) == (queue->bands[i].flows == NULL));
    }
    CHECK(count == queue->count && bytes == queue->bytes);
    CHECK(in_bands == count && bytes_in_bands == bytes);
    CHECK((count == 0) == (queue->expiry == NULL));
    if (gateway->config.flow_control.is_on)
        check_flows(gateway);
}
