/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decisions of a gateway as a pure step: events in, actions out. DESIGN.md has the rules,
 * which the code cites (E: endpoints, C: scrapes, S: scheduling, T: tries, F: flow control, R:
 * routes).
 *
 * One thread at a time. Arrays in an event are read during gateway_step and not kept, but those of
 * an ask stay until its request is sent or refused, or has ended. Actions live until the next step.
 * Times are milliseconds of one monotonic clock. All memory is taken by
 * gateway_create and GATEWAY_ADDED. CHECK enforces the edge's promises: numbers are below their
 * limits, in use where they must be and free where they must be, and each SEND and SCRAPE is
 * answered once. Figures from servers are never trusted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GATEWAY_ADAPTERS_MAX = 64, /* of one endpoint; the rest is ignored */
    GATEWAY_BLOCKS_MAX = 256,  /* of one request's prompt */
    GATEWAY_BLOCK_BYTES = 64,
    GATEWAY_TRIES_MAX = 8,
    GATEWAY_FILTERS_MAX = 4,
    GATEWAY_BANDS_CONFIGURED_MAX = 16,
    GATEWAY_BANDS_MAX = 256, /* priorities in use at a time, in each set of pools */
    GATEWAY_WAIT_BUCKETS = 10,
    GATEWAY_REASONS_MAX = 8, /* endpoints that are reported for one choice */
    GATEWAY_ROUTES_MAX = 1024,
    GATEWAY_TARGETS_MAX = 4096,
    GATEWAY_ROLLOUTS_MAX = 64,
};

/* ---- the scheduler, as data ---- */

enum gateway_scorer {
    GATEWAY_SCORE_QUEUE,
    GATEWAY_SCORE_RUNNING,
    GATEWAY_SCORE_KV_CACHE,
    GATEWAY_SCORE_ADAPTER,
    GATEWAY_SCORE_PREFIX,
    GATEWAY_SCORE_SESSION,
    GATEWAY_SCORE_TOKENS,
    GATEWAY_SCORE_LABEL,
    GATEWAY_SCORER_COUNT
};

enum gateway_picker {
    GATEWAY_PICK_MAX_SCORE,
    GATEWAY_PICK_RANDOM,
    GATEWAY_PICK_WEIGHTED_RANDOM,
    GATEWAY_PICK_SEED,
    GATEWAY_PICKER_COUNT
};

/* Keeps endpoints below both limits, or all if none is (S2). */
struct gateway_filter {
    double waiting_max;
    double kv_used_max;
};

struct gateway_scheduler {
    struct gateway_filter filters[GATEWAY_FILTERS_MAX];
    uint32_t filter_count;
    double weights[GATEWAY_SCORER_COUNT]; /* 0: not used */
    double tokens_max; /* of GATEWAY_SCORE_TOKENS: in flight to an endpoint that scores 0 */
    enum gateway_picker picker;
    uint32_t seed_pending_max; /* of GATEWAY_PICK_SEED, per adapter and endpoint */
};

/* The names that EndpointPickerConfig has for them. */
extern const char *const gateway_scorer_names[GATEWAY_SCORER_COUNT];
extern const char *const gateway_picker_names[GATEWAY_PICKER_COUNT];

/* ---- flow control, as data ---- */

enum gateway_detector {
    GATEWAY_DETECT_UTILIZATION,
    GATEWAY_DETECT_CONCURRENCY,
    GATEWAY_DETECTOR_COUNT
};

/* The load of the pool: 1 and more is saturated (F2). */
struct gateway_saturation {
    enum gateway_detector detector;
    double waiting_max; /* UTILIZATION: of an endpoint that is full */
    double kv_used_max;
    int64_t stale_ms; /* older figures of an endpoint in use count as full */
    bool ignores_stale;
    double requests_max; /* CONCURRENCY: in flight to an endpoint that is full; 0: no limit */
    double tokens_max;
};

