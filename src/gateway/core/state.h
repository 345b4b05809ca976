/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All state of the core. step.c changes it; schedule.c reads it and chooses; prefix.c owns what is
 * remembered of prompts, queue.c which requests wait; saturation.c measures the pool.
 */
#pragma once

#include "base/hash_table.h"
#include "gateway/core/gateway_core.h"
#include "gateway/core/heap.h"

#define NONE UINT32_MAX

/* Remembers which blocks an endpoint was sent: sets of PREFIX_WAYS hashes, in each the most
 * recently used first. A full set forgets its last. */
enum { PREFIX_WAYS = 8 };

struct prefix_index {
    uint64_t *hashes; /* 0: none */
    uint32_t capacity;
};

struct core_adapter {
    uint64_t name;
    uint32_t in_flight;
    uint32_t pending; /* as reported */
    bool is_reported; /* by the last scrape or report */
    enum gateway_adapter_state state;
};

struct core_rollout {
    bool is_known; /* what it has */
    bool is_complete;
    bool is_busy;
    bool is_load;
    uint64_t adapter; /* of what it is busy with */
    int64_t next_ms;
    int64_t delay_ms;
    uint32_t first; /* of the roll-outs: where to begin, so that one that fails delays no other */
    uint32_t has_count;
    uint64_t has[GATEWAY_ADAPTERS_MAX];
    uint32_t ours_count; /* loaded for us since it was last down */
    uint64_t ours[GATEWAY_ADAPTERS_MAX];
};

struct core_port {
    bool is_apart;     /* scrapes ask another: their success says nothing about it */
    uint32_t failures; /* tries in a row that ended without a first byte (E5) */
    int64_t shut_ms;   /* it is shut until then (E6) */
    int64_t delay_ms;  /* for which it was shut; 0: a try has succeeded since */
};

struct core_endpoint {
    enum gateway_state state;
    uint64_t identity;
    uint64_t label;
    uint64_t pools; /* bits */
    uint32_t in_flight;
    uint64_t tokens; /* of requests in flight, as estimated */
    struct core_port ports[GATEWAY_PORT_COUNT];

    /* figures: all zero while it is DOWN (E2) */
    bool is_known;
    int64_t seen_ms;
    uint32_t waiting;
    uint32_t running;
    double kv_used;
    uint64_t base_model;
    uint32_t adapters_max;
    uint32_t adapter_count;
    struct core_adapter adapters[GATEWAY_ADAPTERS_MAX];
    struct prefix_index prefix;
    struct core_rollout rollout;

    /* scrapes */
    bool is_scraping;
    bool is_void; /* E3: success of the scrape under way proves nothing */
    int64_t began_ms;
    int64_t next_ms;
    int64_t delay_ms;
    uint32_t sent;          /* wraps */
    uint32_t sent_at_begin; /* `sent` when the scrape under way began */
    uint32_t sent_seen;     /* `sent` that the figures include */
};

enum core_request_state { REQUEST_FREE, REQUEST_QUEUED, REQUEST_SENT, REQUEST_STARTED };

/* The requests of one tenant and priority that wait, and the service that it got. */
struct core_flow {
    struct hash_entry entry; /* in flows, if is_named */
    bool is_named;
    uint64_t id;
    int32_t priority;
    bool is_raised;
    uint64_t pools;
    uint64_t epoch;                    /* of the band to which its key belongs */
    struct core_band *band;            /* while requests wait, else NULL */
    struct pairing_heap_node in_band;  /* while requests wait; its key is the service it got */
    struct pairing_heap_node *waiting; /* in_flow of requests */
    struct core_flow *newer;           /* while no request waits: in the list of idle flows */
    struct core_flow *older;
};

struct core_band {
    bool is_used;
    bool is_configured;
    bool is_raised; /* O2: goes before those of its priority that are not */
    uint64_t pools; /* that its requests may go to */
    uint64_t epoch; /* other bands with this priority had others */
    struct gateway_band config;
    uint32_t count;
    uint64_t bytes;
    struct pairing_heap_node *flows; /* in_band of flows */
    int64_t served;                  /* the key of the flow that was served last, before it was */
    int64_t turns;
    uint64_t waits[GATEWAY_WAIT_BUCKETS + 1];
    uint64_t waited_ms;
};

struct core_queue {
    uint32_t count;
    uint64_t bytes;
    uint64_t order;
    bool is_eager;                    /* another request may leave at once */
    uint32_t opened_at;               /* R6: requests below it have been looked at */
    struct pairing_heap_node *expiry; /* by_expiry of requests */
    struct hash_table named;
    struct core_flow *flows;
    struct core_flow idle; /* the ends of a ring: `newer` is the oldest */
    struct core_band bands[GATEWAY_BANDS_MAX];
};

