/* SPDX-License-Identifier: Apache-2.0 */
/* The world's state. world.c lets things happen; world_queue.c checks what waits, for how long, and
 * in which order it leaves. */
#pragma once

#include "world.h"

#include "gateway/core/gateway_core.h"

enum {
    SERVERS_MAX = 8,
    REQUESTS_MAX = 256,
    MODELS = 6,
    PROMPTS = 5,
    PRIORITIES = 8, /* each twice: the latter for requests that are raised */
    FLOWS = 4,
    TOKENS_MAX = 2000,
    ROUTES_MAX = 8,
    TARGETS_MAX = 32,
    OUTPUT_TOKENS = 128, /* as queue.c has it */
    SCRAPE_TIMEOUT_MS = 900,
    FIRST_BYTE_TIMEOUT_MS = 4000,
    FAULTS_MS = 30000,
    CALM_MS = 20000,
    QUIET_MS = 10000,
    IDLE_MS = 40000,
    SCRAPE_MS_MIN = 50,
    SCRAPE_MS_MAX = 5000,
    HEAP_MAX = 1 << 16,
    STEPS_MAX = 10000,
};

enum sim_what {
    ARRIVES,  /* a client */
    REACHES,  /* a try its server */
    STARTS,   /* first byte of a try */
    ENDS,     /* of a started try */
    GIVES_UP, /* the edge waited long enough for a first byte */
    LEAVES,   /* a client */
    SCRAPED,  /* a scrape reaches its server */
    SCRAPE_END,
    FAULT,
    HEALS,   /* a server */
    ROUTES,  /* change */
    ADAPTED, /* a server loaded or unloaded one */
};

struct happening {
    int64_t at_ms;
    uint64_t order;
    enum sim_what what;
    uint32_t number; /* of a request or server */
    uint64_t serial; /* of the try, request or scrape: others are outdated */
};

struct server {
    bool is_dead;
    bool is_black_hole; /* dead: its machine too, so that nothing is refused */
    bool hangs;         /* accepts, and never answers */
    bool declines;
    int64_t ill_since_ms; /* dead or hanging; 0: neither */
    uint32_t slowness;
    uint32_t life; /* how often it began to live */
    uint32_t running;
    uint64_t loaded[3]; /* adapters */
    uint32_t has;       /* bits: adapters that requests may name */
    bool is_adapting;
    bool loads;
    uint64_t adapter; /* of what it is busy with */
    uint32_t adapting_life;

    /* as an endpoint of the core */
    enum gateway_state state;
    uint32_t in_flight; /* as the world counts */
    bool is_known_dead; /* nothing has proved since that it lives */
    uint64_t dead_order;
    bool is_scraping;
    bool scrape_fails;
    uint64_t scrape_serial;
    uint64_t scrape_order;
    int64_t scraped_ms;
    uint64_t idle_scrapes;
    bool was_up; /* before the scrape under way began */
};

struct sim_client {
    bool is_open;
    bool is_tried; /* a try is under way */
    bool has_started;
    uint64_t serial; /* of the try */
    uint64_t life;   /* of the request */
    uint32_t server;
    uint32_t server_life;
    uint32_t sends;
    uint32_t tried;               /* bits: for targets of this tier */
    uint32_t tier;                /* those below it failed */
    struct gateway_target target; /* of the try */
    uint32_t absent;              /* tries */
    uint64_t model;
    uint64_t session;
    uint64_t blocks[GATEWAY_BLOCKS_MAX];
    uint32_t block_count;

    bool is_waiting; /* in the queue */
    uint32_t band;   /* of the world's */
    uint32_t flow;
    uint64_t bytes;
    uint64_t tokens;
    int64_t slo_ms;
    int64_t since_ms;
    int64_t arrived_ms;
    int64_t key; /* of its order within the flow */
};

/* The service that requests of one priority received, by flow. */
struct world_band {
    uint32_t count;
    uint64_t bytes;
    uint32_t waiting[FLOWS];
    /* served to the first while both it and the second waited */
    uint32_t turns[FLOWS][FLOWS];
    double cost[FLOWS][FLOWS];
};

