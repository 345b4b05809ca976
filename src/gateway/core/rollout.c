/* SPDX-License-Identifier: Apache-2.0 */
/* The roll-out of adapters (L): which endpoint is to load or unload which, one at a time. */
#include "base/check.h"
#include "gateway/core/state.h"

enum { RETRY_MS_MIN = 1000, RETRY_MS_MAX = 60000 };

static bool
has(const uint64_t *adapters, uint32_t count, uint64_t adapter)
{
    for (uint32_t i = 0; i < count; i++)
        if (adapters[i] == adapter)
            return true;
    return false;
}

static void
drop(uint64_t *adapters, uint32_t *count, uint64_t adapter)
{
    for (uint32_t i = 0; i < *count; i++)
        if (adapters[i] == adapter) {
            adapters[i] = adapters[--*count];
            return;
        }
}

static void
put(uint64_t *adapters, uint32_t *count, uint64_t adapter)
{
    if (*count < GATEWAY_ADAPTERS_MAX && !has(adapters, *count, adapter))
        adapters[(*count)++] = adapter;
}

static bool
is_wanted(const struct gateway *gateway, const struct core_endpoint *endpoint, uint64_t adapter)
{
    for (uint32_t i = 0; i < gateway->routes.rollout_count; i++)
        if (gateway->routes.rollouts[i].adapter == adapter)
            return (gateway->routes.rollouts[i].pools & endpoint->pools) != 0;
    return false;
}

/* A list that is full may lack some: what we loaded is there. */
static bool
is_there(const struct core_rollout *rollout, uint64_t adapter)
{
    return has(rollout->has, rollout->has_count, adapter) ||
           (rollout->has_count == GATEWAY_ADAPTERS_MAX &&
            has(rollout->ours, rollout->ours_count, adapter));
}

/* L1: an adapter to load; 0: none. */
static uint64_t
find_lacking(const struct gateway *gateway, struct core_endpoint *endpoint)
{
    struct core_rollout *rollout = &endpoint->rollout;
    uint32_t count = gateway->routes.rollout_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (rollout->first + i) % count;
        const struct gateway_rollout *wanted = &gateway->routes.rollouts[at];
        if ((wanted->pools & endpoint->pools) == 0 || is_there(rollout, wanted->adapter))
            continue;
        rollout->first = (at + 1) % count;
        return wanted->adapter;
    }
    return 0;
}

/* L3: an adapter to unload; 0: none. */
static uint64_t
find_needless(const struct gateway *gateway, struct core_endpoint *endpoint)
{
    const struct core_rollout *rollout = &endpoint->rollout;
    for (uint32_t i = 0; i < rollout->ours_count; i++) {
        const struct core_adapter *adapter = endpoint_adapter(endpoint, rollout->ours[i]);
        if (!is_wanted(gateway, endpoint, rollout->ours[i]) &&
            (adapter == NULL || adapter->in_flight == 0))
            return rollout->ours[i];
    }
    return 0;
}

bool
rollout_next(struct gateway *gateway, struct core_endpoint *endpoint, struct gateway_action *action)
{
    struct core_rollout *rollout = &endpoint->rollout;
    if (rollout->is_complete || rollout->is_busy || !rollout->is_known ||
        endpoint->state != GATEWAY_UP || rollout->next_ms > gateway->now_ms)
        return false;
    uint64_t needless = find_needless(gateway, endpoint);
    uint64_t lacking = needless == 0 ? find_lacking(gateway, endpoint) : 0;
    rollout->is_complete = needless == 0 && lacking == 0;
    if (rollout->is_complete)
        return false;
    rollout->is_busy = true;
    rollout->adapter = needless != 0 ? needless : lacking;
    rollout->is_load = needless == 0;
    action->kind = rollout->is_load ? GATEWAY_LOAD : GATEWAY_UNLOAD;
    action->adapter = rollout->adapter;
    return true;
}

int64_t
rollout_next_ms(const struct gateway *gateway, const struct core_endpoint *endpoint)
{
    const struct core_rollout *rollout = &endpoint->rollout;
    bool waits = !rollout->is_complete && !rollout->is_busy && rollout->is_known &&
                 endpoint->state == GATEWAY_UP;
    int64_t now_ms = gateway->now_ms;
    return !waits ? INT64_MAX : rollout->next_ms > now_ms ? rollout->next_ms : now_ms;
}

void
rollout_done(struct gateway *gateway, struct core_endpoint *endpoint, enum gateway_event_kind kind)
{
    struct core_rollout *rollout = &endpoint->rollout;
    CHECK(rollout->is_busy);
    rollout->is_busy = rollout->is_complete = false;
    if (kind == GATEWAY_ADAPTER_FAILED) { /* L2 */
        int64_t delay_ms = 2 * rollout->delay_ms;
        rollout->delay_ms = delay_ms < RETRY_MS_MIN   ? RETRY_MS_MIN
                            : delay_ms > RETRY_MS_MAX ? RETRY_MS_MAX
                                                      : delay_ms;
        rollout->next_ms = gateway->now_ms + rollout->delay_ms;
        if (!rollout->is_load) /* it may be gone */
            drop(rollout->ours, &rollout->ours_count, rollout->adapter);
        return;
    }
    rollout->delay_ms = 0;
    if (!rollout->is_known) /* E2: the endpoint went down meanwhile */
        return;
    if (rollout->is_load) {
        put(rollout->has, &rollout->has_count, rollout->adapter);
        put(rollout->ours, &rollout->ours_count, rollout->adapter);
    } else {
        drop(rollout->has, &rollout->has_count, rollout->adapter);
        drop(rollout->ours, &rollout->ours_count, rollout->adapter);
    }
}

void
rollout_list(struct core_endpoint *endpoint, const struct gateway_figures *figures)
{
    struct core_rollout *rollout = &endpoint->rollout;
    if (!figures->has_catalogue || rollout->is_busy)
        return;
    rollout->is_known = true;
    rollout->is_complete = false;
    rollout->has_count = 0;
    for (uint32_t i = 0; i < figures->catalogue_count; i++)
        put(rollout->has, &rollout->has_count, figures->catalogue[i]);
}

enum rollout_listing
rollout_listing(const struct core_endpoint *endpoint, uint64_t adapter)
{
    const struct core_rollout *rollout = &endpoint->rollout;
    if (!rollout->is_known || endpoint->base_model == adapter)
        return LISTING_UNKNOWN;
    if (is_there(rollout, adapter))
        return LISTING_HAS;
    return rollout->has_count == GATEWAY_ADAPTERS_MAX ? LISTING_UNKNOWN : LISTING_LACKS;
}

void
rollout_forget(struct core_endpoint *endpoint)
{
    struct core_rollout *rollout = &endpoint->rollout;
    rollout->is_known = false;
    rollout->has_count = rollout->ours_count = 0;
    rollout->delay_ms = rollout->next_ms = 0;
}