struct core_request {
    enum core_request_state state;
    enum gateway_port port;
    uint32_t endpoint;
    uint32_t tries;
    uint32_t busy_count;
    uint32_t absent_count;
    uint32_t unreachable_count;
    uint32_t tried_count;
    uint32_t tried[GATEWAY_TRIES_MAX]; /* endpoints not to be tried again */
    uint64_t adapter;                  /* counted in the endpoint's table; 0: not */
    uint64_t tokens;                   /* counted in the endpoint's */
    uint64_t model;
    uint64_t prompt_tokens; /* as estimated */
    int64_t arrived_ms;
    uint64_t draw;                /* R2; 0: not drawn yet */
    uint32_t tier;                /* R4: those below it failed */
    struct gateway_target target; /* of the last try */

    /* while QUEUED */
    struct gateway_ask ask;
    struct core_flow *flow;
    struct pairing_heap_node in_flow;
    struct pairing_heap_node by_expiry;
    int64_t queued_ms;
    bool had_endpoint; /* when its expiry was set (F6) */
};

/* A step sends at most one request for its event, and one from the queue. */
enum { CHOICES_MAX = 2 };

enum { SHARES_MAX = 64, SHARE_SLICES = 8 };

/* The tokens of one model, by slices of the window, of which each knows its number. */
struct core_share {
    uint64_t model;
    int64_t slices[SHARE_SLICES];
    uint64_t tokens[SHARE_SLICES];
};

/* The answers of a route in the window under way, and the judgement of the last ones. */
struct core_objective {
    uint64_t count;
    uint64_t over;
    bool is_missed;
    uint64_t met;
    uint64_t missed;
};

/* The routes as they were given last. */
struct core_routes {
    bool are_given;
    struct gateway_route *routes;
    struct gateway_target *targets;
    uint32_t route_count;
    uint64_t open_pools;
    struct gateway_rollout rollouts[GATEWAY_ROLLOUTS_MAX];
    uint32_t rollout_count;
    struct core_objective *objectives; /* of each route */
    struct core_objective *next_objectives;
    int64_t window;
    int32_t missed[GATEWAY_BANDS_MAX]; /* priorities with a missed objective */
    uint32_t missed_count;
};

struct gateway {
    struct gateway_config config;
    int64_t now_ms;
    uint64_t random;
    struct core_endpoint *endpoints;
    uint32_t endpoint_limit; /* all from it on are FREE */
    struct core_request *requests;
    struct gateway_action *actions;
    uint32_t action_count;
    bool has_refused; /* in this step: the edge expects at most one */
    struct core_queue queue;
    struct core_routes routes;
    struct core_share shares[SHARES_MAX];
    double *scores;              /* scratch of schedule.c, per endpoint */
    uint32_t *candidates;        /* likewise */
    double *parts;               /* likewise, for each scorer; NULL: reasons are not kept */
    struct gateway_choice draft; /* of the last schedule() */
    struct gateway_choice choices[CHOICES_MAX];
    uint32_t choice_count;
    struct gateway_counts counts;
};

uint64_t core_random(struct gateway *gateway);

/* ---- figures.c ---- */

/* Requests that wait there: as scraped, and those sent since (S3). */
uint32_t endpoint_waiting(const struct core_endpoint *endpoint);
/* Requests of an adapter there: ours, or what the server reported, which includes other gateways'.
 * 0 for NULL. */
uint32_t adapter_pending(const struct core_adapter *adapter);
/* NULL: the endpoint does not have this adapter. */
struct core_adapter *endpoint_adapter(struct core_endpoint *endpoint, uint64_t name);

/* ---- schedule.c ---- */

/* The endpoint for this request, or NONE: among all, or those whose port is open (E6). */
enum core_ports { PORTS_OPEN, PORTS_ANY };
uint32_t schedule(struct gateway *gateway, const struct core_request *request,
                  const struct gateway_ask *ask, enum core_ports ports);

/* ---- route.c ---- */

void route_init(struct gateway *gateway);
void route_fini(struct gateway *gateway);
void route_take(struct gateway *gateway, const struct gateway_routes *routes);
/* NULL: none admits the model, or none was ever given. */
const struct gateway_route *route_find(const struct gateway *gateway, uint64_t model);
/* R1: false: no route admits its model. Gives it the route's priority. */
bool route_admit(const struct gateway *gateway, struct gateway_ask *ask);
/* The pools of all its targets. 0: it has none to go to. */
uint64_t route_pools(const struct gateway *gateway, const struct gateway_ask *ask);
/* R6: its endpoints are all down, and it goes to one all the same. */
bool route_is_open(const struct gateway *gateway, const struct gateway_ask *ask);
uint32_t route_tries_max(const struct gateway *gateway, const struct gateway_ask *ask);
/* The endpoint for this request, or NONE; `ask` becomes that of its target, whose number is set. */
uint32_t route_schedule(struct gateway *gateway, struct core_request *request,
                        struct gateway_ask *ask, uint32_t *target);
