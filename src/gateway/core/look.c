/* SPDX-License-Identifier: Apache-2.0 */
/* The view of the state that the edge and the simulator have. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/core/state.h"

const struct gateway_counts *
gateway_counts(const struct gateway *gateway)
{
    return &gateway->counts;
}

void
gateway_look(const struct gateway *gateway, uint32_t number, struct gateway_view *view)
{
    CHECK(number < gateway->config.endpoints_max);
    const struct core_endpoint *endpoint = &gateway->endpoints[number];
    *view = (struct gateway_view){
        .state = endpoint->state,
        .in_flight = endpoint->in_flight,
        .waiting = endpoint->waiting,
        .running = endpoint->running,
        .kv_used = endpoint->kv_used,
        .adapters_max = endpoint->adapters_max,
        .adapter_count = endpoint->adapter_count,
    };
}

const struct gateway_choice *
gateway_look_choice(const struct gateway *gateway, uint32_t request)
{
    for (uint32_t i = 0; i < gateway->choice_count; i++)
        if (gateway->choices[i].request == request)
            return &gateway->choices[i];
    return NULL;
}

uint32_t
gateway_look_adapters(const struct gateway *gateway, uint32_t number,
                      struct gateway_adapter *adapters, uint32_t max)
{
    CHECK(number < gateway->config.endpoints_max);
    const struct core_endpoint *endpoint = &gateway->endpoints[number];
    uint32_t count = endpoint->adapter_count < max ? endpoint->adapter_count : max;
    for (uint32_t i = 0; i < count; i++) {
        const struct core_adapter *adapter = &endpoint->adapters[i];
        bool is_loaded = adapter->is_reported && adapter->state == GATEWAY_ADAPTER_LOADED;
        adapters[i] = (struct gateway_adapter){.name = adapter->name,
                                               .state = is_loaded ? GATEWAY_ADAPTER_LOADED
                                                                  : GATEWAY_ADAPTER_WAITING,
                                               .pending = adapter_pending(adapter)};
    }
    return count;
}

/* One row for all bands of a priority, at the first of them. */
bool
gateway_look_band(const struct gateway *gateway, uint32_t position, struct gateway_band_view *view)
{
    CHECK(position < GATEWAY_BANDS_MAX);
    const struct core_band *first = &gateway->queue.bands[position];
    *view = (struct gateway_band_view){.priority = first->config.priority};
    for (uint32_t i = 0; i < GATEWAY_BANDS_MAX; i++) {
        const struct core_band *band = &gateway->queue.bands[i];
        if (!band->is_used || band->config.priority != view->priority)
            continue;
        if (i < position)
            return false;
        view->requests += band->count;
        view->bytes += band->bytes;
        view->waited_ms += band->waited_ms;
        for (int bucket = 0; bucket <= GATEWAY_WAIT_BUCKETS; bucket++)
            view->waits[bucket] += band->waits[bucket];
    }
    return first->is_used;
}

/* Sums over the requests at an endpoint. */
struct request_sums {
    uint32_t in_flight;
    uint32_t of_adapters;
    uint64_t tokens;
};

/* E2 */
static void
check_down(const struct core_endpoint *endpoint)
{
    const struct core_rollout *rollout = &endpoint->rollout;
    CHECK(!endpoint->is_known && endpoint->waiting == 0 && endpoint->running == 0);
    CHECK(endpoint->kv_used == 0 && endpoint->base_model == 0 && endpoint->adapters_max == 0);
    CHECK(!rollout->is_known && rollout->has_count == 0 && rollout->ours_count == 0);
    for (uint32_t i = 0; i < endpoint->adapter_count; i++)
        CHECK(!endpoint->adapters[i].is_reported);
    for (uint32_t i = 0; i < endpoint->prefix.capacity; i++)
        CHECK(endpoint->prefix.hashes[i] == 0);
}

static void
check_endpoint(const struct gateway *gateway, uint32_t number, const struct request_sums *sums)
{
    const struct core_endpoint *endpoint = &gateway->endpoints[number];
    CHECK(endpoint->in_flight == sums->in_flight && endpoint->tokens == sums->tokens);
    CHECK(endpoint->adapter_count <= GATEWAY_ADAPTERS_MAX);
    CHECK(endpoint->kv_used >= 0 && endpoint->kv_used <= 1);
    uint32_t of_adapters = 0;
    for (uint32_t i = 0; i < endpoint->adapter_count; i++) {
        CHECK(endpoint->adapters[i].in_flight > 0 || endpoint->adapters[i].is_reported);
        of_adapters += endpoint->adapters[i].in_flight;
    }
    CHECK(of_adapters == sums->of_adapters);
    if (endpoint->state == GATEWAY_DOWN)
        check_down(endpoint);
}

static void
check_request(const struct core_request *request)
{
    bool is_sent = request->state == REQUEST_SENT || request->state == REQUEST_STARTED;
    CHECK(is_sent == (request->endpoint != NONE));
    CHECK(request->tries <= GATEWAY_TRIES_MAX);
    CHECK(request->tried_count + is_sent <= request->tries);
    CHECK(request->busy_count + request->absent_count + is_sent <= request->tries);
}

void
gateway_check(const struct gateway *gateway)
{
    struct request_sums *sums = calloc(gateway->config.endpoints_max, sizeof(*sums));
    CHECK(sums != NULL);
    for (uint32_t i = 0; i < gateway->config.requests_max; i++) {
        const struct core_request *request = &gateway->requests[i];
        check_request(request);
        if (request->endpoint == NONE)
            continue;
        sums[request->endpoint].in_flight++;
        sums[request->endpoint].tokens += request->tokens;
        sums[request->endpoint].of_adapters += request->adapter != 0;
    }
    for (uint32_t i = 0; i < gateway->config.endpoints_max; i++) {
        check_endpoint(gateway, i, &sums[i]);
        CHECK(i < gateway->endpoint_limit || gateway->endpoints[i].state == GATEWAY_FREE);
    }
    free(sums);
    queue_check(gateway);
}
