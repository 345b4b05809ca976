/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's own HTTP/1.1 proxy for the OpenAI API: takes requests, lets the core choose a
 * server, passes the answer on. Everything on the thread of the event base.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "gateway/config/settings.h"

struct endpoint_pool;
struct event_base;
struct llm_proxy;

/* Keeps `settings`. */
enum status proxy_create(struct event_base *base, const struct gateway_settings *settings,
                         struct llm_proxy **proxy, struct error *error) WARN_UNUSED;
/* Accepts nothing more, waits for the requests under way, at most drain_timeout_ms, and calls
 * `on_done` once. */
void proxy_drain(struct llm_proxy *proxy, void (*on_done)(void *context), void *context);
/* Returns the endpoints for another front end, which may add its requests. */
struct endpoint_pool *proxy_endpoints(const struct llm_proxy *proxy);
/* Requests under way. */
uint32_t proxy_open_requests(const struct llm_proxy *proxy);
/* NULL is ignored. */
void proxy_destroy(struct llm_proxy *proxy);