/* Rewrites `ask` for the target of the request's last try. */
void route_apply(const struct core_request *request, struct gateway_ask *ask);
/* R4: after a try that failed. */
void route_fail(struct gateway *gateway, struct core_request *request,
                const struct gateway_event *event);

/* ---- rollout.c ---- */

/* Returns whether something is to be loaded or unloaded now: makes it the endpoint's action. */
bool rollout_next(struct gateway *gateway, struct core_endpoint *endpoint,
                  struct gateway_action *action);
int64_t rollout_next_ms(const struct gateway *gateway, const struct core_endpoint *endpoint);
/* ADAPTER_DONE or ADAPTER_FAILED. */
void rollout_done(struct gateway *gateway, struct core_endpoint *endpoint,
                  enum gateway_event_kind kind);
/* Takes the list of what an endpoint has. */
void rollout_list(struct core_endpoint *endpoint, const struct gateway_figures *figures);
/* The entry of the catalogue for an adapter: UNKNOWN without a catalogue, if it is full, or if the
 * base model has that name. */
enum rollout_listing { LISTING_UNKNOWN, LISTING_HAS, LISTING_LACKS };
enum rollout_listing rollout_listing(const struct core_endpoint *endpoint, uint64_t adapter);
/* It is down. */
void rollout_forget(struct core_endpoint *endpoint);

/* ---- objective.c ---- */

void objective_init(struct gateway *gateway);
void objective_fini(struct gateway *gateway);
/* Keeps the windows of routes with the same objective. Call before other routes are taken. */
void objective_keep(struct gateway *gateway, const struct gateway_routes *given);
/* Finds, after that, the bands that have a missed objective. */
void objective_find_missed(struct gateway *gateway);
/* O1: judges the windows that are over. */
void objective_roll(struct gateway *gateway);
/* Counts an answer that ended. */
void objective_count(struct gateway *gateway, const struct core_request *request,
                     const struct gateway_event *event);
bool objective_raises(const struct gateway *gateway, const struct gateway_ask *ask); /* O2 */
bool objective_sheds(const struct gateway *gateway, const struct gateway_ask *ask);  /* O3 */

/* ---- saturation.c ---- */

static inline bool
endpoint_is_in(const struct core_endpoint *endpoint, uint64_t pools)
{
    return pools == GATEWAY_ALL_POOLS || (endpoint->pools & pools) != 0;
}

bool pools_have_endpoint(const struct gateway *gateway, uint64_t pools);
/* Returns all pools that have a usable endpoint in common with these. */
uint64_t pools_sharing(const struct gateway *gateway, uint64_t pools);

/* ---- port.c ---- */

void port_shut(struct gateway *gateway, struct core_endpoint *endpoint, enum gateway_port port);
bool port_is_shut(const struct gateway *gateway, const struct core_endpoint *endpoint,
                  enum gateway_port port);
/* A try got its first byte. */
void port_succeed(struct core_endpoint *endpoint, enum gateway_port port);

/* ---- queue.c ---- */

void queue_init(struct gateway *gateway);
void queue_fini(struct gateway *gateway);
/* False: a limit is reached. */
bool queue_add(struct gateway *gateway, uint32_t number, const struct gateway_ask *ask);
void queue_remove(struct gateway *gateway, uint32_t number);
/* The request that may leave now (F3 to F5), or NONE. */
uint32_t queue_first(const struct gateway *gateway);
/* R6: one that waits no longer because its pools have gone down, or NONE. */
uint32_t queue_opened(struct gateway *gateway);
/* Endpoints or routes are others: queue_opened begins anew. */
void queue_reopen(struct gateway *gateway);
/* Moves waiting requests to those of their pools after other routes were taken. */
void queue_regroup(struct gateway *gateway);
/* Like queue_remove(), but also charges the flow of the request. */
void queue_serve(struct gateway *gateway, uint32_t number);
/* A request whose time is over (F6), or NONE. */
uint32_t queue_expired(struct gateway *gateway);
void queue_check(const struct gateway *gateway);

/* ---- share.c ---- */

/* Counts the tokens of a request that ended. */
void share_count(struct gateway *gateway, const struct core_request *request,
                 const struct gateway_event *event);
/* Returns whether the model got more than an equal share of the window's tokens (F7). */
bool share_exceeded(const struct gateway *gateway, uint64_t model);

/* ---- prefix.c ---- */

void prefix_init(struct prefix_index *index, uint32_t capacity);
void prefix_fini(struct prefix_index *index);
void prefix_clear(struct prefix_index *index);
/* The number of leading blocks that it remembers. */
uint32_t prefix_match(const struct prefix_index *index, const struct gateway_ask *ask);
void prefix_add(struct prefix_index *index, const struct gateway_ask *ask);
