/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of flow control, counted beside the core: strict priorities, the order within a
 * flow, fairness between flows, limits, and that nothing waits too long or for no reason. */
#include "world_internal.h"

const int32_t world_priorities[PRIORITIES] = {-2, -2, 0, 0, 1, 1, 7, 7};

static bool
is_in(const struct world *world, uint32_t server, uint64_t pools)
{
    return pools == GATEWAY_ALL_POOLS || (world->pools[server] & pools) != 0;
}

static bool
any_usable_in_both(const struct world *world, uint64_t pools, uint64_t others)
{
    for (uint32_t i = 0; i < world->server_count; i++)
        if (is_usable(&world->servers[i]) && is_in(world, i, pools) && is_in(world, i, others))
            return true;
    return false;
}

static bool
any_usable(const struct world *world, const struct sim_client *client)
{
    return any_usable_in_both(world, pools_of(world, client), GATEWAY_ALL_POOLS);
}

static const struct gateway_band *
band_rules(const struct world *world, uint32_t band)
{
    const struct gateway_flow_control *control = &world->control;
    for (uint32_t i = 0; i < control->band_count; i++)
        if (control->bands[i].priority == world_priorities[band])
            return &control->bands[i];
    return world_priorities[band] < 0 ? &control->other_negative : &control->other;
}

/* Counted here; of the other detector the core's own figure is taken. */
static double
saturation(const struct world *world, uint64_t pools)
{
    const struct gateway_saturation *by = &world->control.saturation;
    enum gateway_state state = GATEWAY_DOWN;
    uint32_t in_flight = 0;
    uint32_t count = 0;
    if (by->detector != GATEWAY_DETECT_CONCURRENCY)
        return gateway_pool_saturation(world->gateway, pools);
    for (uint32_t i = 0; i < world->server_count; i++)
        if (is_in(world, i, pools) && is_usable(&world->servers[i]) && state != GATEWAY_UP)
            state = world->servers[i].state;
    for (uint32_t i = 0; i < world->server_count && state != GATEWAY_DOWN; i++)
        if (is_in(world, i, pools) && world->servers[i].state == state) {
            in_flight += world->servers[i].in_flight;
            count++;
        }
    return count > 0 ? in_flight / (count * by->requests_max) : 1;
}

void
wait_begins(struct world *world, struct sim_client *client)
{
    const struct gateway_band *rules = band_rules(world, client->band);
    struct world_band *band = &world->bands[client->band];
    int64_t ttl_ms = any_usable(world, client) ? rules->ttl_ms : world->control.no_endpoint_ttl_ms;
    client->is_waiting = true;
    client->since_ms = world->now_ms;
    client->key = rules->ordering == GATEWAY_ORDER_ARRIVAL ? world->now_ms
                  : rules->ordering == GATEWAY_ORDER_TTL   ? world->now_ms + ttl_ms
                  : client->slo_ms > 0                     ? world->now_ms + client->slo_ms
                                                           : INT64_MAX;
    band->count++;
    band->bytes += client->bytes;
    band->waiting[client->flow]++;
    world->waiting++;
    world->waiting_bytes += client->bytes;
}

void
wait_ends(struct world *world, struct sim_client *client)
{
    const struct gateway_band *rules = band_rules(world, client->band);
    struct world_band *band = &world->bands[client->band];
    int64_t longest_ms = world->control.no_endpoint_ttl_ms;
    longest_ms = longest_ms > rules->ttl_ms ? longest_ms : rules->ttl_ms;
    demand(world, world->now_ms - client->since_ms <= longest_ms, "I14_waits_end");
    client->is_waiting = false;
    band->count--;
    band->bytes -= client->bytes;
    world->waiting--;
    world->waiting_bytes -= client->bytes;
    if (--band->waiting[client->flow] > 0)
        return;
    for (uint32_t other = 0; other < FLOWS; other++) {
        band->turns[client->flow][other] = band->turns[other][client->flow] = 0;
        band->cost[client->flow][other] = band->cost[other][client->flow] = 0;
    }
}

