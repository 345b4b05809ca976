/* SPDX-License-Identifier: Apache-2.0 */
/* Objectives for the latency of output tokens (O): measured, judged and acted upon. */
#include <stdlib.h>

#include "base/check.h"
#include "gateway/core/state.h"

/* The rounding error of a share of some answers: 0.29 of 100 are a little less than 29. */
#define ROUNDING 1e-6

void
objective_init(struct gateway *gateway)
{
    struct core_routes *routes = &gateway->routes;
    routes->objectives = calloc(GATEWAY_ROUTES_MAX + 1, sizeof(*routes->objectives));
    routes->next_objectives = calloc(GATEWAY_ROUTES_MAX + 1, sizeof(*routes->next_objectives));
    CHECK(routes->objectives != NULL && routes->next_objectives != NULL);
}

void
objective_fini(struct gateway *gateway)
{
    free(gateway->routes.objectives);
    free(gateway->routes.next_objectives);
}

void
objective_find_missed(struct gateway *gateway)
{
    struct core_routes *routes = &gateway->routes;
    routes->missed_count = 0;
    for (uint32_t i = 0; i < routes->route_count; i++) {
        uint32_t at = 0;
        while (at < routes->missed_count && routes->missed[at] != routes->routes[i].priority)
            at++;
        if (routes->objectives[i].is_missed && at == routes->missed_count && at < GATEWAY_BANDS_MAX)
            routes->missed[routes->missed_count++] = routes->routes[i].priority;
    }
}

void
objective_keep(struct gateway *gateway, const struct gateway_routes *given)
{
    struct core_routes *routes = &gateway->routes;
    for (uint32_t i = 0, old = 0; i < given->route_count; i++) {
        const struct gateway_route *route = &given->routes[i];
        struct core_objective *next = &routes->next_objectives[i];
        while (old < routes->route_count && routes->routes[old].model < route->model)
            old++;
        const struct gateway_route *known = &routes->routes[old];
        bool is_same = old < routes->route_count && known->model == route->model &&
                       known->latency_ms == route->latency_ms &&
                       known->over_share == route->over_share;
        *next = is_same ? routes->objectives[old] : (struct core_objective){.count = 0};
    }
    struct core_objective *kept = routes->next_objectives;
    routes->next_objectives = routes->objectives;
    routes->objectives = kept;
}

void
objective_roll(struct gateway *gateway)
{
    struct core_routes *routes = &gateway->routes;
    int64_t window_ms = gateway->config.objective_window_ms;
    int64_t window = window_ms > 0 ? gateway->now_ms / window_ms : 0;
    if (window == routes->window)
        return;
    bool is_next = window == routes->window + 1;
    routes->window = window;
    for (uint32_t i = 0; i < routes->route_count; i++) {
        struct core_objective *objective = &routes->objectives[i];
        CHECK(objective->over <= objective->count);
        double may = routes->routes[i].over_share * (double)objective->count;
        bool is_over = (double)objective->over > may + ROUNDING;
        objective->missed += objective->count > 0 && is_over;
        objective->met += objective->count > 0 && !is_over;
        objective->is_missed = is_next && is_over; /* O1 */
        objective->count = objective->over = 0;
    }
    objective_find_missed(gateway);
}

void
objective_count(struct gateway *gateway, const struct core_request *request,
                const struct gateway_event *event)
{
    const struct gateway_route *route = route_find(gateway, request->model);
    if (route == NULL || route->latency_ms == 0 || event->answer_tokens == 0)
        return;
    struct core_objective *objective = &gateway->routes.objectives[route - gateway->routes.routes];
    int64_t took_ms = gateway->now_ms - request->arrived_ms;
    objective->count++;
    objective->over += (double)took_ms > (double)route->latency_ms * (double)event->answer_tokens;
}

bool
objective_raises(const struct gateway *gateway, const struct gateway_ask *ask)
{
    const struct gateway_route *route = route_find(gateway, ask->model);
    return route != NULL && gateway->routes.objectives[route - gateway->routes.routes].is_missed;
}

bool
objective_sheds(const struct gateway *gateway, const struct gateway_ask *ask)
{
    const struct core_routes *routes = &gateway->routes;
    const struct gateway_route *route = route_find(gateway, ask->model);
    uint32_t at = 0;
    while (at < routes->missed_count && routes->missed[at] != ask->priority)
        at++;
    return at < routes->missed_count && (route == NULL || route->latency_ms == 0);
}

bool
gateway_look_objective(const struct gateway *gateway, uint32_t position,
                       struct gateway_objective_view *view)
{
    const struct core_routes *routes = &gateway->routes;
    if (position >= routes->route_count || routes->routes[position].latency_ms == 0)
        return false;
    const struct core_objective *objective = &routes->objectives[position];
    *view = (struct gateway_objective_view){
        .is_missed = objective->is_missed, .met = objective->met, .missed = objective->missed};
    return true;
}
