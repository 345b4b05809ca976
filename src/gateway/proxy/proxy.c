/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/proxy/proxy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/clock.h"
#include "gateway/endpoints/pem_files.h"
#include "gateway/proxy/internal.h"
#include "gateway/scan/prompt.h"

static const char drain_text[] = "the gateway is stopping";

/* ---- exchanges ---- */

static void
drain_look(struct llm_proxy *proxy)
{
    void (*on_drained)(void *context) = proxy->on_drained;
    if (on_drained == NULL || proxy->open_count > 0)
        return;
    proxy->on_drained = NULL;
    loop_timer_clear(proxy->drain);
    http_server_drain(proxy->server, NS_PER_S, on_drained, proxy->drained_context);
}

/* ---- bodies ---- */

static void
on_piece(struct http_request *request, const void *data, size_t bytes)
{
    (void)exchange_add_body(http_request_user(request), data, bytes);
}

/* A path of the Open Inference Protocol: /v2/models/NAME[/versions/VERSION]/infer. Returns the
 * length of NAME, or 0. Paths come decoded and are sent on as they are, so only such characters
 * pass that mean nothing in a request line. */
static size_t
oip_model(const char *path, const char **name)
{
    static const char passing[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-._~:";
    static const char prefix[] = "/v2/models/";
    static const char versions[] = "/versions/";
    if (strncmp(path, prefix, sizeof(prefix) - 1) != 0)
        return 0;
    *name = path + sizeof(prefix) - 1;
    size_t bytes = strspn(*name, passing);
    const char *rest = *name + bytes;
    if (strncmp(rest, versions, sizeof(versions) - 1) == 0) {
        size_t version = strspn(rest + sizeof(versions) - 1, passing);
        rest += version > 0 ? sizeof(versions) - 1 + version : 0;
    }
    bool has_dots = strstr(path, "/.") != NULL; /* which servers may resolve */
    return !has_dots && strcmp(rest, "/infer") == 0 ? bytes : 0;
}

static void
oip_scan(struct exchange *exchange)
{
    const char *name = NULL;
    size_t bytes = oip_model(http_request_path(exchange->request), &name);
    CHECK(name != NULL);
    exchange_scan_head(exchange, name, bytes);
}

/* Finds what the scheduler needs. Returns NULL or the mistake. */
static const char *
body_scan(struct exchange *exchange)
{
    struct prompt prompt;
    if (exchange->is_oip) {
        oip_scan(exchange);
        return NULL;
    }
    const char *mistake = prompt_read(exchange->body, exchange->body_bytes, &prompt);
    if (mistake != NULL)
        return mistake;
    struct json_span name;
    struct bytes room = {0};
    uint64_t blocks[GATEWAY_BLOCKS_MAX];
    CHECK(json_span_text(prompt.name, &room, &name)); /* or it were a mistake */
    exchange_keep_model(exchange, name.at, name.bytes);
    bytes_fini(&room);
    exchange->name_at = (size_t)(prompt.name.at - exchange->body);
    exchange->name_bytes = prompt.name.bytes;
    exchange->model = prompt.model;
    exchange->is_streamed = prompt.is_streamed;
    exchange->tokens = prompt.tokens;
    exchange_scan_fields(exchange);
    exchange->block_count =
        gateway_prefix_hash(prompt.model, prompt.prompt.at, prompt.prompt.bytes, blocks);
    if (exchange->block_count > 0) {
        size_t bytes = exchange->block_count * sizeof(blocks[0]);
        exchange->blocks = malloc(bytes);
        CHECK(exchange->blocks != NULL);
        memcpy(exchange->blocks, blocks, bytes);
    }
    return NULL;
}

static void
on_body_end(struct http_request *request)
{
    struct exchange *exchange = http_request_user(request);
    const char *mistake = body_scan(exchange);
    if (mistake != NULL) {
        exchange->proxy->counters[PROXY_INVALID]++;
        exchange_refuse(exchange, &(struct openai_error){.code = 400,
                                                         .type = "invalid_request_error",
                                                         .message = mistake});
        return;
    }
    exchange_enter(exchange, EXCHANGE_PLACED);
    endpoint_pool_step(exchange->proxy->endpoints,
                       &(struct gateway_event){.kind = GATEWAY_REQUEST,
                                               .request = exchange->number,
                                               .ask = exchange_ask(exchange)});
}

/* ---- requests ---- */

static void
answer_health(struct llm_proxy *proxy, struct http_request *request)
{
    char text[64];
    uint32_t usable = endpoint_pool_usable(proxy->endpoints);
    int used = snprintf(text, sizeof(text), "{\"endpoints\":%u}", usable);
    struct bytes json = {.data = text, .used = (size_t)used};
    openai_answer_json(request, proxy_is_ready(proxy) ? 200 : 503, &json);
}

/* False: it was refused. */
static bool
admit_key(struct llm_proxy *proxy, struct http_request *request, struct api_key **key)
{
    *key = NULL;
    if (proxy->keys == NULL)
        return true;
    *key = key_ring_find(proxy->keys, http_request_header(request, "Authorization"));
    if (*key != NULL)
        return true;
    proxy->counters[PROXY_KEYS_REFUSED]++;
    answer_refuse(request, &(struct openai_error){.code = 401,
                                                  .type = "AuthenticationError",
                                                  .message = "expected a valid API key in "
                                                             "Authorization: Bearer"});
    return false;
}

/* Like admit_key(), by a key's limits, too. */
static bool
admit(struct llm_proxy *proxy, struct http_request *request, struct api_key **key)
{
    if (!admit_key(proxy, request, key))
        return false;
    int64_t wait_ms = *key != NULL ? api_key_take(*key) : 0;
    if (wait_ms == 0)
        return true;
    proxy->counters[PROXY_QUOTA_EXCEEDED]++;
    answer_refuse(request, &(struct openai_error){.code = 429,
                                                  .type = "RateLimitError",
                                                  .may_retry = true,
                                                  .retry_ms = wait_ms,
                                                  .message = "this API key's limit is reached"});
    return false;
}

static void
answer_models(struct llm_proxy *proxy, struct http_request *request)
{
    struct bytes json = {0};
    struct api_key *key;
    if (!admit_key(proxy, request, &key))
        return;
    endpoint_pool_write_models(proxy->endpoints, &json);
    openai_answer_json(request, 200, &json);
    bytes_fini(&json);
}

static void
refuse(struct llm_proxy *proxy, struct http_request *request, int code, const char *message)
{
    proxy->counters[PROXY_INVALID]++;
    answer_refuse(request, &(struct openai_error){.code = code,
                                                  .type = code == 404 ? "NotFoundError"
                                                                      : "invalid_request_error",
                                                  .message = message});
}

static void
refuse_method(struct llm_proxy *proxy, struct http_request *request, const char *allow)
{
    proxy->counters[PROXY_INVALID]++;
    answer_refuse(request,
                  &(struct openai_error){.code = 405,
                                         .type = "invalid_request_error",
                                         .allow = allow,
                                         .message = "this path has no such method: see Allow"});
}

static void
take(struct llm_proxy *proxy, struct http_request *request)
{
    struct api_key *key;
    static const struct http_body_sink sink = {on_piece, on_body_end};
    const struct oip_call *method = NULL;
    if (grpc_is_call(request) && (method = grpc_find(proxy, request)) == NULL)
        return;
    const char *encoding = http_request_header(request, "Content-Encoding");
    if (encoding != NULL && strcmp(encoding, "identity") != 0) {
        refuse(proxy, request, 415, "Content-Encoding: send the body as it is");
        return;
    }
    if (!admit(proxy, request, &key))
        return;
    struct exchange *exchange = proxy->is_draining ? NULL : exchange_begin(proxy, request, key);
    if (exchange == NULL) {
        if (key != NULL)
            api_key_release(key, 0);
        proxy->counters[PROXY_REQUESTS_FULL]++;
        answer_refuse(request,
                      &(struct openai_error){.code = 503,
                                             .type = "InternalServerError",
                                             .may_retry = true,
                                             .message = proxy->is_draining
                                                            ? drain_text
                                                            : "the gateway has as many requests as "
                                                              "requests_max allows"});
        return;
    }
    if (method != NULL) {
        grpc_begin(exchange, method);
        return;
    }
    const char *length = http_request_header(request, "Content-Length");
    const char *name;
    exchange->is_oip = oip_model(http_request_path(request), &name) > 0;
    exchange->body_declared = length != NULL ? strtoull(length, NULL, 10) : SIZE_MAX;
    http_request_stream(request, &sink);
}

static const struct proxy_route {
    const char *path;
    const char *allow;
    void (*get)(struct llm_proxy *proxy, struct http_request *request); /* NULL: it is routed */
} routes[] = {
    {"/v1/chat/completions", "POST", NULL},  {"/v1/completions", "POST", NULL},
    {"/v1/embeddings", "POST", NULL},        {"/v1/models", "GET, HEAD", answer_models},
    {"/health", "GET, HEAD", answer_health},
};

static const struct proxy_route *
route_find(const char *path)
{
    static const struct proxy_route oip = {"/v2/models/", "POST", NULL};
    const char *name;
    for (size_t i = 0; i < ARRAY_COUNT(routes); i++)
        if (strcmp(path, routes[i].path) == 0)
            return &routes[i];
    return oip_model(path, &name) > 0 ? &oip : NULL;
}

static bool
is_get(const struct http_request *request)
{
    return http_request_method(request) == HTTP_GET || http_request_method(request) == HTTP_HEAD;
}

static void
on_head(void *context, struct http_request *request)
{
    struct llm_proxy *proxy = context;
    const struct proxy_route *route = route_find(http_request_path(request));
    bool is_grpc = grpc_is_call(request);
    if (route == NULL && !is_grpc)
        refuse(proxy, request, 404,
               "there is nothing at this path: POST /v1/chat/completions, /v1/completions, "
               "/v1/embeddings, /v2/models/NAME/infer, GET /v1/models");
    else if (is_grpc || (route->get == NULL && http_request_method(request) == HTTP_POST))
        take(proxy, request);
    else if (route->get != NULL && is_get(request))
        route->get(proxy, request);
    else
        refuse_method(proxy, request, route->allow);
}

/* Every request was answered, or streams its body. */
static void
on_request(void *context, struct http_request *request)
{
    (void)context;
    (void)request;
    UNREACHABLE();
}

/* The server sees it at once, so that it can stop. */
static void
on_gone(void *context, struct http_request *request)
{
    struct llm_proxy *proxy = context;
    struct exchange *exchange = http_request_user(request);
    bool is_answering = exchange->state == EXCHANGE_STARTED;
    exchange_cancel(exchange);
    proxy->counters[PROXY_CANCELLED]++;
    account_log(exchange, 499, "cancelled");
    if (exchange->state != EXCHANGE_READING)
        endpoint_pool_step(proxy->endpoints, &(struct gateway_event){.kind = GATEWAY_ENDED,
                                                                     .request = exchange->number,
                                                                     .end = GATEWAY_END_CANCELLED});
    exchange_free(exchange);
    if (is_answering)
        http_answer_abort(request);
    else
        http_answer(request, 499, NULL, 0, NULL, 0); /* dropped */
}

/* ---- for operators ---- */

static void
answer_metrics(struct llm_proxy *proxy, struct http_request *request)
{
    static const char *const names[] = {
#define PROXY_COUNTER(name, text) text,
#include "gateway/proxy/counters.def"
    };
    struct bytes out = {0};
    char line[192];
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        int used = snprintf(line, sizeof(line), "shoal_gateway_%s %" PRIu64 "\n", names[i],
                            proxy->counters[i]);
        bytes_put(&out, line, (size_t)used);
    }
    int used = snprintf(line, sizeof(line),
                        "shoal_gateway_requests_open %" PRIu32
                        "\nshoal_gateway_bodies_bytes %" PRIu64 "\n",
                        proxy->open_count, proxy->bodies_bytes);
    bytes_put(&out, line, (size_t)used);
    uint64_t failed = proxy->counters[PROXY_CUT_SHORT] + proxy->counters[PROXY_UNAVAILABLE];
    used = snprintf(line, sizeof(line),
                    "inference_objective_request_total %" PRIu64
                    "\ninference_objective_request_error_total %" PRIu64 "\n",
                    proxy->counters[PROXY_ANSWERED] + failed, failed);
    bytes_put(&out, line, (size_t)used);
    endpoint_pool_write_metrics(proxy->endpoints, &out);
    account_write_metrics(proxy->tokens, &out);
    struct http_header header = {"Content-Type", "text/plain; version=0.0.4; charset=utf-8"};
    struct http_piece piece = {.data = out.data, .bytes = out.used};
    http_answer(request, 200, &header, 1, &piece, 1);
    bytes_fini(&out);
}

