/* SPDX-License-Identifier: Apache-2.0 */
#include "world_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "base/check.h"
#include "base/hash.h"

void
demand(const struct world *world, bool holds, const char *invariant)
{
    if (holds)
        return;
    fprintf(stderr, "broken: %s at %lld ms\nSHOAL_SEED=%llu\n", invariant, (long long)world->now_ms,
            (unsigned long long)world->seed);
    abort();
}

uint64_t
below(struct world *world, uint64_t limit)
{
    return random_draw(&world->random) % limit;
}

/* ---- virtual time ---- */

static bool
is_before(const struct happening *a, const struct happening *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static void
after(struct world *world, int64_t delay_ms, enum sim_what what, uint32_t number, uint64_t serial)
{
    CHECK(world->heap_count < HEAP_MAX);
    uint32_t at = world->heap_count++;
    struct happening added = {.at_ms = world->now_ms + delay_ms,
                              .order = world->order++,
                              .what = what,
                              .number = number,
                              .serial = serial};
    for (; at > 0 && is_before(&added, &world->heap[(at - 1) / 2]); at = (at - 1) / 2)
        world->heap[at] = world->heap[(at - 1) / 2];
    world->heap[at] = added;
}

static struct happening
next_happening(struct world *world)
{
    struct happening first = world->heap[0];
    struct happening last = world->heap[--world->heap_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < world->heap_count; child = 2 * at + 1) {
        if (child + 1 < world->heap_count &&
            is_before(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (!is_before(&world->heap[child], &last))
            break;
        world->heap[at] = world->heap[child];
        at = child;
    }
    world->heap[at] = last;
    return first;
}

/* ---- what the core does ---- */

bool
is_usable(const struct server *server)
{
    return server->state == GATEWAY_UP || server->state == GATEWAY_SUSPECT;
}

/* The world's servers in this state that the client has not tried for this target. */
static bool
is_left(const struct world *world, const struct sim_client *client, enum gateway_state state)
{
    for (uint32_t i = 0; i < world->server_count; i++)
        if (world->servers[i].state == state && (client->tried >> i & 1) == 0 &&
            (client->target.pools == 0 || (client->target.pools & world->pools[i]) != 0))
            return true;
    return false;
}

static void
on_send(struct world *world, const struct gateway_action *action)
{
    struct sim_client *client = &world->clients[action->request];
    struct server *server = &world->servers[action->endpoint];
    demand(world, client->is_open && !client->is_tried && !client->has_started, "I1_one_answer");
    routed_try(world, client, action);
    bool is_open =
        (client->target.pools & world->open_pools) != 0 && !is_left(world, client, GATEWAY_SUSPECT);
    demand(world, is_usable(server) || is_open, "I2_no_send_to_the_dead");
    demand(world, !server->is_known_dead || is_open, "I2_no_send_to_the_dead");
    demand(world, server->state == GATEWAY_UP || !is_left(world, client, GATEWAY_UP),
           "I6_suspects_last");
    demand(world, (client->tried >> action->endpoint & 1) == 0, "I4_no_second_try");
    demand(world, ++client->sends <= tries_allowed(world, client), "I4_bounded_tries");
    if (client->is_waiting)
        leaves_queue(world, client);
    world->totals->retried += client->sends > 1;
    client->is_tried = true;
    client->serial = world->order;
    client->server = action->endpoint;
    server->in_flight++;
    after(world, (int64_t)below(world, 3), REACHES, action->request, client->serial);
}

static bool
is_justified(const struct world *world, const struct sim_client *client,
             enum gateway_refusal refusal)
{
    if (refusal == GATEWAY_REFUSED_UNKNOWN)
        return !is_admitted(world, client) ||
               (client->sends > 0 && client->absent == client->sends);
    if (is_refusal_of_queue(refusal) || (client->is_waiting && !world->has_routes))
        return queue_may_refuse(world, client, refusal);
    return is_none_left(world, client) || client->sends >= tries_allowed(world, client) ||
           queue_may_refuse(world, client, refusal);
}

static void
on_refuse(struct world *world, const struct gateway_action *action)
{
    struct sim_client *client = &world->clients[action->request];
    demand(world, client->is_open && !client->is_tried && !client->has_started, "I1_one_answer");
    demand(world, is_justified(world, client, action->refusal), "I5_refused_for_a_reason");
    demand(world, ++world->step_refusals == 1, "I18_one_refusal_a_step");
    demand(world,
           is_refusal_of_queue(action->refusal) || !world->is_calm || world->has_routes ||
               world->now_ms < world->calm_ms + CALM_MS * 3 / 4,
           "I7_everything_returns");
    if (client->is_waiting)
        refused_in_queue(world, client, action->refusal);
    client->is_open = false;
    world->totals->refused++;
    world->totals->refused_by[action->refusal]++;
}

static void
on_scrape(struct world *world, uint32_t number)
{
    struct server *server = &world->servers[number];
    demand(world, server->state != GATEWAY_FREE && server->state != GATEWAY_LEAVING, "I8_scrapes");
    demand(world, !server->is_scraping, "I8_scrapes");
    demand(world,
           server->state != GATEWAY_UP || !server->was_up ||
               world->now_ms >= server->scraped_ms + SCRAPE_MS_MIN * 3 / 4,
           "I8_scrapes");
    server->was_up = server->state == GATEWAY_UP;
    server->idle_scrapes += world->is_quiet;
    server->is_scraping = true;
    server->scraped_ms = world->now_ms;
    server->scrape_order = server->scrape_serial = world->order;
    world->totals->scrapes++;
    after(world, (int64_t)below(world, 3), SCRAPED, number, server->scrape_serial);
}

static void
on_action(struct world *world, const struct gateway_action *action)
{
    const uint32_t facts[] = {(uint32_t)action->kind,    action->request,         action->endpoint,
                              (uint32_t)action->refusal, (uint32_t)action->state, action->target};
    world->trace = hash_fnv1a(world->trace, &world->now_ms, sizeof(world->now_ms));
    world->trace = hash_fnv1a(world->trace, facts, sizeof(facts));
    struct server *server =
        action->endpoint < SERVERS_MAX ? &world->servers[action->endpoint] : NULL;
    switch (action->kind) {
    case GATEWAY_SEND: on_send(world, action); break;
    case GATEWAY_REFUSE: on_refuse(world, action); break;
    case GATEWAY_SCRAPE: on_scrape(world, action->endpoint); break;
    case GATEWAY_LOAD:
    case GATEWAY_UNLOAD:
        rollout_begins(world, action);
        after(world, 1 + (int64_t)below(world, 800), ADAPTED, action->endpoint, 0);
        break;
    case GATEWAY_CHANGED: server->state = action->state; break;
    case GATEWAY_FREED:
        demand(world, server->in_flight == 0 && !server->is_scraping && !server->is_adapting,
               "I9_freed_when_unused");
        break;
    }
}

static void
step(struct world *world, struct gateway_event event)
{
    event.now_ms = world->now_ms;
    world->step_refusals = 0;
    uint32_t count;
    objectives_roll(world);
    const struct gateway_action *actions = gateway_step(world->gateway, &event, &count);
    for (uint32_t i = 0; i < count; i++)
        on_action(world, &actions[i]);
    for (uint32_t i = 0; i < world->server_count; i++) {
        struct gateway_view view;
        gateway_look(world->gateway, i, &view);
        demand(world, view.in_flight == world->servers[i].in_flight, "I3_in_flight");
        const struct server *server = &world->servers[i];
        int64_t bound_ms = SCRAPE_MS_MAX + 2 * SCRAPE_TIMEOUT_MS + 100;
        demand(world,
               server->ill_since_ms == 0 || world->now_ms < server->ill_since_ms + bound_ms ||
                   !is_usable(server),
               "I10_the_dead_are_noticed");
    }
    check_queue(world);
    check_objectives(world);
    if (below(world, 16) == 0)
        gateway_check(world->gateway);
}

/* ---- tries ---- */

static struct gateway_ask
ask_of(const struct sim_client *client)
{
    return (struct gateway_ask){.model = client->model,
                                .session = client->session,
                                .block_count = client->block_count,
                                .blocks = client->blocks,
                                .priority = world_priorities[client->band],
                                .has_priority = true,
                                .flow = client->flow,
                                .bytes = client->bytes,
                                .tokens = client->tokens,
                                .slo_ms = client->slo_ms,
                                .is_streamed = client->serial % 2 == 0};
}

static void
try_over(struct world *world, struct sim_client *client)
{
    struct server *server = &world->servers[client->server];
    client->is_tried = false;
    server->in_flight--;
    if (server->running > 0 && client->server_life == server->life)
        server->running--;
}

static void
try_fails(struct world *world, uint32_t number, enum gateway_failure failure)
{
    struct sim_client *client = &world->clients[number];
    struct server *server = &world->servers[client->server];
    if (failure == GATEWAY_FAILED_UNREACHABLE) {
        server->is_known_dead = is_usable(server);
        server->dead_order = world->order++;
    }
    client->tried |= 1u << client->server;
    client->absent += failure == GATEWAY_FAILED_ABSENT;
    routed_failure(world, client, failure);
    try_over(world, client);
    step(world, (struct gateway_event){.kind = GATEWAY_TRY_FAILED,
                                       .request = number,
                                       .failure = failure,
                                       .ask = ask_of(client)});
}

static void
request_ends(struct world *world, uint32_t number, enum gateway_end end)
{
    struct sim_client *client = &world->clients[number];
    demand(world, client->is_open, "I1_one_answer");
    if (client->is_waiting)
        wait_ends(world, client);
    else
        try_over(world, client);
    client->is_open = false;
    world->totals->answered += end == GATEWAY_END_OK;
    world->totals->cancelled += end == GATEWAY_END_CANCELLED;
    world->totals->broken += end == GATEWAY_END_BROKE;
    bool says = end == GATEWAY_END_OK && below(world, 2) == 0;
    uint64_t tokens = says ? 1 + below(world, 500) : 0;
    objectives_count(world, client, tokens);
    if (end == GATEWAY_END_OK)
        world->model_ended_ms[client->model] = world->now_ms;
    step(world, (struct gateway_event){.kind = GATEWAY_ENDED,
                                       .request = number,
                                       .end = end,
                                       .prompt_tokens = says ? client->tokens : 0,
                                       .answer_tokens = tokens});
}

static void
on_reaches(struct world *world, uint32_t number)
{
    struct sim_client *client = &world->clients[number];
    struct server *server = &world->servers[client->server];
    client->server_life = server->life;
    if (server->is_dead && server->is_black_hole)
        after(world, 1000, GIVES_UP, number, client->serial);
    else if (server->is_dead)
        try_fails(world, number, GATEWAY_FAILED_UNREACHABLE);
    else if (server->hangs)
        after(world, FIRST_BYTE_TIMEOUT_MS, GIVES_UP, number, client->serial);
    else if (server->declines)
        try_fails(world, number, GATEWAY_FAILED_BUSY);
    else if (client->target.model != 0 && below(world, 8) == 0)
        try_fails(world, number, GATEWAY_FAILED_ABSENT);
    else {
        server->loaded[client->model % 3] = client->model;
        int64_t works_ms = 20 + (int64_t)(server->slowness * (1 + server->running));
        server->running++;
        after(world, works_ms, STARTS, number, client->serial);
        after(world, FIRST_BYTE_TIMEOUT_MS, GIVES_UP, number, client->serial);
    }
}

static void
on_gives_up(struct world *world, uint32_t number)
{
    const struct server *server = &world->servers[world->clients[number].server];
    if (world->clients[number].has_started)
        return;
    bool unreachable = server->is_dead && server->is_black_hole;
    try_fails(world, number, unreachable ? GATEWAY_FAILED_UNREACHABLE : GATEWAY_FAILED_LATE);
}

static void
on_starts(struct world *world, uint32_t number)
{
    struct sim_client *client = &world->clients[number];
    if (world->servers[client->server].hangs)
        return; /* it is given up */
    client->has_started = true;
    step(world, (struct gateway_event){.kind = GATEWAY_STARTED, .request = number});
    after(world, (int64_t)below(world, 400), ENDS, number, client->serial);
}

static void
on_arrives(struct world *world)
{
    uint32_t number = 0;
    while (number < REQUESTS_MAX && world->clients[number].is_open)
        number++;
    if (!world->is_idle)
        after(world, (int64_t)below(world, (uint64_t)(2 * world->arrival_ms)), ARRIVES, 0, 0);
    if (world->is_idle || number == REQUESTS_MAX)
        return;
    struct sim_client *client = &world->clients[number];
    *client = (struct sim_client){.is_open = true, .life = world->order++};
    client->model = 1 + below(world, MODELS);
    client->session = below(world, 4);
    char prompt[GATEWAY_BLOCK_BYTES * 12];
    memset(prompt, (int)('a' + below(world, PROMPTS)), sizeof(prompt));
    client->block_count =
        gateway_prefix_hash(client->model, prompt, below(world, sizeof(prompt)), client->blocks);
    client->band = 2 * (uint32_t)below(world, PRIORITIES / 2);
    client->arrived_ms = world->now_ms;
    objectives_roll(world);
    client->band += is_raised(world, client);
    client->flow = (uint32_t)below(world, FLOWS);
    client->bytes = below(world, 1000);
    client->tokens = below(world, TOKENS_MAX);
    client->slo_ms = below(world, 2) == 0 ? 0 : (int64_t)below(world, 3000);
    if (world->control.is_on && is_admitted(world, client) && pools_of(world, client) != 0 &&
        !goes_open(world, client))
        wait_begins(world, client);
    world->totals->requests++;
    if (below(world, 10) == 0)
        after(world, (int64_t)below(world, 600), LEAVES, number, client->life);
    step(world,
         (struct gateway_event){.kind = GATEWAY_REQUEST, .request = number, .ask = ask_of(client)});
}

/* ---- scrapes ---- */

static void
on_scraped(struct world *world, uint32_t number)
{
    struct server *server = &world->servers[number];
    bool is_silent = server->hangs || (server->is_dead && server->is_black_hole);
    server->scrape_fails = server->is_dead || server->hangs;
    int64_t delay_ms = is_silent ? SCRAPE_TIMEOUT_MS : (int64_t)below(world, 200) / 20;
    if (!world->is_calm && below(world, 16) == 0)
        delay_ms = SCRAPE_TIMEOUT_MS - 1; /* late, but in time */
    after(world, delay_ms, SCRAPE_END, number, server->scrape_serial);
}

static void
on_scrape_end(struct world *world, uint32_t number)
{
    struct server *server = &world->servers[number];
    bool fails = server->scrape_fails;
    server->is_scraping = false;
    if (fails) {
        server->is_known_dead = true;
        server->dead_order = world->order++;
        step(world, (struct gateway_event){.kind = GATEWAY_SCRAPE_FAILED, .endpoint = number});
        return;
    }
    if (server->scrape_order > server->dead_order)
        server->is_known_dead = false;
    struct gateway_adapter adapters[3];
    struct gateway_figures figures = {
        .is_known = below(world, 8) != 0, .adapters_max = 3, .adapters = adapters, .base_model = 1};
    figures.running = server->running;
    figures.waiting = server->running > 4 ? server->running - 4 : 0;
    figures.kv_used = (double)below(world, 100) / 80; /* also what no server may say */
    for (int i = 0; i < 3; i++)
        if (server->loaded[i] != 0)
            adapters[figures.adapter_count++] =
                (struct gateway_adapter){server->loaded[i], GATEWAY_ADAPTER_LOADED, 0};
    uint64_t catalogue[MODELS];
    for (uint64_t model = 1; model <= MODELS; model++)
        if ((server->has >> model & 1) != 0)
            catalogue[figures.catalogue_count++] = model;
    figures.has_catalogue = !server->is_adapting && below(world, 2) == 0;
    figures.catalogue = catalogue;
    step(world,
         (struct gateway_event){.kind = GATEWAY_SCRAPED, .endpoint = number, .figures = figures});
}

/* ---- faults ---- */

static void
server_ends(struct world *world, uint32_t number)
{
    struct server *server = &world->servers[number];
    server->running = 0;
    server->life++;
    memset(server->loaded, 0, sizeof(server->loaded));
    server->has = 0;
    if (server->is_black_hole)
        return; /* its connections are silent; each is given up */
    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        struct sim_client *client = &world->clients[i];
        if (!client->is_open || !client->is_tried || client->server != number ||
            client->server_life == server->life)
            continue;
        if (client->has_started)
            request_ends(world, i, GATEWAY_END_BROKE);
        else
            try_fails(world, i, GATEWAY_FAILED_BROKE);
    }
}

static void
endpoint_comes(struct world *world, uint32_t number)
{
    struct server *server = &world->servers[number];
    if (server->state == GATEWAY_FREE) {
        server->is_known_dead = true; /* until a scrape proves otherwise */
        server->dead_order = world->order++;
        server->was_up = false;
        if (server->ill_since_ms != 0)
            server->ill_since_ms = world->now_ms;
        step(world, (struct gateway_event){.kind = GATEWAY_ADDED,
                                           .endpoint = number,
                                           .identity = 1000 + number,
                                           .pools = world->pools[number]});
    }
}

static void
on_fault(struct world *world)
{
    uint32_t number = (uint32_t)below(world, world->server_count);
    struct server *server = &world->servers[number];
    if (world->is_calm)
        return;
    after(world, (int64_t)below(world, 4000), FAULT, 0, 0);
    world->totals->faults++;
    switch (below(world, 6)) {
    case 0:
    case 1:
        if (server->ill_since_ms == 0) {
            server->is_dead = true;
            server->is_black_hole = below(world, 3) == 0;
            server->ill_since_ms = world->now_ms;
            server_ends(world, number);
        }
        break;
    case 2:
        server->hangs = true;
        if (server->ill_since_ms == 0)
            server->ill_since_ms = world->now_ms;
        break;
    case 3: server->declines = true; break;
    case 4: server->slowness = (uint32_t)below(world, 1000); break;
    default:
        if (server->state != GATEWAY_FREE && server->state != GATEWAY_LEAVING)
            step(world, (struct gateway_event){.kind = GATEWAY_REMOVED, .endpoint = number});
        break;
    }
    after(world, (int64_t)below(world, 6000), HEALS, number, 0);
}

static void
on_heals(struct world *world, uint32_t number)
{
    struct server *server = &world->servers[number];
    server->is_dead = server->hangs = server->declines = false;
    server->ill_since_ms = 0;
    server->slowness = (uint32_t)below(world, 8);
    endpoint_comes(world, number);
}

static void
on_adapted(struct world *world, uint32_t number)
{
    struct server *server = &world->servers[number];
    bool succeeds = rollout_ends(world, server);
    step(world,
         (struct gateway_event){.kind = succeeds ? GATEWAY_ADAPTER_DONE : GATEWAY_ADAPTER_FAILED,
                                .endpoint = number});
}

static void
on_routes(struct world *world)
{
    objectives_roll(world);
    routes_draw(world);
    const struct gateway_routes routes = {.routes = world->routes,
                                          .route_count = world->route_count,
                                          .targets = world->targets,
                                          .target_count = world->target_count,
                                          .open_pools = world->open_pools,
                                          .rollouts = world->rollouts,
                                          .rollout_count = world->rollout_count,
                                          .pools = world->pools};
    step(world, (struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    if (!world->is_calm)
        after(world, (int64_t)below(world, 5000), ROUTES, 0, 0);
}

/* ---- the run ---- */

static void
happens(struct world *world, const struct happening *happening)
{
    struct sim_client *client = &world->clients[happening->number % REQUESTS_MAX];
    bool is_current = client->is_open && client->is_tried && client->serial == happening->serial;
    switch (happening->what) {
    case ARRIVES: on_arrives(world); break;
    case REACHES:
        if (is_current)
            on_reaches(world, happening->number);
        break;
    case STARTS:
        if (is_current && client->server_life == world->servers[client->server].life)
            on_starts(world, happening->number);
        break;
    case ENDS:
        if (is_current)
            request_ends(world, happening->number, GATEWAY_END_OK);
        break;
    case GIVES_UP:
        if (is_current)
            on_gives_up(world, happening->number);
        break;
    case LEAVES:
        if (client->is_open && (client->is_tried || client->is_waiting) &&
            client->life == happening->serial)
            request_ends(world, happening->number, GATEWAY_END_CANCELLED);
        break;
    case SCRAPED: on_scraped(world, happening->number); break;
    case SCRAPE_END: on_scrape_end(world, happening->number); break;
    case FAULT: on_fault(world); break;
    case HEALS: on_heals(world, happening->number); break;
    case ROUTES: on_routes(world); break;
    case ADAPTED: on_adapted(world, happening->number); break;
    }
}

static void
run_until(struct world *world, int64_t end_ms)
{
    uint32_t steps = 0; /* at one time */
    for (;;) {
        int64_t tick_ms = gateway_next_ms(world->gateway);
        int64_t happens_ms = world->heap_count > 0 ? world->heap[0].at_ms : INT64_MAX;
        int64_t next_ms = tick_ms < happens_ms ? tick_ms : happens_ms;
        if (next_ms > end_ms)
            break;
        steps = next_ms > world->now_ms ? 0 : steps + 1;
        demand(world, steps < STEPS_MAX, "I19_time_passes");
        world->now_ms = next_ms > world->now_ms ? next_ms : world->now_ms;
        if (happens_ms <= tick_ms) {
            struct happening happening = next_happening(world);
            happens(world, &happening);
        } else {
            step(world, (struct gateway_event){.kind = GATEWAY_TICK});
        }
    }
    world->now_ms = end_ms;
}

static void
world_begin(struct world *world)
{
    flow_control_begin(world);
    struct gateway_scheduler scheduler = {
        .picker = (enum gateway_picker)below(world, GATEWAY_PICKER_COUNT),
        .seed_pending_max = 1 + (uint32_t)below(world, 20)};
    for (int i = 0; i < GATEWAY_SCORER_COUNT; i++)
        scheduler.weights[i] = (double)below(world, 4);
    if (below(world, 2) == 0)
        scheduler.filters[scheduler.filter_count++] =
            (struct gateway_filter){.waiting_max = 5, .kv_used_max = 0.8};
    world->server_count = 1 + (uint32_t)below(world, SERVERS_MAX);
    scheduler.tokens_max = (double)below(world, 100000);
    world->share_window_ms = below(world, 2) == 0 ? 0 : 1 + (int64_t)below(world, 10000);
    world->objective_window_ms = 1000 + (int64_t)(world->seed % 5) * 700;
    world->tries_max = 1 + (uint32_t)below(world, 4);
    world->arrival_ms = 1 + (int64_t)below(world, 120);
    const struct gateway_config config = {.seed = world->seed,
                                          .endpoints_max = SERVERS_MAX,
                                          .requests_max = REQUESTS_MAX,
                                          .tries_max = world->tries_max,
                                          .prefix_blocks_max = 64,
                                          .scrape_ms_min = SCRAPE_MS_MIN,
                                          .scrape_ms_max = SCRAPE_MS_MAX,
                                          .share_window_ms = world->share_window_ms,
                                          .objective_window_ms = world->objective_window_ms,
                                          .scheduler = scheduler,
                                          .flow_control = world->control};
    world->gateway = gateway_create(&config);
    world->has_routes = world->seed % 3 == 0;
    if (world->has_routes)
        on_routes(world);
    for (uint32_t i = 0; i < world->server_count; i++)
        endpoint_comes(world, i);
    after(world, 100, ARRIVES, 0, 0);
    after(world, 1000, FAULT, 0, 0);
}

/* No faults: after half of this time the last endpoints are back, after three quarters nothing is
 * refused. */
static void
world_calm(struct world *world)
{
    world->is_calm = true;
    world->calm_ms = world->now_ms;
    for (uint32_t i = 0; i < world->server_count; i++)
        on_heals(world, i);
    run_until(world, world->now_ms + CALM_MS / 2);
    for (uint32_t i = 0; i < world->server_count; i++) {
        endpoint_comes(world, i); /* those that were still leaving */
        demand(world,
               world->servers[i].state == GATEWAY_UP || world->servers[i].state == GATEWAY_DOWN,
               "I7_everything_returns");
    }
    run_until(world, world->now_ms + CALM_MS / 2);
    for (uint32_t i = 0; i < world->server_count; i++)
        demand(world, world->servers[i].state == GATEWAY_UP, "I7_everything_returns");
}

/* No requests: nothing is in flight, and scrapes become rare. */
static void
world_idle(struct world *world)
{
    world->is_idle = true;
    run_until(world, world->now_ms + QUIET_MS);
    world->is_quiet = true;
    run_until(world, world->now_ms + IDLE_MS);
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        demand(world, !world->clients[i].is_open, "I1_one_answer");
    demand(world, world->waiting == 0, "I14_waits_end");
    for (uint32_t i = 0; i < world->server_count; i++) {
        struct gateway_view view;
        gateway_look(world->gateway, i, &view);
        demand(world, view.in_flight == 0, "I3_in_flight");
        demand(world, world->servers[i].idle_scrapes < 20, "I8_scrapes");
    }
    check_rolled_out(world);
    gateway_check(world->gateway);
}

uint64_t
world_run(uint64_t seed, struct world_totals *totals)
{
    struct world *world = calloc(1, sizeof(*world));
    CHECK(world != NULL);
    world->seed = world->random = seed;
    world->trace = HASH_FNV1A_SEED;
    world->totals = totals;
    world->now_ms = 1;
    world_begin(world);
    run_until(world, FAULTS_MS);
    world_calm(world);
    world_idle(world);
    totals->ejected += gateway_counts(world->gateway)->ejected;
    totals->returned += gateway_counts(world->gateway)->returned;
    uint64_t trace = world->trace;
    gateway_destroy(world->gateway);
    free(world);
    return trace;
}