enum gateway_fairness {
    GATEWAY_FAIR_STRICT, /* all flows are one */
    GATEWAY_FAIR_ROUND_ROBIN,
    GATEWAY_FAIR_TOKENS,
    GATEWAY_FAIRNESS_COUNT
};

enum gateway_ordering {
    GATEWAY_ORDER_ARRIVAL,
    GATEWAY_ORDER_TTL,
    GATEWAY_ORDER_SLO,
    GATEWAY_ORDERING_COUNT
};

/* Requests of one priority. A limit of 0 is none. */
struct gateway_band {
    int32_t priority;
    uint32_t requests_max;
    uint64_t bytes_max;
    int64_t ttl_ms;
    enum gateway_fairness fairness;
    enum gateway_ordering ordering;
    double input_weight; /* FAIR_TOKENS: the cost of a token */
    double output_weight;
};

struct gateway_flow_control {
    bool is_on;       /* else only negative priorities are refused, while saturated (F1) */
    double threshold; /* the saturation from which on nothing leaves the queue; above 0 */
    uint32_t requests_max;
    uint64_t bytes_max;
    int64_t no_endpoint_ttl_ms;
    struct gateway_saturation saturation;
    uint32_t band_count;
    struct gateway_band bands[GATEWAY_BANDS_CONFIGURED_MAX];
    struct gateway_band other; /* the template for other priorities, */
    struct gateway_band other_negative;
};

extern const char *const gateway_detector_names[GATEWAY_DETECTOR_COUNT];
extern const char *const gateway_fairness_names[GATEWAY_FAIRNESS_COUNT];
extern const char *const gateway_ordering_names[GATEWAY_ORDERING_COUNT];

/* ---- routes, as data (R) ---- */

#define GATEWAY_ALL_POOLS UINT64_MAX /* and endpoints of none */

/* One of the models that stand for the one that a client names. Those of one tier share by weight;
 * a tier is the fallback of the one before it. */
struct gateway_target {
    uint64_t model; /* that the server is asked for; 0: as the client named it */
    uint64_t pools; /* bits: one of an endpoint's must be among them */
    double weight;
    uint32_t tier;
};

struct gateway_route {
    uint64_t model;        /* that clients name; 0: every other */
    uint32_t first_target; /* of consecutive ones, by tier from 0 */
    uint32_t target_count;
    bool has_priority; /* for requests that name no objective */
    int32_t priority;
    uint32_t tries_max; /* 0: as configured */
    int64_t latency_ms; /* O: of a token of an answer; 0: no objective */
    double over_share;  /* of a window's answers that may take longer */
};

/* An adapter that the endpoints of these pools are to have (L). */
struct gateway_rollout {
    uint64_t adapter;
    uint64_t pools; /* bits */
};

struct gateway_routes {
    const struct gateway_route *routes; /* by model, ascending, each once */
    uint32_t route_count;
    const struct gateway_target *targets;
    uint32_t target_count;
    const struct gateway_rollout *rollouts; /* each adapter once */
    uint32_t rollout_count;
    uint64_t open_pools;   /* bits: R6 */
    const uint64_t *pools; /* bits of each endpoint below endpoints_max */
};

struct gateway_config {
    uint64_t seed;
    uint32_t endpoints_max;
    uint32_t requests_max;
    uint32_t tries_max;         /* 1 to GATEWAY_TRIES_MAX */
    uint32_t prefix_blocks_max; /* remembered per endpoint; a power of two, at least 8 */
    int64_t scrape_ms_min;
    int64_t scrape_ms_max;
    int64_t share_window_ms;     /* F7; 0: off */
    int64_t objective_window_ms; /* O1; 0: none ends */
    bool keeps_reasons;          /* for gateway_look_choice */
    struct gateway_scheduler scheduler;
    struct gateway_flow_control flow_control;
};

/* ---- events ---- */

enum gateway_adapter_state { GATEWAY_ADAPTER_WAITING, GATEWAY_ADAPTER_LOADED };