static void
answer_resources(struct llm_proxy *proxy, struct http_request *request)
{
    struct bytes json = {0};
    endpoint_pool_write_resources(proxy->endpoints, &json);
    openai_answer_json(request, 200, &json);
    bytes_fini(&json);
}

static void
on_operator(void *context, struct http_request *request)
{
    const char *path = http_request_path(request);
    if (is_get(request) && strcmp(path, "/metrics") == 0)
        answer_metrics(context, request);
    else if (is_get(request) && strcmp(path, "/health") == 0)
        answer_health(context, request);
    else if (is_get(request) && strcmp(path, "/resources") == 0)
        answer_resources(context, request);
    else
        refuse(context, request, 404, "GET /metrics, /health, /resources");
}

/* ---- life ---- */

static void
count(void *context, enum http_figure figure, int64_t by)
{
    static const enum proxy_counter counters[HTTP_FIGURE_COUNT] = {
        [HTTP_CONNECTIONS] = PROXY_CONNECTIONS,
        [HTTP_REQUESTS] = PROXY_REQUESTS,
        [HTTP_REFUSED] = PROXY_HTTP_REFUSED,
        [HTTP_EVICTED] = PROXY_HTTP_EVICTED,
        [HTTP_TIMED_OUT] = PROXY_HTTP_TIMED_OUT,
        [HTTP_CUT] = PROXY_HTTP_TIMED_OUT, /* never: no answer is scarce */
        [HTTP_NOT_ACCEPTING] = PROXY_HTTP_NOT_ACCEPTING,
        [HTTP_HELD_UP] = PROXY_HTTP_HELD_UP,
    };
    struct llm_proxy *proxy = context;
    proxy->counters[counters[figure]] += (uint64_t)by;
}