static void
check_fairness(struct world *world, const struct sim_client *client)
{
    const struct gateway_band *rules = band_rules(world, client->band);
    struct world_band *band = &world->bands[client->band];
    uint32_t served = client->flow;
    double cost =
        rules->input_weight * (double)client->tokens + rules->output_weight * (double)OUTPUT_TOKENS;
    double cost_max = rules->input_weight * TOKENS_MAX + rules->output_weight * OUTPUT_TOKENS;
    for (uint32_t other = 0; other < FLOWS; other++) {
        if (other == served || band->waiting[other] == 0)
            continue;
        band->turns[other][served] = 0;
        band->turns[served][other]++;
        demand(world,
               rules->fairness != GATEWAY_FAIR_ROUND_ROBIN || band->turns[served][other] <= 1,
               "I13_fairness");
        band->cost[served][other] += cost;
        demand(world,
               rules->fairness != GATEWAY_FAIR_TOKENS ||
                   band->cost[served][other] - band->cost[other][served] <= 2 * cost_max + 10,
               "I13_fairness");
    }
}

void
leaves_queue(struct world *world, struct sim_client *client)
{
    const struct gateway_band *rules = band_rules(world, client->band);
    bool is_strict = rules->fairness == GATEWAY_FAIR_STRICT;
    bool opens = goes_open(world, client);
    uint64_t pools = pools_of(world, client);
    demand(world,
           opens || pools == 0 ||
               world->control.saturation.detector != GATEWAY_DETECT_CONCURRENCY ||
               saturation(world, pools) < world->control.threshold,
           "I15_no_more_than_fits");
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct sim_client *other = &world->clients[i];
        if (!other->is_open || !other->is_waiting || other == client)
            continue;
        uint64_t others = pools_of(world, other);
        demand(world, other->band <= client->band || !any_usable_in_both(world, pools, others),
               "I11_priority");
        if (other->band != client->band || (!is_strict && other->flow != client->flow) ||
            others != pools || opens)
            continue;
        demand(world,
               other->key > client->key ||
                   (other->key == client->key && other->life > client->life),
               "I12_order");
    }
    if (!world->has_routes) /* else it is that of each set of pools */
        check_fairness(world, client);
    wait_ends(world, client);
}

void
refused_in_queue(struct world *world, struct sim_client *client, enum gateway_refusal refusal)
{
    if (!is_refusal_of_queue(refusal) && any_usable(world, client))
        leaves_queue(world, client);
    else
        wait_ends(world, client);
}

/* Both bands of a priority share its limits. */
static bool
is_within(const struct world *world, uint32_t band)
{
    const struct gateway_band *rules = band_rules(world, band);
    const struct world_band *lower = &world->bands[band & ~1U];
    const struct world_band *raised = &world->bands[band | 1U];
    return (rules->requests_max == 0 || lower->count + raised->count <= rules->requests_max) &&
           (rules->bytes_max == 0 || lower->bytes + raised->bytes <= rules->bytes_max);
}

static bool
is_full(const struct world *world, const struct sim_client *client)
{
    const struct gateway_flow_control *control = &world->control;
    return (control->requests_max > 0 && world->waiting > control->requests_max) ||
           (control->bytes_max > 0 && world->waiting_bytes > control->bytes_max) ||
           !is_within(world, client->band);
}

bool
is_refusal_of_queue(enum gateway_refusal refusal)
{
    return refusal == GATEWAY_REFUSED_SHED || refusal == GATEWAY_REFUSED_QUEUE_FULL ||
           refusal == GATEWAY_REFUSED_EXPIRED || refusal == GATEWAY_REFUSED_SHARE;
}

/* Its model had answers within the window, and is not alone. */
static bool
had_share(const struct world *world, const struct sim_client *client)
{
    int64_t since_ms = world->now_ms - world->share_window_ms - 10; /* slices are rounded up */
    uint32_t others = 0;
    for (uint64_t model = 1; model <= MODELS; model++)
        others += model != client->model && world->model_ended_ms[model] > 0 &&
                  world->model_ended_ms[model] >= since_ms;
    return world->share_window_ms > 0 && others > 0 &&
           world->model_ended_ms[client->model] >= since_ms &&
           saturation(world, pools_of(world, client)) >= 1;
}

