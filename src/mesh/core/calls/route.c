/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/calls/route.h"

static bool
is_listed(const struct route_wish *wish, const struct core_place *place)
{
    for (uint32_t i = 0; i < wish->tried_count; i++) {
        const struct tried *tried = &wish->tried[i];
        if (tried->instance != place->instance)
            continue;
        if (tried->list == MESH_LIST_FIXED ||
            (tried->list == MESH_LIST_HIT && tried->since_ms == place->since_ms))
            return true;
    }
    return false;
}

/* R3, R4: the copy of the least rank serves. */
struct rank {
    int64_t first;  /* ready: 0, draining or unreachable: 1, loading: 2 */
    int64_t second; /* calls sent there; loading: the start of the load */
    uint64_t third;
};

static bool
is_before(struct rank a, struct rank b)
{
    if (a.first != b.first)
        return a.first < b.first;
    return a.second != b.second ? a.second < b.second : a.third < b.third;
}

static bool
state_loads(enum mesh_state state)
{
    return state >= MESH_STATE_CLAIMING && state <= MESH_STATE_LOADING;
}

static bool
state_serves(enum mesh_state state)
{
    return state == MESH_STATE_LOADED || state == MESH_STATE_WITHDRAWING;
}

static struct rank
rank_of(const struct tables *tables, const struct route_wish *wish, const struct core_place *place)
{
    const struct instance *instance = &tables->instances[place->instance];
    bool self = place->instance == INSTANCE_SELF;
    bool ready = self ? state_serves(wish->state)
                      : place->kind == MESH_PLACE_LOADED ||
                            place->since_ms < wish->wall_ms - wish->assumed_ms;
    if (!ready)
        return (struct rank){.first = 2, .second = place->since_ms, .third = place->instance};
    if (self && wish->prefer_self)
        return (struct rank){.first = -1};
    return (struct rank){
        .first = instance->draining || instance->unreachable_until_ms > wish->now_ms,
        .second = self ? wish->in_flight : instance->out,
        .third = self ? 0 : instance->sent,
    };
}

struct route
route_choose(const struct tables *tables, const struct route_wish *wish)
{
    const struct core_place *places = model_places(wish->model);
    const struct core_place *best = NULL;
    struct rank least = {0};
    for (uint32_t i = 0; i < wish->model->place_count; i++) {
        const struct core_place *place = &places[i];
        bool self = place->instance == INSTANCE_SELF;
        if (!place_is_copy(tables, place) || is_listed(wish, place) ||
            (self && !state_serves(wish->state) && !state_loads(wish->state)))
            continue;
        struct rank rank = rank_of(tables, wish, place);
        if (best == NULL || is_before(rank, least)) {
            best = place;
            least = rank;
        }
    }
    if (best == NULL)
        return (struct route){.kind = ROUTE_MISS};
    if (best->instance != INSTANCE_SELF)
        return (struct route){
            .kind = ROUTE_THERE, .instance = best->instance, .since_ms = best->since_ms};
    return (struct route){.kind = state_serves(wish->state) ? ROUTE_HERE : ROUTE_WAIT,
                          .instance = INSTANCE_SELF,
                          .since_ms = best->since_ms};
}
