/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endpoints of a gateway and its core: reads the file of endpoints, passes events to
 * gateway_step and carries out its actions. It scrapes /metrics when the core says so, and
 * /v1/models rarely. It decides nothing.
 *
 * Everything on the thread of the event base.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "gateway/config/settings.h"
#include "gateway/core/gateway_core.h"
#include "http/client.h"

struct event_base;
struct endpoint_pool;

/* The destination of a request. It and all that it points to, except the targets, are valid until
 * on_send returns. */
struct endpoint_send {
    uint32_t request;
    uint32_t endpoint;
    struct http_target *target;
    struct http_target *grpc_target;
    const char *address;
    const char *model; /* to be written into the body; NULL: it stays as it is */
};

struct endpoint_pool_handler {
    /* Calls nothing of the pool. */
    void (*on_send)(void *context, const struct endpoint_send *send);
    /* The request's number is free again. */
    void (*on_refuse)(void *context, uint32_t request, enum gateway_refusal refusal);
    void *context;
};

/* A second front end, which sends nothing itself: its requests have the numbers from `first` on. */
struct endpoint_pool_picker {
    uint32_t first;
    /* Like those of endpoint_pool_handler. */
    void (*on_send)(void *context, const struct endpoint_send *send);
    void (*on_refuse)(void *context, uint32_t request, enum gateway_refusal refusal);
    void (*write_metrics)(void *context, struct bytes *out);
    void *context;
};

/* Keeps `settings`. Any status of endpoint_file_read and resources_read. */
enum status endpoint_pool_create(struct event_base *base, const struct gateway_settings *settings,
                                 const struct endpoint_pool_handler *handler,
                                 struct endpoint_pool **pool, struct error *error) WARN_UNUSED;
/* No request is under way. NULL is ignored. */
void endpoint_pool_destroy(struct endpoint_pool *pool);

/* Copies `picker`; NULL: there is none any more. */
void endpoint_pool_attach(struct endpoint_pool *pool, const struct endpoint_pool_picker *picker);

/* Lists the addresses of the endpoints that would follow. Call from within a picker's on_send.
 * Returns how many, at most `max`, which is at most GATEWAY_TRIES_MAX. */
uint32_t endpoint_pool_fallbacks(struct endpoint_pool *pool, uint32_t request,
                                 const struct gateway_ask *ask, const char **addresses,
                                 uint32_t max);

/* Takes one of the events about requests; now_ms is filled in. on_send or on_refuse may be called
 * before it returns. */
void endpoint_pool_step(struct endpoint_pool *pool, struct gateway_event *event);

/* The priority of an InferenceObjective; false: there is none of that name. */
bool endpoint_pool_priority(const struct endpoint_pool *pool, const char *objective,
                            int32_t *priority);
/* Appends the resources with their conditions, and the mistake in what was read last, as JSON. */
void endpoint_pool_write_resources(const struct endpoint_pool *pool, struct bytes *out);
/* The name of an endpoint that has, or had, a request under way. */
const char *endpoint_pool_name(const struct endpoint_pool *pool, uint32_t endpoint);
/* The number of endpoints that may get requests. */
uint32_t endpoint_pool_usable(const struct endpoint_pool *pool);
enum pool_viewer { POOL_VIEWER_REFUSED, POOL_VIEWER_SKIPPED, POOL_VIEWER_CUT, POOL_VIEWER_COUNT };

/* Counts, for the page of metrics, what has become of a viewer of the dashboard. */
void endpoint_pool_note_viewer(struct endpoint_pool *pool, enum pool_viewer viewer);
/* Notes, with the key `dashboard`, that an answer has come from an endpoint: how long its first
 * token took, and each further one on average, negative: unknown. */
void endpoint_pool_note_answer(struct endpoint_pool *pool, uint32_t endpoint, int64_t first_ns,
                               int64_t token_ns);
/* Writes, with the key `dashboard`, members of an object that say how the pool is, and the
 * placements behind number `reported` with their reasons. Returns the number of the last. */
uint64_t endpoint_pool_write_state(struct endpoint_pool *pool, struct json *json,
                                   uint64_t reported);
/* Appends the answer to /v1/models: the models of usable endpoints, each once. */
void endpoint_pool_write_models(const struct endpoint_pool *pool, struct bytes *out);
/* Appends metrics of the core, of each endpoint and of the picker, in the format of Prometheus. */
void endpoint_pool_write_metrics(const struct endpoint_pool *pool, struct bytes *out);
