/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of an endpoint. */
#include "gateway/core/state.h"

uint32_t
endpoint_waiting(const struct core_endpoint *endpoint)
{
    uint32_t since = endpoint->sent - endpoint->sent_seen;
    return endpoint->waiting + (since < endpoint->in_flight ? since : endpoint->in_flight);
}

struct core_adapter *
endpoint_adapter(struct core_endpoint *endpoint, uint64_t name)
{
    for (uint32_t i = 0; i < endpoint->adapter_count; i++)
        if (endpoint->adapters[i].name == name)
            return &endpoint->adapters[i];
    return NULL;
}

uint32_t
adapter_pending(const struct core_adapter *adapter)
{
    return adapter == NULL                         ? 0
           : adapter->pending > adapter->in_flight ? adapter->pending
                                                   : adapter->in_flight;
}
