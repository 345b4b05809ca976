/* SPDX-License-Identifier: Apache-2.0 */
/* How full the pool is (F2), by the reference's formulas, over the endpoints that S1 would choose
 * from. */
#include "gateway/core/state.h"

const char *const gateway_detector_names[GATEWAY_DETECTOR_COUNT] = {
    "utilization-detector",
    "concurrency-detector",
};

static enum gateway_state
state_used(const struct gateway *gateway)
{
    enum gateway_state best = GATEWAY_DOWN;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        enum gateway_state state = gateway->endpoints[i].state;
        if (state == GATEWAY_UP)
            return state;
        if (state == GATEWAY_SUSPECT)
            best = state;
    }
    return best;
}

bool
pool_has_endpoint(const struct gateway *gateway)
{
    return state_used(gateway) != GATEWAY_DOWN;
}

/* Figures age only while requests of ours may change them. */
static bool
is_stale(const struct gateway *gateway, const struct core_endpoint *endpoint)
{
    bool is_used = endpoint->in_flight > 0 || endpoint->sent != endpoint->sent_seen;
    return is_used &&
           gateway->now_ms - endpoint->seen_ms > gateway->config.flow_control.saturation.stale_ms;
}

static double
larger(double a, double b)
{
    return a > b ? a : b;
}

static double
utilization(const struct gateway *gateway, enum gateway_state state)
{
    const struct gateway_saturation *by = &gateway->config.flow_control.saturation;
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        const struct core_endpoint *endpoint = &gateway->endpoints[i];
        if (endpoint->state != state)
            continue;
        bool stale = is_stale(gateway, endpoint);
        if (stale && by->ignores_stale)
            continue;
        count++;
        sum += stale ? 1
                     : larger(endpoint_waiting(endpoint) / by->waiting_max,
                              endpoint->kv_used / by->kv_used_max);
    }
    return count > 0 ? sum / count : 0; /* 0: all are stale, and ignored */
}

static double
concurrency(const struct gateway *gateway, enum gateway_state state)
{
    const struct gateway_saturation *by = &gateway->config.flow_control.saturation;
    uint64_t requests = 0;
    uint64_t tokens = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        const struct core_endpoint *endpoint = &gateway->endpoints[i];
        if (endpoint->state != state)
            continue;
        count++;
        requests += endpoint->in_flight;
        tokens += endpoint->tokens;
    }
    double of_requests = by->requests_max > 0 ? (double)requests / (count * by->requests_max) : 0;
    double of_tokens = by->tokens_max > 0 ? (double)tokens / (count * by->tokens_max) : 0;
    return larger(of_requests, of_tokens);
}

double
gateway_pool_saturation(const struct gateway *gateway)
{
    enum gateway_state state = state_used(gateway);
    if (state == GATEWAY_DOWN)
        return 1;
    return gateway->config.flow_control.saturation.detector == GATEWAY_DETECT_CONCURRENCY
               ? concurrency(gateway, state)
               : utilization(gateway, state);
}
