/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of connections and listeners with the limits and certificates of the configuration. On the
 * loop thread, before the HTTP thread starts.
 */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/front/http_thread.h"

struct rpc_tls;

struct web_place {
    const struct config *config;
    _Atomic uint64_t *counters;   /* of the node */
    struct rpc_tls *certificates; /* for addresses with TLS; NULL: there is none */
};

struct http_pool *web_pool_create(const struct web_place *place, struct http_thread *thread,
                                  const char *name, uint32_t connections);

/* `tls` is that of the pool's thread: made for the first address that has it, and destroyed by the
 * owner after the thread. */
enum status web_listen(const struct web_place *place, struct http_pool *pool,
                       const struct config_addresses *addresses, const struct http_service *service,
                       struct http_tls **tls, struct error *error) WARN_UNUSED;
