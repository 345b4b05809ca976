/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A web page for operators: each placement and why, queues, caches, adapters, latencies. It is
 * served on loopback alone, as server-sent events once a second; nothing queues up behind a viewer
 * that does not read. Everything on the thread of the event base.
 */
#pragma once

#include "base/error.h"
#include "gateway/config/settings.h"
#include "gateway/endpoints/pool.h"

struct event_base;
struct pool_dashboard;

/* INVALID_ARGUMENT: `dashboard` is neither empty nor an address of this machine alone. */
enum status pool_dashboard_check(const struct gateway_settings *settings,
                                 struct error *error) WARN_UNUSED;
/* Keeps `settings`, whose `dashboard` is not empty, and the pool. As above; UNAVAILABLE: it
 * cannot be bound. */
enum status pool_dashboard_create(struct event_base *base, const struct gateway_settings *settings,
                                  struct endpoint_pool *pool, struct pool_dashboard **dashboard,
                                  struct error *error) WARN_UNUSED;
/* Call before the pool is destroyed. NULL is ignored. */
void pool_dashboard_destroy(struct pool_dashboard *dashboard);
