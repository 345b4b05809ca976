/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ports of an endpoint (E6). A port that is not scraped is judged by its requests alone: nobody
 * probes it, so that the first request after its time tries it again.
 */
#include "gateway/core/state.h"

enum { SHUT_MS = 250 };

void
port_shut(struct gateway *gateway, struct core_endpoint *endpoint, enum gateway_port port)
{
    struct core_port *shut = &endpoint->ports[port];
    if (port_is_shut(gateway, endpoint, port)) /* others were under way when it was */
        return;
    int64_t delay_ms = shut->delay_ms > 0 ? 2 * shut->delay_ms : SHUT_MS;
    int64_t max_ms = gateway->config.scrape_ms_max;
    shut->delay_ms = delay_ms < max_ms ? delay_ms : max_ms;
    shut->shut_ms = gateway->now_ms + shut->delay_ms;
    gateway->counts.ports_shut++;
    if (endpoint->state == GATEWAY_UP && !endpoint->is_scraping) /* the whole server may be gone */
        endpoint->next_ms = gateway->now_ms;
}

bool
port_is_shut(const struct gateway *gateway, const struct core_endpoint *endpoint,
             enum gateway_port port)
{
    return endpoint->ports[port].shut_ms > gateway->now_ms;
}

void
port_succeed(struct core_endpoint *endpoint, enum gateway_port port)
{
    struct core_port *open = &endpoint->ports[port];
    open->failures = 0;
    open->shut_ms = open->delay_ms = 0;
}