struct gateway_adapter {
    uint64_t name; /* gateway_name_hash */
    enum gateway_adapter_state state;
    uint32_t pending; /* its requests there, from all senders */
};

/* The result of a scrape. `is_known` false: the server is well but shows no figures. */
struct gateway_figures {
    bool is_known;
    uint32_t waiting;
    uint32_t running;
    double kv_used;      /* 0 to 1 */
    uint64_t base_model; /* hash; 0: unknown */
    uint32_t adapters_max;
    uint32_t adapter_count;
    const struct gateway_adapter *adapters;
    bool
        has_catalogue; /* of adapters that requests may name, asked for after the last change (L) */
    uint32_t catalogue_count;
    const uint64_t *catalogue;
};

/* A server's load as the headers of its answer report it. */
struct gateway_report {
    bool has_waiting;
    bool has_running;
    bool has_kv_used;
    bool has_adapters;
    uint32_t waiting;
    uint32_t running;
    double kv_used;
    uint32_t adapter_count; /* all that are loaded; none waits */
    const struct gateway_adapter *adapters;
};

/* Where an endpoint takes requests: each protocol may have a port of its own. */
enum gateway_port { GATEWAY_PORT_HTTP, GATEWAY_PORT_GRPC, GATEWAY_PORT_COUNT };

/* The needs of a request. */
struct gateway_ask {
    enum gateway_port port;
    uint64_t model;   /* 0: unknown */
    uint64_t session; /* 0: none */
    uint64_t label;   /* of the endpoints that are preferred; 0: none */
    uint32_t block_count;
    const uint64_t *blocks; /* gateway_prefix_hash */
    int32_t priority;       /* higher ones first; negative ones may be shed */
    bool has_priority;      /* else a route may give one */
    uint64_t flow;          /* the tenant's hash; 0: the default one */
    uint64_t bytes;         /* of its body */
    uint64_t tokens;        /* of its prompt, as estimated */
    int64_t slo_ms;         /* for the first token; 0: none */
    bool is_streamed;       /* its answer begins with the first token, not with the last */
    /* The only endpoints that may get it, by their identity; NULL: all. */
    const uint64_t *subset;
    uint32_t subset_count;

    /* filled in by the core */
    uint64_t pools; /* of its target; 0: any endpoint */
    uint64_t salt;  /* of its blocks: another model has other ones */
    bool is_raised; /* O2 */
};

enum gateway_failure {
    GATEWAY_FAILED_UNREACHABLE, /* no connection */
    GATEWAY_FAILED_BROKE,       /* closed, or no HTTP, before the first byte */
    GATEWAY_FAILED_LATE,        /* no first byte in time */
    GATEWAY_FAILED_BUSY,        /* the server itself declined: 429 or 503 */
    GATEWAY_FAILED_ABSENT,      /* T2: the server does not have the model */
    GATEWAY_FAILED_FOREIGN      /* it has no gRPC: clients ask for that, so nobody is blamed */
};

enum gateway_end { GATEWAY_END_OK, GATEWAY_END_CANCELLED, GATEWAY_END_BROKE, GATEWAY_END_LATE };

enum gateway_event_kind {
    GATEWAY_TICK,
    GATEWAY_ROUTED, /* there are other routes */
    GATEWAY_ADDED,
    GATEWAY_REMOVED,
    GATEWAY_SCRAPED,
    GATEWAY_SCRAPE_FAILED,
    GATEWAY_ADAPTER_DONE, /* the LOAD or UNLOAD of the endpoint */
    GATEWAY_ADAPTER_FAILED,
    GATEWAY_REQUEST,
    GATEWAY_TRY_FAILED, /* nothing was passed to the client */
    GATEWAY_STARTED,    /* from here on the client sees this server's answer */
    GATEWAY_ENDED       /* of a request that started; CANCELLED: that was sent, or waits */
};

