/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/web.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "base/check.h"
#include "coordinator/front/http_thread.h"
#include "coordinator/front/probes.h"
#include "coordinator/front/scrape.h"
#include "rpc/rpc.h"

struct web {
    const struct config *config;
    _Atomic uint64_t *counters;
    struct rpc_tls *certificates;
    struct http_thread *rest_thread;    /* NULL: no `http` */
    struct http_thread *service_thread; /* of metrics and probes; NULL: none of them */
    struct http_tls *rest_tls;          /* of that thread; NULL: no address has it */
    struct http_tls *service_tls;       /* likewise */
    struct rest *rest;
    struct scrape *scrape;
    struct probes *probes;
};

/* Most descriptors are for workers and gRPC, under any load over HTTP. */
static uint32_t
connections_max(uint32_t configured)
{
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    return files.rlim_cur / 4 < configured ? (uint32_t)(files.rlim_cur / 4) : configured;
}

static struct http_pool *
pool_create(struct web *web, struct http_thread *thread, const char *name, uint32_t connections)
{
    const struct config_http *limits = &web->config->http_limits;
    struct http_pool_options options = {
        .name = name,
        .connections_max = connections_max(connections),
        .peer_connections_max = limits->address_connections_max,
        .idle_timeout_ns = limits->idle_timeout_ns,
        .header_timeout_ns = limits->header_timeout_ns,
        .body_timeout_ns = limits->body_timeout_ns,
        .write_timeout_ns = limits->write_timeout_ns,
        .scarce_timeout_ns = web->config->send_timeout_ns,
        .count = http_thread_count,
        .context = web->counters,
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
tls_open(struct web *web, struct http_tls **tls, struct error *error)
{
    static const enum http_tls_clients whom[] = {[RPC_TLS_CLIENTS_ANY] = HTTP_TLS_ANY,
                                                 [RPC_TLS_CLIENTS_OPTIONAL] = HTTP_TLS_OPTIONAL,
                                                 [RPC_TLS_CLIENTS_REQUIRED] = HTTP_TLS_REQUIRED};
    if (*tls != NULL)
        return STATUS_OK;
    const struct http_tls_source source = {fetch, web->certificates,
                                           whom[rpc_tls_clients(web->certificates)]};
    return http_tls_create(&source, tls, error);
}

/* ---- services ---- */

/* `tls` is that of the pool's thread. */
static enum status
listen_all(struct web *web, struct http_pool *pool, const struct config_addresses *addresses,
           const struct http_service *service, struct http_tls **tls, struct error *error)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < addresses->count && status == STATUS_OK; i++) {
        bool has_tls = config_has_tls(addresses, i);
        if (has_tls)
            status = tls_open(web, tls, error);
        if (status == STATUS_OK)
            status = http_listen(pool, addresses->items[i], service, has_tls ? *tls : NULL, error);
    }
    return status;
}

static enum status
rest_open(struct web *web, const struct rest_options *options, struct error *error)
{
    enum status status = http_thread_create("shoald:http", &web->rest_thread, error);
    if (status != STATUS_OK)
        return status;
    web->rest = rest_create(options, web->rest_thread);
    struct http_pool *pool =
        pool_create(web, web->rest_thread, "http", web->config->http_limits.connections_max);
    struct http_service service = rest_service(web->rest);
    rest_set_pool(web->rest, pool);
    status = listen_all(web, pool, &web->config->http, &service, &web->rest_tls, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "http");
}

static enum status
services_open(struct web *web, const struct web_options *options, struct error *error)
{
    const struct config *config = web->config;
    enum status status = http_thread_create("shoald:probes", &web->service_thread, error);
    if (status != STATUS_OK)
        return status;
    web->scrape = scrape_create(options->counters, options->meters);
    web->probes = probes_create();
    const struct {
        const char *key;
        const struct config_addresses *addresses;
        struct http_service service;
        uint32_t connections;
    } services[] = {
        {"metrics", &config->metrics, scrape_service(web->scrape),
         config->http_limits.metrics_connections_max},
        {"probes", &config->probes, probes_service(web->probes),
         config->http_limits.probe_connections_max},
        {"prestop", &config->prestop, probes_prestop_service(web->probes),
         config->http_limits.probe_connections_max},
    };
    for (size_t i = 0; i < ARRAY_COUNT(services) && status == STATUS_OK; i++) {
        if (services[i].addresses->count == 0)
            continue;
        struct http_pool *pool =
            pool_create(web, web->service_thread, services[i].key, services[i].connections);
        status = listen_all(web, pool, services[i].addresses, &services[i].service,
                            &web->service_tls, error);
        if (status != STATUS_OK)
            (void)error_prefix(error, "%s", services[i].key);
    }
    return status;
}

enum status
web_create(const struct web_options *options, struct web **created, struct error *error)
{
    const struct config *config = options->config;
    bool has_services = config->metrics.count + config->probes.count + config->prestop.count > 0;
    enum status status = STATUS_OK;
    *created = NULL;
    if (!has_services && config->http.count == 0)
        return STATUS_OK;
    struct web *web = calloc(1, sizeof(*web));
    CHECK(web != NULL);
    *created = web; /* what listens points to it */
    web->config = config;
    web->counters = options->rest.counters;
    web->certificates = options->tls;
    if (has_services)
        status = services_open(web, options, error);
    if (status == STATUS_OK && config->http.count > 0)
        status = rest_open(web, &options->rest, error);
    return status;
}

void
web_start(struct web *web, enum rpc_accept accept)
{
    if (web == NULL)
        return;
    if (web->service_thread != NULL)
        http_thread_start(web->service_thread);
    if (web->rest_thread != NULL && accept == RPC_ACCEPT_WHEN_TOLD)
        http_listeners_pause(http_thread_server(web->rest_thread));
    if (web->rest_thread != NULL)
        http_thread_start(web->rest_thread);
}

void
web_set_ready(struct web *web, bool ready)
{
    if (web == NULL)
        return;
    probes_set_ready(web->probes, ready);
    rest_set_node_ready(web->rest, ready);
}

void
web_beat(struct web *web)
{
    if (web != NULL)
        probes_beat(web->probes);
}

static void
accept_rest(void *context)
{
    struct web *web = context;
    http_listeners_resume(http_thread_server(web->rest_thread));
}

void
web_accept(struct web *web)
{
    if (web != NULL && web->rest_thread != NULL)
        http_thread_post(web->rest_thread, accept_rest, web);
}

static void
part_rest(void *context)
{
    struct web *web = context;
    http_server_part(http_thread_server(web->rest_thread));
}

void
web_part(struct web *web)
{
    if (web != NULL && web->rest_thread != NULL)
        http_thread_post(web->rest_thread, part_rest, web);
}

void
web_drained(struct web *web)
{
    if (web != NULL)
        probes_drained(web->probes, web->service_thread);
}

void
web_stop(struct web *web)
{
    if (web != NULL)
        rest_stop(web->rest);
}

void
web_destroy(struct web *web)
{
    if (web == NULL)
        return;
    http_thread_destroy(web->rest_thread);
    rest_destroy(web->rest);
    http_thread_destroy(web->service_thread);
    http_tls_destroy(web->rest_tls);
    http_tls_destroy(web->service_tls);
    scrape_destroy(web->scrape);
    probes_destroy(web->probes);
    free(web);
}