/* The answers in the window under way, and how the last ones were judged. */
struct world_objective {
    uint64_t count;
    uint64_t over;
    bool is_missed;
    uint64_t met;
    uint64_t missed;
};

struct world {
    uint64_t seed;
    uint64_t random;
    uint64_t trace;
    int64_t now_ms;
    uint64_t order;
    struct gateway *gateway;
    uint32_t tries_max;
    uint32_t server_count;
    int64_t arrival_ms; /* mean */
    bool is_calm;
    int64_t calm_ms;
    bool is_idle;
    bool is_quiet; /* and what was under way has ended */
    struct server servers[SERVERS_MAX];
    struct sim_client clients[REQUESTS_MAX];
    struct gateway_flow_control control;
    struct world_band bands[PRIORITIES];
    uint32_t waiting;
    uint64_t waiting_bytes;
    uint32_t step_refusals;
    bool has_routes;
    struct gateway_route routes[ROUTES_MAX];
    uint32_t route_count;
    struct gateway_target targets[TARGETS_MAX];
    uint32_t target_count;
    uint64_t pools[SERVERS_MAX];
    uint64_t open_pools;
    struct gateway_rollout rollouts[MODELS];
    uint32_t rollout_count;
    int64_t objective_window_ms;
    int64_t window;
    struct world_objective objectives[MODELS + 1]; /* of the route of each model */
    int64_t share_window_ms;
    int64_t model_ended_ms[MODELS + 1]; /* when an answer of it was complete */
    struct happening heap[HEAP_MAX];
    uint32_t heap_count;
    struct world_totals *totals;
};

void demand(const struct world *world, bool holds, const char *invariant);
/* A random number below the limit. */
uint64_t below(struct world *world, uint64_t limit);

bool is_usable(const struct server *server);

/* ---- world_routes.c ---- */

void routes_draw(struct world *world);
/* A LOAD or UNLOAD: checks it. */
void rollout_begins(struct world *world, const struct gateway_action *action);
/* Whether it succeeded. */
bool rollout_ends(struct world *world, struct server *server);
/* Servers that are up have what they are to have. */
void check_rolled_out(const struct world *world);
/* Before each step. */
void objectives_roll(struct world *world);
void objectives_count(struct world *world, const struct sim_client *client, uint64_t tokens);
/* After each step: the core judged alike. */
void check_objectives(const struct world *world);
bool is_raised(const struct world *world, const struct sim_client *client);
/* Another objective of its priority is missed, and it has none. */
bool gives_way(const struct world *world, const struct sim_client *client);
/* Whether the core may try the server for the target now. */
bool may_get(const struct world *world, const struct gateway_target *target, uint32_t server);
bool is_admitted(const struct world *world, const struct sim_client *client);
/* No target of the client is left to try. */
bool is_none_left(const struct world *world, const struct sim_client *client);
/* Those of all its targets. */
uint64_t pools_of(const struct world *world, const struct sim_client *client);
/* All endpoints of its targets are down, and it may go to one. */
bool goes_open(const struct world *world, const struct sim_client *client);
uint32_t tries_allowed(const struct world *world, const struct sim_client *client);
/* A try: sets and checks its target. */
void routed_try(struct world *world, struct sim_client *client,
                const struct gateway_action *action);
/* It failed: its fallbacks follow. */
void routed_failure(struct world *world, struct sim_client *client, enum gateway_failure failure);

/* ---- world_queue.c ---- */

extern const int32_t world_priorities[PRIORITIES];

/* Draws the configuration. */
void flow_control_begin(struct world *world);
void wait_begins(struct world *world, struct sim_client *client);
void wait_ends(struct world *world, struct sim_client *client);
/* A first try of a request that waited: none that goes before it waits. */
void leaves_queue(struct world *world, struct sim_client *client);
/* A refusal of a request that waited: it had its turn if its route had no server left. */
void refused_in_queue(struct world *world, struct sim_client *client, enum gateway_refusal refusal);
/* Whether the core may refuse it now for a reason that only the queue has. */
bool is_refusal_of_queue(enum gateway_refusal refusal);
bool queue_may_refuse(const struct world *world, const struct sim_client *client,
                      enum gateway_refusal refusal);
/* After each step. */
void check_queue(struct world *world);