struct gateway_event {
    enum gateway_event_kind kind;
    int64_t now_ms;
    uint32_t endpoint;            /* ADDED, REMOVED, SCRAPED, SCRAPE_FAILED, ADAPTER_… */
    uint64_t label;               /* ADDED: what an ask's label is compared with; 0: nothing */
    uint64_t identity;            /* ADDED: a hash of the address, the same on every gateway */
    uint64_t pools;               /* ADDED: bits */
    uint32_t apart;               /* ADDED: bits of the ports that scrapes do not ask (E6) */
    uint32_t request;             /* REQUEST, TRY_FAILED, STARTED, ENDED */
    enum gateway_failure failure; /* TRY_FAILED */
    enum gateway_end end;         /* ENDED */
    uint64_t prompt_tokens;       /* ENDED: as the server says; both 0: it does not */
    uint64_t answer_tokens;
    struct gateway_ask ask;              /* REQUEST, TRY_FAILED */
    struct gateway_figures figures;      /* SCRAPED */
    struct gateway_report report;        /* STARTED, ENDED: as its trailers say */
    const struct gateway_routes *routes; /* ROUTED */
};

/* ---- actions ---- */

enum gateway_refusal {
    GATEWAY_REFUSED_NO_ENDPOINT, /* none is known to be well */
    GATEWAY_REFUSED_BUSY,        /* T2: the endpoints that could be reached declined */
    GATEWAY_REFUSED_FAILED,      /* T2: all tries failed otherwise */
    GATEWAY_REFUSED_SHED,        /* a negative priority, and the pool is saturated */
    GATEWAY_REFUSED_QUEUE_FULL,
    GATEWAY_REFUSED_EXPIRED, /* it waited for its whole TTL */
    GATEWAY_REFUSED_SHARE,   /* its model got more than its share, and the pool is saturated */
    GATEWAY_REFUSED_UNKNOWN, /* no route admits its model, or no server that was tried has it */
    GATEWAY_REFUSAL_COUNT
};

enum gateway_state {
    GATEWAY_FREE,
    GATEWAY_DOWN,
    GATEWAY_SUSPECT,
    GATEWAY_UP,
    GATEWAY_LEAVING /* removed; its requests still run */
};

enum gateway_action_kind {
    GATEWAY_SEND,   /* the request to the endpoint */
    GATEWAY_REFUSE, /* the request: its number is free again */
    GATEWAY_SCRAPE, /* the endpoint; ends in SCRAPED or SCRAPE_FAILED */
    GATEWAY_LOAD,   /* the adapter; ends in ADAPTER_DONE or ADAPTER_FAILED, like the next */
    GATEWAY_UNLOAD,
    GATEWAY_CHANGED, /* the endpoint's state, for the log */
    GATEWAY_FREED    /* the removed endpoint's number may be used again */
};

struct gateway_action {
    enum gateway_action_kind kind;
    uint32_t request;
    uint32_t endpoint;
    uint32_t target;  /* SEND: in the routes as given last; UINT32_MAX: there is none */
    uint64_t adapter; /* LOAD, UNLOAD */
    enum gateway_refusal refusal;
    enum gateway_state state;
};

/* ---- the core ---- */

struct gateway;

struct gateway *gateway_create(const struct gateway_config *config);
/* NULL is ignored. */
void gateway_destroy(struct gateway *gateway);

const struct gateway_action *gateway_step(struct gateway *gateway,
                                          const struct gateway_event *event, uint32_t *count);
/* Returns when GATEWAY_TICK is due; INT64_MAX: never. */
int64_t gateway_next_ms(const struct gateway *gateway);

/* Lists the endpoints that would follow the first, best first, for a request that was just sent by
 * an edge that lets its proxy try others. Returns how many, at most `max`. */
uint32_t gateway_fallbacks(struct gateway *gateway, uint32_t request, const struct gateway_ask *ask,
                           uint32_t *endpoints, uint32_t max);

/* ---- looking at it ---- */

