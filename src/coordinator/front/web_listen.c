/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/web_listen.h"

#include <sys/resource.h>

#include "base/check.h"
#include "rpc/rpc.h"

/* Most descriptors are for workers and gRPC, under any load over HTTP. */
static uint32_t
connections_max(uint32_t configured)
{
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    return files.rlim_cur / 4 < configured ? (uint32_t)(files.rlim_cur / 4) : configured;
}

struct http_pool *
web_pool_create(const struct web_place *place, struct http_thread *thread, const char *name,
                uint32_t connections)
{
    const struct config_http *limits = &place->config->http_limits;
    struct http_pool_options options = {
        .name = name,
        .connections_max = connections_max(connections),
        .peer_connections_max = limits->address_connections_max,
        .idle_timeout_ns = limits->idle_timeout_ns,
        .header_timeout_ns = limits->header_timeout_ns,
        .body_timeout_ns = limits->body_timeout_ns,
        .write_timeout_ns = limits->write_timeout_ns,
        .scarce_timeout_ns = place->config->send_timeout_ns,
        .count = http_thread_count,
        .context = place->counters,
    };
    return http_pool_create(http_thread_server(thread), &options);
}

/* ---- TLS ---- */

struct taker {
    void (*take)(void *taker, const struct http_pems *pems);
    void *context;
};

static void
take(void *context, const struct rpc_pems *found)
{
    const struct taker *taker = context;
    const struct http_pems pems = {found->certificate, found->key, found->ca};
    taker->take(taker->context, &pems);
}

static uint64_t
fetch(void *context, uint64_t have, void (*http_take)(void *taker, const struct http_pems *pems),
      void *http_taker)
{
    struct taker taker = {http_take, http_taker};
    return rpc_tls_fetch(context, have, take, &taker);
}

/* Made for the first address that has it. */
static enum status
tls_open(const struct web_place *place, struct http_tls **tls, struct error *error)
{
    static const enum http_tls_clients whom[] = {[RPC_TLS_CLIENTS_ANY] = HTTP_TLS_ANY,
                                                 [RPC_TLS_CLIENTS_OPTIONAL] = HTTP_TLS_OPTIONAL,
                                                 [RPC_TLS_CLIENTS_REQUIRED] = HTTP_TLS_REQUIRED};
    if (*tls != NULL)
        return STATUS_OK;
    const struct http_tls_source source = {fetch, place->certificates,
                                           whom[rpc_tls_clients(place->certificates)]};
    return http_tls_create(&source, tls, error);
}

enum status
web_listen(const struct web_place *place, struct http_pool *pool,
           const struct config_addresses *addresses, const struct http_service *service,
           struct http_tls **tls, struct error *error)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < addresses->count && status == STATUS_OK; i++) {
        bool has_tls = config_has_tls(addresses, i);
        if (has_tls)
            status = tls_open(place, tls, error);
        if (status == STATUS_OK)
            status = http_listen(pool, addresses->items[i], service, has_tls ? *tls : NULL, error);
    }
    return status;
}
