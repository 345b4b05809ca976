/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "gateway/core/state.h"

static int
by_model(const void *key, const void *element)
{
    uint64_t model = *(const uint64_t *)key;
    const struct gateway_route *route = element;
    return model < route->model ? -1 : model > route->model;
}

const struct gateway_route *
route_find(const struct gateway *gateway, uint64_t model)
{
    const struct core_routes *routes = &gateway->routes;
    const struct gateway_route *found =
        bsearch(&model, routes->routes, routes->route_count, sizeof(*routes->routes), by_model);
    if (found == NULL && routes->route_count > 0 && routes->routes[0].model == 0)
        found = routes->routes;
    return found;
}

uint64_t
route_pools(const struct gateway *gateway, const struct gateway_ask *ask)
{
    const struct gateway_route *route = route_find(gateway, ask->model);
    uint64_t pools = route != NULL ? 0 : GATEWAY_ALL_POOLS;
    for (uint32_t i = 0; route != NULL && i < route->target_count; i++)
        pools |= gateway->routes.targets[route->first_target + i].pools;
    return pools;
}

bool
route_is_open(const struct gateway *gateway, const struct gateway_ask *ask)
{
    uint64_t pools =
        route_find(gateway, ask->model) != NULL ? route_pools(gateway, ask) : UINT64_C(0);
    return (pools & gateway->routes.open_pools) != 0 && !pools_have_endpoint(gateway, pools);
}

void
route_apply(const struct core_request *request, struct gateway_ask *ask)
{
    const struct gateway_target *target = &request->target;
    ask->pools = target->pools;
    ask->salt = target->model != 0 && target->model != ask->model ? target->model : 0;
    if (target->model != 0)
        ask->model = target->model;
}
