/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/web.h"

#include <stdlib.h>

#include "base/check.h"
#include "coordinator/front/http_thread.h"
#include "coordinator/front/probes.h"
#include "coordinator/front/scrape.h"
#include "coordinator/front/web_listen.h"

struct web {
    const struct config *config;
    struct web_place place;
    struct http_thread *rest_thread;    /* NULL: no `http` */
    struct http_thread *service_thread; /* of metrics and probes; NULL: none of them */
    struct http_tls *rest_tls;          /* of that thread; NULL: no address has it */
    struct http_tls *service_tls;       /* likewise */
    struct rest *rest;
    struct scrape *scrape;
    struct probes *probes;
};

/* ---- services ---- */

static enum status
rest_open(struct web *web, const struct front_node *node, struct error *error)
{
    enum status status = http_thread_create("shoald:http", &web->rest_thread, error);
    if (status != STATUS_OK)
        return status;
    web->rest = rest_create(node, web->rest_thread);
    struct http_pool *pool = web_pool_create(&web->place, web->rest_thread, "http",
                                             web->config->http_limits.connections_max);
    struct http_service service = rest_service(web->rest);
    rest_set_pool(web->rest, pool);
    status = web_listen(&web->place, pool, &web->config->http, &service, &web->rest_tls, error);
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
        struct http_pool *pool = web_pool_create(&web->place, web->service_thread, services[i].key,
                                                 services[i].connections);
        status = web_listen(&web->place, pool, services[i].addresses, &services[i].service,
                            &web->service_tls, error);
        if (status != STATUS_OK)
            (void)error_prefix(error, "%s", services[i].key);
    }
    return status;
}

enum status
web_create(const struct web_options *options, struct web **created, struct error *error)
{
    const struct config *config = options->node.config;
    bool has_services = config->metrics.count + config->probes.count + config->prestop.count > 0;
    enum status status = STATUS_OK;
    *created = NULL;
    if (!has_services && config->http.count == 0)
        return STATUS_OK;
    struct web *web = calloc(1, sizeof(*web));
    CHECK(web != NULL);
    *created = web; /* what listens points to it */
    web->config = config;
    web->place = (struct web_place){config, options->node.counters, options->tls};
    if (has_services)
        status = services_open(web, options, error);
    if (status == STATUS_OK && config->http.count > 0)
        status = rest_open(web, &options->node, error);
    return status;
}

void
web_start(struct web *web, enum rpc_accept accept, enum web_scope scope)
{
    if (web == NULL)
        return;
    bool waits = accept == RPC_ACCEPT_LATER;
    if (web->service_thread != NULL && waits && scope == WEB_ALL)
        http_listeners_pause(http_thread_server(web->service_thread));
    if (web->service_thread != NULL)
        http_thread_start(web->service_thread);
    if (web->rest_thread != NULL && waits)
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

void
web_accept(struct web *web)
{
    if (web != NULL && web->service_thread != NULL)
        http_thread_accept(web->service_thread);
    if (web != NULL && web->rest_thread != NULL)
        http_thread_accept(web->rest_thread);
}

void
web_part(struct web *web, enum web_scope scope)
{
    if (web != NULL && web->service_thread != NULL && scope == WEB_ALL)
        http_thread_part(web->service_thread);
    if (web != NULL && web->rest_thread != NULL)
        http_thread_part(web->rest_thread);
}

bool
web_has_parted(const struct web *web)
{
    return web == NULL || web->rest_thread == NULL || http_thread_has_parted(web->rest_thread);
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
