/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of routes, counted beside the core: only admitted models are sent, to endpoints of a
 * pool of their targets, fallbacks in their order. In two of three worlds there are none. */
#include "world_internal.h"

#include <string.h>

static const struct gateway_route *
route_of(const struct world *world, const struct sim_client *client)
{
    const struct gateway_route *found = NULL;
    for (uint32_t i = 0; i < world->route_count; i++)
        if (world->routes[i].model == client->model ||
            (found == NULL && world->routes[i].model == 0))
            found = &world->routes[i];
    return found;
}

static void
draw_route(struct world *world, uint64_t model)
{
    struct gateway_route *route = &world->routes[world->route_count++];
    uint32_t count = 1 + (uint32_t)below(world, 3);
    uint32_t tier = 0;
    *route = (struct gateway_route){.model = model,
                                    .first_target = world->target_count,
                                    .target_count = count,
                                    .tries_max = (uint32_t)below(world, 5),
                                    .has_priority = true,
                                    .priority = world_priorities[below(world, PRIORITIES)],
                                    .latency_ms = 5 * (int64_t)below(world, 2),
                                    .over_share = below(world, 2) == 0 ? 0.05 : 0.2};
    for (uint32_t i = 0; i < count; i++) {
        world->targets[world->target_count++] = (struct gateway_target){
            .model = i == 0 ? below(world, MODELS + 1) : 1 + below(world, MODELS),
            .pools = below(world, 8) == 0 ? 0 : 1 + below(world, 3),
            .weight = (double)below(world, 4),
            .tier = tier};
        tier += below(world, 2) == 0;
    }
}

/* A model that has the same objective again goes on with its window. */
static void
keep_objectives(struct world *world, const struct gateway_route *old, uint32_t old_count)
{
    for (uint64_t model = 0; model <= MODELS; model++) {
        const struct gateway_route *before = NULL;
        const struct gateway_route *now = NULL;
        for (uint32_t i = 0; i < old_count; i++)
            before = old[i].model == model ? &old[i] : before;
        for (uint32_t i = 0; i < world->route_count; i++)
            now = world->routes[i].model == model ? &world->routes[i] : now;
        if (before == NULL || now == NULL || before->latency_ms != now->latency_ms ||
            before->over_share != now->over_share)
            world->objectives[model] = (struct world_objective){.count = 0};
    }
}

void
routes_draw(struct world *world)
{
    struct gateway_route old[ROUTES_MAX];
    uint32_t old_count = world->route_count;
    memcpy(old, world->routes, sizeof(old));
    world->route_count = world->target_count = 0;
    for (uint64_t model = 0; model <= MODELS; model++)
        if (below(world, 4) > 0)
            draw_route(world, model);
    for (uint32_t i = 0; i < SERVERS_MAX; i++)
        world->pools[i] = below(world, 4);
    world->open_pools = below(world, 2) == 0 ? 0 : below(world, 4);
    keep_objectives(world, old, old_count);
    world->rollout_count = 0;
    for (uint64_t model = 2; model <= MODELS; model++) /* 1 is the base model */
        if (below(world, 4) == 0)
            world->rollouts[world->rollout_count++] =
                (struct gateway_rollout){.adapter = model, .pools = 1 + below(world, 3)};
}

bool
is_admitted(const struct world *world, const struct sim_client *client)
{
    return !world->has_routes || route_of(world, client) != NULL;
}

bool
may_get(const struct world *world, const struct gateway_target *target, uint32_t server)
{
    return !world->has_routes || (target->pools & world->pools[server]) != 0;
}

static bool
is_any_left(const struct world *world, const struct sim_client *client,
            const struct gateway_target *target)
{
    bool opens = world->has_routes && (target->pools & world->open_pools) != 0;
    for (uint32_t i = 0; i < world->server_count; i++)
        if ((is_usable(&world->servers[i]) || (opens && world->servers[i].state == GATEWAY_DOWN)) &&
            (client->tried >> i & 1) == 0 && may_get(world, target, i))
            return true;
    return false;
}

bool
is_none_left(const struct world *world, const struct sim_client *client)
{
    const struct gateway_route *route = route_of(world, client);
    if (!world->has_routes)
        return !is_any_left(world, client, &client->target);
    for (uint32_t i = 0; route != NULL && i < route->target_count; i++) {
        const struct gateway_target *target = &world->targets[route->first_target + i];
        if (target->tier >= client->tier && is_any_left(world, client, target))
            return false;
    }
    return true;
}

uint64_t
pools_of(const struct world *world, const struct sim_client *client)
{
    const struct gateway_route *route = world->has_routes ? route_of(world, client) : NULL;
    uint64_t pools = route != NULL ? 0 : GATEWAY_ALL_POOLS;
    for (uint32_t i = 0; route != NULL && i < route->target_count; i++)
        pools |= world->targets[route->first_target + i].pools;
    return pools;
}

bool
goes_open(const struct world *world, const struct sim_client *client)
{
    uint64_t pools = pools_of(world, client);
    if (pools == GATEWAY_ALL_POOLS)
        return false;
    for (uint32_t i = 0; i < world->server_count; i++)
        if (is_usable(&world->servers[i]) && (pools & world->pools[i]) != 0)
            return false;
    return (pools & world->open_pools) != 0;
}

uint32_t
tries_allowed(const struct world *world, const struct sim_client *client)
{
    const struct gateway_route *route = world->has_routes ? route_of(world, client) : NULL;
    return route != NULL && route->tries_max > 0 ? route->tries_max : world->tries_max;
}

