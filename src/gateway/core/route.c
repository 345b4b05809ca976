/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes (R): which models are admitted, and which target stands for one. They are looked up anew
 * for each try, because they may have been replaced since the last.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/core/state.h"

void
route_init(struct gateway *gateway)
{
    struct core_routes *routes = &gateway->routes;
    routes->routes = calloc(GATEWAY_ROUTES_MAX + 1, sizeof(*routes->routes));
    routes->targets = calloc(GATEWAY_TARGETS_MAX, sizeof(*routes->targets));
    CHECK(routes->routes != NULL && routes->targets != NULL);
    objective_init(gateway);
}

void
route_fini(struct gateway *gateway)
{
    free(gateway->routes.routes);
    free(gateway->routes.targets);
    objective_fini(gateway);
}

static void
set_pools(struct core_endpoint *endpoint, uint64_t pools)
{
    endpoint->pools = pools;
    endpoint->rollout.is_complete = false;
}

void
route_take(struct gateway *gateway, const struct gateway_routes *given)
{
    struct core_routes *routes = &gateway->routes;
    CHECK(given->route_count <= GATEWAY_ROUTES_MAX + 1 &&
          given->target_count <= GATEWAY_TARGETS_MAX);
    objective_keep(gateway, given);
    for (uint32_t i = 0; i < given->route_count; i++) {
        const struct gateway_route *route = &given->routes[i];
        CHECK(i == 0 || route->model > route[-1].model);
        CHECK(route->target_count > 0 && route->tries_max <= GATEWAY_TRIES_MAX &&
              route->first_target + route->target_count <= given->target_count);
        routes->routes[i] = *route;
    }
    memcpy(routes->targets, given->targets, given->target_count * sizeof(*given->targets));
    routes->route_count = given->route_count;
    routes->open_pools = given->open_pools;
    CHECK(given->rollout_count <= GATEWAY_ROLLOUTS_MAX);
    for (uint32_t i = 0; i < given->rollout_count; i++)
        routes->rollouts[i] = given->rollouts[i];
    routes->rollout_count = given->rollout_count;
    routes->are_given = true;
    objective_find_missed(gateway);
    for (uint32_t i = 0; i < gateway->endpoint_limit; i++)
        set_pools(&gateway->endpoints[i], given->pools[i]);
}

bool
route_admit(const struct gateway *gateway, struct gateway_ask *ask)
{
    const struct gateway_route *route = route_find(gateway, ask->model);
    if (route != NULL && route->has_priority && !ask->has_priority)
        ask->priority = route->priority;
    return route != NULL || ask->model == 0 || !gateway->routes.are_given;
}

uint32_t
route_tries_max(const struct gateway *gateway, const struct gateway_ask *ask)
{
    const struct gateway_route *route = route_find(gateway, ask->model);
    return route != NULL && route->tries_max > 0 ? route->tries_max : gateway->config.tries_max;
}

/* ---- the choice of a target ---- */

static uint32_t
first_tier(const struct gateway *gateway, const struct gateway_route *route)
{
    const struct gateway_target *targets = &gateway->routes.targets[route->first_target];
    uint32_t count = 0;
    while (count < route->target_count && targets[count].tier == 0)
        count++;
    return count;
}

/* R2: the same for all tries of a request, and for all requests of a session. */
static uint32_t
draw(struct gateway *gateway, struct core_request *request, const struct gateway_ask *ask,
     const struct gateway_target *targets, uint32_t count)
{
    double sum = 0;
    if (request->draw == 0) {
        const uint64_t key[2] = {ask->session, ask->model};
        request->draw =
            (ask->session != 0 ? gateway_name_hash(key, sizeof(key)) : core_random(gateway)) | 1;
    }
    for (uint32_t i = 0; i < count; i++)
        sum += targets[i].weight;
    double left = sum * (double)(request->draw >> 11) / (double)(UINT64_C(1) << 53);
    uint32_t pick = 0;
    while (pick + 1 < count && left >= targets[pick].weight)
        left -= targets[pick++].weight;
    return sum > 0 ? pick : (uint32_t)((request->draw >> 1) % count);
}

/* R3: the drawn one, the others of its tier, the tiers after it. */
static uint32_t
target_at(struct gateway *gateway, struct core_request *request, const struct gateway_ask *ask,
          const struct gateway_route *route, uint32_t position)
{
    uint32_t tier = first_tier(gateway, route);
    if (position >= tier || tier == 1)
        return route->first_target + position;
    uint32_t drawn =
        draw(gateway, request, ask, &gateway->routes.targets[route->first_target], tier);
    return route->first_target + (drawn + position) % tier;
}

static uint32_t
schedule_for(struct gateway *gateway, struct core_request *request, struct gateway_ask *ask,
             enum core_ports ports, uint32_t *target)
{
    const struct gateway_ask asked = *ask;
    const struct gateway_route *route = route_find(gateway, asked.model);
    *target = NONE;
    request->target = (struct gateway_target){.model = 0};
    if (route == NULL)
        return route_admit(gateway, ask) ? schedule(gateway, request, ask, ports) : NONE;
    for (uint32_t i = 0; i < route->target_count; i++) {
        uint32_t number = target_at(gateway, request, &asked, route, i);
        const struct gateway_target *candidate = &gateway->routes.targets[number];
        if (candidate->tier < request->tier || candidate->pools == 0)
            continue;
        *ask = asked;
        request->target = *candidate;
        route_apply(request, ask);
        uint32_t chosen = schedule(gateway, request, ask, ports);
        if (chosen == NONE)
            continue;
        *target = candidate->model != 0 ? number : NONE;
        return chosen;
    }
    *ask = asked;
    return NONE;
}

/* E6: an open port at any target goes before a shut one, which is no choice after a server that is
 * there has declined. */
uint32_t
route_schedule(struct gateway *gateway, struct core_request *request, struct gateway_ask *ask,
               uint32_t *target)
{
    uint32_t chosen = schedule_for(gateway, request, ask, PORTS_OPEN, target);
    if (chosen == NONE && request->busy_count == 0)
        chosen = schedule_for(gateway, request, ask, PORTS_ANY, target);
    return chosen;
}

void
route_fail(struct gateway *gateway, struct core_request *request, const struct gateway_event *event)
{
    const struct gateway_route *route = route_find(gateway, event->ask.model);
    uint32_t next = request->target.tier + 1;
    if (route == NULL || event->failure == GATEWAY_FAILED_UNREACHABLE ||
        gateway->routes.targets[route->first_target + route->target_count - 1].tier < next)
        return;
    request->tier = next;
    request->tried_count = 0;
    gateway->counts.fallbacks++;
}