bool
queue_may_refuse(const struct world *world, const struct sim_client *client,
                 enum gateway_refusal refusal)
{
    int64_t waited_ms = world->now_ms - client->since_ms;
    if (refusal == GATEWAY_REFUSED_SHARE)
        return had_share(world, client);
    if (refusal == GATEWAY_REFUSED_SHED)
        return !world->control.is_on && saturation(world, pools_of(world, client)) >= 1 &&
               (world_priorities[client->band] < 0 || gives_way(world, client));
    if (!client->is_waiting)
        return false;
    if (refusal == GATEWAY_REFUSED_QUEUE_FULL)
        return is_full(world, client);
    if (refusal == GATEWAY_REFUSED_EXPIRED)
        return any_usable(world, client) && waited_ms >= band_rules(world, client->band)->ttl_ms;
    return refusal == GATEWAY_REFUSED_NO_ENDPOINT && !any_usable(world, client) &&
           waited_ms >= world->control.no_endpoint_ttl_ms;
}

/* For no endpoint that it may use a request of its priority or a higher one waits with others. */
static bool
is_first_for_some(const struct world *world, const struct sim_client *client)
{
    uint64_t pools = pools_of(world, client);
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct sim_client *other = &world->clients[i];
        uint64_t others = pools_of(world, other);
        if (other->is_open && other->is_waiting && other->band >= client->band && others != pools &&
            any_usable_in_both(world, pools, others))
            return false;
    }
    return true;
}

/* Without routes it is the same for all. */
static void
check_idling(struct world *world)
{
    bool all_fit = true;
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        const struct sim_client *client = &world->clients[i];
        if (!client->is_open || !client->is_waiting)
            continue;
        uint64_t pools = pools_of(world, client);
        bool fits =
            any_usable(world, client) && saturation(world, pools) < world->control.threshold;
        demand(world, pools != 0 && !goes_open(world, client), "I16_no_idling");
        demand(world, !fits || !is_first_for_some(world, client), "I16_no_idling");
        all_fit = all_fit && fits;
        if (!world->has_routes)
            break;
    }
    demand(world, !all_fit, "I16_no_idling");
}

void
check_queue(struct world *world)
{
    const struct gateway_flow_control *control = &world->control;
    if (world->waiting == 0 || gateway_next_ms(world->gateway) <= world->now_ms)
        return;
    check_idling(world);
    demand(world, control->requests_max == 0 || world->waiting <= control->requests_max,
           "I17_limits");
    for (uint32_t i = 0; i < PRIORITIES; i += 2)
        demand(world, is_within(world, i), "I17_limits");
}

static struct gateway_band
random_band(struct world *world, int32_t priority)
{
    return (struct gateway_band){
        .priority = priority,
        .requests_max = below(world, 2) == 0 ? 0 : 1 + (uint32_t)below(world, 60),
        .bytes_max = below(world, 2) == 0 ? 0 : 1 + below(world, 50000),
        .ttl_ms = 1 + (int64_t)below(world, 4000),
        .fairness = (enum gateway_fairness)below(world, GATEWAY_FAIRNESS_COUNT),
        .ordering = (enum gateway_ordering)below(world, GATEWAY_ORDERING_COUNT),
        .input_weight = 1 + (double)below(world, 3),
        .output_weight = (double)below(world, 4),
    };
}

void
flow_control_begin(struct world *world)
{
    struct gateway_flow_control *control = &world->control;
    *control = (struct gateway_flow_control){
        .is_on = below(world, 3) > 0,
        .threshold = below(world, 4) == 0 ? 0.5 : 1,
        .requests_max = below(world, 2) == 0 ? 0 : 1 + (uint32_t)below(world, 100),
        .bytes_max = below(world, 4) > 0 ? 0 : 1 + below(world, 100000),
        .no_endpoint_ttl_ms = 1 + (int64_t)below(world, 8000),
        .saturation = {.detector = (enum gateway_detector)below(world, GATEWAY_DETECTOR_COUNT),
                       .waiting_max = 5,
                       .kv_used_max = 0.8,
                       .stale_ms = 200,
                       .ignores_stale = below(world, 2) == 0,
                       .requests_max = 1 + (double)below(world, 8)},
        .other = random_band(world, 0),
        .other_negative = random_band(world, 0),
    };
    for (uint32_t i = 0; i < PRIORITIES; i += 2)
        if (below(world, 2) == 0)
            control->bands[control->band_count++] = random_band(world, world_priorities[i]);
}