struct gateway_counts {
    uint64_t sent;
    uint64_t retried;
    uint64_t refused;
    uint64_t ejected;
    uint64_t returned;
    uint64_t ports_shut;
    uint64_t scrapes;
    uint64_t scrapes_failed;
    uint64_t blocks;         /* of the prompts of requests sent */
    uint64_t blocks_matched; /* of these, known to the endpoint that got the request */
    uint64_t adapters_ignored;
    uint64_t queued;
    uint64_t queue_left; /* by clients */
    uint64_t queue_full;
    uint64_t queue_expired;
    uint64_t shed;
    uint64_t share_exceeded;
    uint64_t unknown;   /* models that no route admits */
    uint64_t fallbacks; /* tries that went on to the next tier */
};

/* The upper limits of the buckets of `waits`; above the last are the rest. */
extern const uint32_t gateway_wait_buckets_ms[GATEWAY_WAIT_BUCKETS];

struct gateway_band_view {
    int32_t priority;
    uint32_t requests; /* that wait */
    uint64_t bytes;
    uint64_t waits[GATEWAY_WAIT_BUCKETS + 1]; /* of requests sent */
    uint64_t waited_ms;
};

struct gateway_view {
    enum gateway_state state;
    uint32_t in_flight;
    uint32_t waiting; /* as of the last scrape */
    uint32_t running;
    double kv_used;
    uint32_t adapters_max;
    uint32_t adapter_count;
};

/* The reason why a request was sent to its endpoint: of the endpoints among which the picker chose,
 * the best. */
struct gateway_reason {
    uint32_t endpoint;
    double total;
    double parts[GATEWAY_SCORER_COUNT]; /* weight times score */
};

struct gateway_choice {
    uint32_t request;
    uint32_t endpoint;
    uint64_t model;
    int32_t priority;
    uint32_t tries;
    uint32_t usable_count;    /* endpoints that could get it */
    uint32_t candidate_count; /* those that the filters left */
    uint32_t reason_count;
    struct gateway_reason reasons[GATEWAY_REASONS_MAX]; /* the chosen one's first */
};

const struct gateway_counts *gateway_counts(const struct gateway *gateway);
void gateway_look(const struct gateway *gateway, uint32_t endpoint, struct gateway_view *view);
/* The choice for a request that the last step sent, valid until the next step; NULL without
 * `keeps_reasons`. */
const struct gateway_choice *gateway_look_choice(const struct gateway *gateway, uint32_t request);
/* The adapters of an endpoint, at most `max`; those that only our requests wait for, too. */
uint32_t gateway_look_adapters(const struct gateway *gateway, uint32_t endpoint,
                               struct gateway_adapter *adapters, uint32_t max);
/* Looks at a band; `position` is below GATEWAY_BANDS_MAX. Returns false if no band is there. */
bool gateway_look_band(const struct gateway *gateway, uint32_t position,
                       struct gateway_band_view *view);
struct gateway_objective_view {
    bool is_missed; /* in the last window */
    uint64_t met;   /* windows with answers */
    uint64_t missed;
};

/* The objective of the route at that position, as given last. False: there is none. */
bool gateway_look_objective(const struct gateway *gateway, uint32_t position,
                            struct gateway_objective_view *view);
/* F2, of the endpoints of these pools. 1 if there is none. */
double gateway_pool_saturation(const struct gateway *gateway, uint64_t pools);
/* CHECKs the state's invariants. */
void gateway_check(const struct gateway *gateway);

/* ---- hashes, for the edge ---- */

/* Never 0. */
uint64_t gateway_name_hash(const void *name, size_t bytes);
/* The chain of hashes of a prompt's whole blocks, at most GATEWAY_BLOCKS_MAX: each covers all text
 * before it, and the model. Returns their number. */
uint32_t gateway_prefix_hash(uint64_t model, const void *prompt, size_t bytes,
                             uint64_t blocks[GATEWAY_BLOCKS_MAX]);