static struct http_pool *
pool_create(struct llm_proxy *proxy, const char *name, uint32_t connections_max)
{
    int64_t timeout_ns = proxy->settings->client_timeout_ms * NS_PER_MS;
    const struct http_pool_options options = {
        .name = name,
        .connections_max = connections_max,
        .peer_connections_max = (uint32_t)proxy->settings->peer_connections_max,
        .idle_timeout_ns = timeout_ns,
        .header_timeout_ns = timeout_ns,
        .body_timeout_ns = timeout_ns,
        .write_timeout_ns = timeout_ns,
        .paused_bytes_max = (uint64_t)proxy->settings->paused_mib_max << 20,
        .count = count,
        .context = proxy,
    };
    return http_pool_create(proxy->server, &options);
}

static enum status
tls_create(struct llm_proxy *proxy, struct error *error)
{
    const struct gateway_settings *settings = proxy->settings;
    if (settings->tls_certificate[0] == '\0')
        return STATUS_OK;
    enum status status = pem_files_create(settings->tls_certificate, settings->tls_key,
                                          settings->tls_client_ca, &proxy->pems, error);
    const struct http_tls_source source = {
        .fetch = pem_files_fetch,
        .context = proxy->pems,
        .clients = settings->tls_client_ca[0] != '\0' ? HTTP_TLS_REQUIRED : HTTP_TLS_ANY};
    if (status == STATUS_OK)
        status = http_tls_create(&source, &proxy->tls, error);
    return status == STATUS_OK ? STATUS_OK
                               : error_prefix(error, "tls_certificate, tls_key, tls_client_ca");
}

