/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway as Envoy's endpoint picker: envoy.service.ext_proc.v3.ExternalProcessor and
 * grpc.health.v1.Health. Envoy forwards requests; this front says where to. Everything on the
 * thread of the event base.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "gateway/config/settings.h"
#include "gateway/endpoints/pool.h"

struct extproc;

/* Keeps `settings` and `endpoints`, to which it attaches itself. */
enum status extproc_create(struct event_base *base, const struct gateway_settings *settings,
                           struct endpoint_pool *endpoints, struct extproc **extproc,
                           struct error *error) WARN_UNUSED;
/* Refuses new requests, waits for those under way, at most drain_timeout_ms, and calls `on_done`
 * once. */
void extproc_drain(struct extproc *extproc, void (*on_done)(void *context), void *context);
/* Streams of Envoy's that are open. */
uint32_t extproc_open_streams(const struct extproc *extproc);
/* Call before its endpoints are destroyed. NULL is ignored. */
void extproc_destroy(struct extproc *extproc);