/* The target of the least tier that has a server left; those that name the same model alike. */
void
routed_try(struct world *world, struct sim_client *client, const struct gateway_action *action)
{
    const struct gateway_route *route = route_of(world, client);
    uint32_t server = action->endpoint;
    client->target = (struct gateway_target){.model = 0};
    if (!world->has_routes) {
        demand(world, action->target == UINT32_MAX, "I20_routes");
        return;
    }
    demand(world, route != NULL, "I20_routes");
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < route->target_count; i++) {
        const struct gateway_target *target = &world->targets[route->first_target + i];
        if (target->tier >= client->tier && target->tier < best &&
            is_any_left(world, client, target))
            best = target->tier;
    }
    for (uint32_t i = 0; i < route->target_count; i++) {
        const struct gateway_target *target = &world->targets[route->first_target + i];
        bool is_it = action->target == UINT32_MAX ? target->model == 0
                                                  : action->target == route->first_target + i;
        if (is_it && target->tier == best && may_get(world, target, server) &&
            client->target.pools == 0)
            client->target = *target;
    }
    demand(world, client->target.pools != 0, "I20_routes");
}

void
routed_failure(struct world *world, struct sim_client *client, enum gateway_failure failure)
{
    const struct gateway_route *route = world->has_routes ? route_of(world, client) : NULL;
    uint32_t next = client->target.tier + 1;
    if (route == NULL || failure == GATEWAY_FAILED_UNREACHABLE ||
        world->targets[route->first_target + route->target_count - 1].tier < next)
        return;
    client->tier = next;
    client->tried = 0;
}

/* ---- roll-outs ---- */

static bool
is_to_have(const struct world *world, uint32_t server, uint64_t adapter)
{
    for (uint32_t i = 0; i < world->rollout_count; i++)
        if (world->rollouts[i].adapter == adapter)
            return (world->rollouts[i].pools & world->pools[server]) != 0;
    return false;
}

void
rollout_begins(struct world *world, const struct gateway_action *action)
{
    struct server *server = &world->servers[action->endpoint];
    bool loads = action->kind == GATEWAY_LOAD;
    demand(world, server->state == GATEWAY_UP && !server->is_adapting, "I22_rollout");
    demand(world, is_to_have(world, action->endpoint, action->adapter) == loads, "I22_rollout");
    for (uint32_t i = 0; i < REQUESTS_MAX && !loads; i++) {
        const struct sim_client *client = &world->clients[i];
        demand(world,
               !client->is_open || !client->is_tried || client->server != action->endpoint ||
                   (client->target.model != 0 ? client->target.model : client->model) !=
                       action->adapter,
               "I23_unloaded_when_unused");
    }
    server->is_adapting = true;
    server->loads = loads;
    server->adapter = action->adapter;
    server->adapting_life = server->life;
}

bool
rollout_ends(struct world *world, struct server *server)
{
    bool lives = !server->is_dead && !server->hangs && server->adapting_life == server->life;
    server->is_adapting = false;
    if (!lives || (!world->is_calm && below(world, 4) == 0))
        return false;
    if (server->loads)
        server->has |= 1u << server->adapter;
    else
        server->has &= ~(1u << server->adapter);
    return true;
}

void
check_rolled_out(const struct world *world)
{
    for (uint32_t i = 0; i < world->server_count; i++)
        for (uint64_t model = 1; model <= MODELS; model++)
            demand(world,
                   world->servers[i].state != GATEWAY_UP || !is_to_have(world, i, model) ||
                       (world->servers[i].has >> model & 1) != 0,
                   "I22_rollout");
}

/* ---- objectives ---- */

static const struct gateway_route *
objective_of(const struct world *world, const struct sim_client *client)
{
    const struct gateway_route *route = world->has_routes ? route_of(world, client) : NULL;
    return route != NULL && route->latency_ms > 0 ? route : NULL;
}

void
objectives_roll(struct world *world)
{
    int64_t window = world->now_ms / world->objective_window_ms;
    if (window == world->window)
        return;
    for (uint32_t i = 0; i < world->route_count; i++) {
        struct world_objective *objective = &world->objectives[world->routes[i].model];
        bool is_over =
            (double)objective->over > world->routes[i].over_share * (double)objective->count;
        objective->is_missed = is_over && window == world->window + 1;
        objective->missed += is_over;
        objective->met += !is_over && objective->count > 0;
        objective->count = objective->over = 0;
    }
    world->window = window;
}

void
objectives_count(struct world *world, const struct sim_client *client, uint64_t tokens)
{
    const struct gateway_route *route = objective_of(world, client);
    if (route == NULL || tokens == 0)
        return;
    struct world_objective *objective = &world->objectives[route->model];
    objectives_roll(world);
    objective->count++;
    objective->over +=
        (uint64_t)(world->now_ms - client->arrived_ms) > tokens * (uint64_t)route->latency_ms;
    world->totals->objectives_missed += objective->is_missed;
}

void
check_objectives(const struct world *world)
{
    for (uint32_t i = 0; i < world->route_count; i++) {
        const struct world_objective *objective = &world->objectives[world->routes[i].model];
        struct gateway_objective_view view;
        if (!gateway_look_objective(world->gateway, i, &view))
            continue;
        demand(world,
               view.is_missed == objective->is_missed && view.met == objective->met &&
                   view.missed == objective->missed,
               "I21_objectives");
    }
}

bool
is_raised(const struct world *world, const struct sim_client *client)
{
    const struct gateway_route *route = objective_of(world, client);
    return route != NULL && world->objectives[route->model].is_missed;
}

bool
gives_way(const struct world *world, const struct sim_client *client)
{
    for (uint32_t i = 0; i < world->route_count; i++)
        if (world->routes[i].latency_ms > 0 &&
            world->objectives[world->routes[i].model].is_missed &&
            world->routes[i].priority == world_priorities[client->band])
            return objective_of(world, client) == NULL;
    return false;
}