static enum status
listen_all(struct llm_proxy *proxy, struct error *error)
{
    enum { OPERATORS_MAX = 64 };
    const struct gateway_settings *settings = proxy->settings;
    struct http_service service = {
        .on_request = on_request,
        .on_head = on_head,
        .on_gone = on_gone,
        .context = proxy,
        .body_bytes_max = (uint64_t)settings->body_mib_max << 20,
        .header_bytes_max = (size_t)settings->header_kib_max << 10,
        .streams_max = (uint32_t)settings->http2_streams_max,
        .error_body = openai_error_body,
        .error_type = "application/json",
    };
    enum status status = tls_create(proxy, error);
    if (status == STATUS_OK)
        status = http_listen(pool_create(proxy, "gateway", (uint32_t)settings->connections_max),
                             settings->listen, &service, proxy->tls, error);
    if (status != STATUS_OK || settings->metrics[0] == '\0')
        return status;
    service.on_request = on_operator;
    service.on_head = NULL;
    service.on_gone = NULL;
    service.body_bytes_max = 0;
    service.streams_max = 0;
    return http_listen(pool_create(proxy, "metrics", OPERATORS_MAX), settings->metrics, &service,
                       NULL, error);
}

/* The time is over for a request whose answer has not begun: its client gets an error. */
static void
drain_refuse(struct exchange *exchange)
{
    if (exchange->state != EXCHANGE_PLACED && exchange->state != EXCHANGE_READING)
        return;
    exchange_refuse(exchange, &(struct openai_error){.code = 503,
                                                     .type = "InternalServerError",
                                                     .may_retry = true,
                                                     .message = drain_text});
}

