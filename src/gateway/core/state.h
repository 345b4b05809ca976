/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All state of the core. step.c changes it; schedule.c reads it and chooses; prefix.c owns what is
 * remembered of prompts.
 */
#pragma once

#include "gateway/core/gateway_core.h"

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
    bool is_reported; /* by the last scrape */
    enum gateway_adapter_state state;
};

struct core_endpoint {
    enum gateway_state state;
    uint64_t identity;
    uint32_t in_flight;
    uint32_t failures; /* tries in a row that ended without a first byte (E5) */

    /* figures: all zero while it is DOWN (E2) */
    bool is_known;
    uint32_t waiting;
    uint32_t running;
    double kv_used;
    uint64_t base_model;
    uint32_t adapters_max;
    uint32_t adapter_count;
    struct core_adapter adapters[GATEWAY_ADAPTERS_MAX];
    struct prefix_index prefix;

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

enum core_request_state { REQUEST_FREE, REQUEST_SENT, REQUEST_STARTED };

struct core_request {
    enum core_request_state state;
    uint32_t endpoint;
    uint32_t tries;
    uint32_t busy_count;
    uint32_t tried_count;
    uint32_t tried[GATEWAY_TRIES_MAX]; /* endpoints not to be tried again */
    uint64_t adapter;                  /* counted in the endpoint's table; 0: not */
};

struct gateway {
    struct gateway_config config;
    int64_t now_ms;
    uint64_t random;
    struct core_endpoint *endpoints;
    struct core_request *requests;
    struct gateway_action *actions;
    uint32_t action_count;
    double *scores;       /* scratch of schedule.c, per endpoint */
    uint32_t *candidates; /* likewise */
    struct gateway_counts counts;
};

uint64_t core_random(struct gateway *gateway);

/* ---- schedule.c ---- */

/* The endpoint for this request, or NONE. */
uint32_t schedule(struct gateway *gateway, const struct core_request *request,
                  const struct gateway_ask *ask);
/* Requests that wait there: as scraped, and those sent since (S3). */
uint32_t endpoint_waiting(const struct core_endpoint *endpoint);
/* NULL: the endpoint does not have this adapter. */
struct core_adapter *endpoint_adapter(struct core_endpoint *endpoint, uint64_t name);

/* ---- prefix.c ---- */

void prefix_init(struct prefix_index *index, uint32_t capacity);
void prefix_fini(struct prefix_index *index);
void prefix_clear(struct prefix_index *index);
/* The number of leading blocks that it remembers. */
uint32_t prefix_match(const struct prefix_index *index, const struct gateway_ask *ask);
void prefix_add(struct prefix_index *index, const struct gateway_ask *ask);
