/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how full pools are (F2), by the reference's formulas, over the endpoints that S1 would
 * choose from. */
#include "gateway/core/state.h"

const char *const gateway_detector_names[GATEWAY_DETECTOR_COUNT] = {
    "utilization-detector",
    "concurrency-detector",
};

static enum gateway_state
state_used(const struct gateway *gateway, uint64_t pools)
{
    enum gateway_state best = GATEWAY_DOWN;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        const struct core_endpoint *endpoint = &gateway->endpoints[i];
        if (!endpoint_is_in(endpoint, pools))
            continue;
        if (endpoint->state == GATEWAY_UP)
            return GATEWAY_UP;
        if (endpoint->state == GATEWAY_SUSPECT)
            best = GATEWAY_SUSPECT;
    }
    return best;
}

bool
pools_have_endpoint(const struct gateway *gateway, uint64_t pools)
{
    return state_used(gateway, pools) != GATEWAY_DOWN;
}

uint64_t
pools_sharing(const struct gateway *gateway, uint64_t pools)
{
    uint64_t sharing = 0;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        const struct core_endpoint *endpoint = &gateway->endpoints[i];
        bool is_usable = endpoint->state == GATEWAY_UP || endpoint->state == GATEWAY_SUSPECT;
        if (is_usable && endpoint_is_in(endpoint, pools))
            sharing |= pools == GATEWAY_ALL_POOLS ? pools : endpoint->pools;
    }
    return sharing;
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
utilization(const struct gateway *gateway, uint64_t pools, enum gateway_state state)
{
    const struct gateway_saturation *by = &gateway->config.flow_control.saturation;
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        const struct core_endpoint *endpoint = &gateway->endpoints[i];
        if (endpoint->state != state || !endpoint_is_in(endpoint, pools))
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
concurrency(const struct gateway *gateway, uint64_t pools, enum gateway_state state)
{
    const struct gateway_saturation *by = &gateway->config.flow_control.saturation;
    uint64_t requests = 0;
    uint64_t tokens = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++) {
        const struct core_endpoint *endpoint = &gateway->endpoints[i];
        if (endpoint->state != state || !endpoint_is_in(endpoint, pools))
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
gateway_pool_saturation(const struct gateway *gateway, uint64_t pools)
{
    enum gateway_state state = state_used(gateway, pools);
    if (state == GATEWAY_DOWN)
        return 1;
    return gateway->config.flow_control.saturation.detector == GATEWAY_DETECT_CONCURRENCY
               ? concurrency(gateway, pools, state)
               : utilization(gateway, pools, state);
}