static void
on_drain_over(void *context)
{
    struct llm_proxy *proxy = context;
    void (*on_drained)(void *context) = proxy->on_drained;
    if (proxy->open_count == 0) {
        drain_look(proxy);
        return;
    }
    proxy->on_drained = NULL;
    proxy->left_count = proxy->open_count;
    for (int64_t i = 0; i < proxy->settings->requests_max; i++)
        drain_refuse(&proxy->exchanges[i]);
    http_server_drain(proxy->server, NS_PER_S, on_drained, proxy->drained_context);
}

static void
on_send(void *context, const struct endpoint_send *send)
{
    struct llm_proxy *proxy = context;
    struct exchange *exchange = &proxy->exchanges[send->request];
    CHECK(exchange->state == EXCHANGE_PLACED && exchange->call == NULL);
    CHECK(exchange->stream == NULL);
    exchange->endpoint = send->endpoint;
    exchange->tries++;
    exchange->is_routed = send->model != NULL;
    if (exchange->method != NULL)
        grpc_send_to(exchange, send);
    else
        forward_send_to(exchange, send);
}

enum status
proxy_create(struct event_base *base, const struct gateway_settings *settings,
             struct llm_proxy **created, struct error *error)
{
    struct llm_proxy *proxy = calloc(1, sizeof(*proxy));
    CHECK(proxy != NULL);
    proxy->settings = settings;
    proxy->base = base;
    CHECK(getrandom(&proxy->id_seed, sizeof(proxy->id_seed), 0) == sizeof(proxy->id_seed));
    proxy->tokens = account_create();
    proxy->exchanges = calloc((size_t)settings->requests_max, sizeof(*proxy->exchanges));
    CHECK(proxy->exchanges != NULL);
    proxy->first_free = EXCHANGE_NONE;
    for (int64_t i = settings->requests_max - 1; i >= 0; i--) {
        proxy->exchanges[i].proxy = proxy;
        proxy->exchanges[i].number = (uint32_t)i;
        proxy->exchanges[i].next_free = proxy->first_free;
        proxy->first_free = (uint32_t)i;
    }
    proxy->server = http_server_create(base);
    proxy->drain = loop_timer_create(base, on_drain_over, proxy);
    const struct endpoint_pool_handler handler = {on_send, forward_on_refuse, proxy};
    enum status status = endpoint_pool_create(base, settings, &handler, &proxy->endpoints, error);
    if (status == STATUS_OK && settings->keys[0] != '\0')
        status = key_ring_create(base, settings->keys, &proxy->keys, error);
    if (status == STATUS_OK)
        status = listen_all(proxy, error);
    if (status == STATUS_OK)
        *created = proxy;
    else
        proxy_destroy(proxy);
    return status;
}

struct endpoint_pool *
proxy_endpoints(const struct llm_proxy *proxy)
{
    return proxy->endpoints;
}

uint32_t
proxy_open_requests(const struct llm_proxy *proxy)
{
    return proxy->left_count;
}

void
proxy_drain(struct llm_proxy *proxy, void (*on_done)(void *context), void *context)
{
    proxy->on_drained = on_done;
    proxy->drained_context = context;
    proxy->is_draining = true;
    http_server_part(proxy->server);
    loop_timer_set(proxy->drain, proxy->settings->drain_timeout_ms * NS_PER_MS);
    drain_look(proxy);
}

void
proxy_destroy(struct llm_proxy *proxy)
{
    if (proxy == NULL)
        return;
    account_destroy(proxy->tokens);
    for (int64_t i = 0; i < proxy->settings->requests_max; i++) {
        struct exchange *exchange = &proxy->exchanges[i];
        exchange_cancel(exchange);
        free(exchange->model_name);
        free(exchange->routed_path);
        free(exchange->sent_model);
        loop_timer_destroy(exchange->timer);
        exchange_forget_body(exchange);
        bytes_fini(&exchange->held);
    }
    http_server_destroy(proxy->server);
    http_tls_destroy(proxy->tls);
    pem_files_destroy(proxy->pems);
    endpoint_pool_destroy(proxy->endpoints);
    key_ring_destroy(proxy->keys);
    loop_timer_destroy(proxy->drain);
    free(proxy->exchanges);
    free(proxy);
}
