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

void
route_apply(const struct core_request *request, struct gateway_ask *ask)
{
    const struct gateway_target *target = &request->target;
    ask->pools = target->pools;
    ask->salt = target->model != 0 && target->model != ask->model ? target->model : 0;
    if (target->model != 0)
        ask->model = target->model;
}
