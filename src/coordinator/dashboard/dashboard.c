/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/dashboard/dashboard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "coordinator/dashboard/gate.h"
#include "coordinator/dashboard/history.h"
#include "coordinator/dashboard/recent_events.h"
#include "coordinator/dashboard/pages.h"
#include "coordinator/dashboard/query.h"
#include "coordinator/dashboard/viewers.h"
#include "coordinator/front/rest_route.h"
#include "coordinator/front/web_listen.h"
#include "coordinator/telemetry/meters.h"
#include "ipc/snapshot_json.h"
#include "loop/loop.h"

enum {
    CONNECTIONS_SPARE = 48, /* besides those of the viewers: each browser opens up to six */
    HEADER_BYTES_MAX = 32 << 10,
    BODY_BYTES_MAX = 4 << 10,
    PATH_BYTES = 64,
    UNWATCHED_S = 10, /* between two looks at the counters while no page is open */
};

struct dashboard {
    struct dashboard_options options;
    struct http_thread *thread;
    struct http_tls *tls; /* NULL: no address has it */
    struct gate gate;
    struct list_asks *asks;
    struct rest *rest;
    struct http_service models; /* of the rest */
    struct recent_events *events;
    struct loop_timer *timer; /* the HTTP thread's once that has started */
    bool is_started;
    char path[PATH_BYTES]; /* of the counters file, even if its name has moved since */
    /* The HTTP thread's: */
    struct chart_history *history;
    struct viewers *viewers;
    uint32_t pause_s; /* until the next look at the counters */
    bool is_parting;
    uint64_t reported_event; /* the newest in the last sample */
};

static bool
may_infer(const struct dashboard *dashboard)
{
    const char *infer = dashboard->options.node.config->dashboard.infer;
    return infer != NULL && strcmp(infer, "on") == 0;
}

/* ---- once a second, if anybody looks ---- */

static void
write_sample(struct dashboard *dashboard, const struct snapshot *now, struct bytes *data)
{
    static const struct snapshot_json form = {.detail = SNAPSHOT_BRIEF};
    struct json json = json_begin(data, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_int(&json, "time_ms", now->taken_unix_ns / 1000000);
    json_name(&json, "stat");
    snapshot_json(now, &form, &json);
    json_name(&json, "points");
    history_newest_json(dashboard->history, &json);
    json_name(&json, "methods");
    meters_json(dashboard->options.meters, &json);
    json_name(&json, "events");
    dashboard->reported_event =
        recent_events_json(dashboard->events, dashboard->reported_event, &json);
    json_close(&json, '}');
}

static void
on_look(void *context)
{
    struct dashboard *dashboard = context;
    struct snapshot now;
    struct error error = ERROR_NONE;
    bool is_watched = viewers_count(dashboard->viewers) > 0;
    uint32_t passed_s = dashboard->pause_s;
    dashboard->pause_s = is_watched ? 1 : UNWATCHED_S;
    loop_timer_set(dashboard->timer, dashboard->pause_s * (int64_t)NS_PER_S);
    if (snapshot_read(&now, dashboard->path, &error) != STATUS_OK)
        return;
    history_add(dashboard->history, &now, passed_s);
    if (is_watched) {
        struct bytes data = {0};
        write_sample(dashboard, &now, &data);
        viewers_send(dashboard->viewers, &data);
        bytes_fini(&data);
    }
    snapshot_free(&now);
}

/* The first page that is open does not wait for its first sample. */
static enum status
add_viewer(struct dashboard *dashboard, struct http_request *request, struct error *error)
{
    if (dashboard->is_parting)
        return error_set(error, STATUS_UNAVAILABLE, "this node is about to stop");
    enum status status = viewers_add(dashboard->viewers, request, error);
    if (status == STATUS_OK && dashboard->pause_s > 1)
        loop_timer_set(dashboard->timer, 0);
    return status;
}

/* ---- requests ---- */

static void
refuse(struct dashboard *dashboard, struct http_request *request, const struct error *error)
{
    counter_add_shared(dashboard->options.node.counters, NODE_DASHBOARD_REFUSED, 1);
    pages_answer_error(request, rest_code(error->status), error);
}

static void
answer_about(struct dashboard *dashboard, struct http_request *request)
{
    const struct config *config = dashboard->options.node.config;
    struct bytes body = {0};
    struct json json = json_begin(&body, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_string(&json, "version", SHOAL_VERSION);
    json_field_string(&json, "instance",
                      config->mesh.instance != NULL ? config->mesh.instance : "");
    json_field_bool(&json, "mesh", config->mesh.on);
    json_field_string(&json, "http", config->http.count > 0 ? config->http.items[0] : "");
    json_field_bool(&json, "http_tls", config->http.count > 0 && config_has_tls(&config->http, 0));
    json_field_bool(&json, "infer", may_infer(dashboard));
    json_close(&json, '}');
    pages_answer_json(request, 200, &body);
}

/* The points of a pipeline, and the events that are kept. */
static enum status
answer_history(struct dashboard *dashboard, struct http_request *request, struct error *error)
{
    char pipeline[COUNTERS_NAME_BYTES];
    struct bytes body = {0};
    if (query_value(http_request_query(request), "pipeline", pipeline, sizeof(pipeline)) ==
        QUERY_WRONG)
        return error_set(error, STATUS_INVALID_ARGUMENT, "pipeline: too long, or wrongly escaped");
    struct json json = json_begin(&body, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_name(&json, "points");
    history_json(dashboard->history, pipeline, &json);
    json_name(&json, "events");
    (void)recent_events_json(dashboard->events, 0, &json);
    json_close(&json, '}');
    pages_answer_json(request, 200, &body);
    return STATUS_OK;
}

/* The page's questions about models go to REST, through the same admission as any request. */
static enum status
pass_on(struct dashboard *dashboard, struct http_request *request, struct error *error)
{
    static const char models[] = "/v2/models/";
    bool posts = http_request_method(request) == HTTP_POST;
    if (posts && strncmp(http_request_path_encoded(request), models, sizeof(models) - 1) != 0)
        return error_set(error, STATUS_PERMISSION_DENIED, "this page only calls models");
    if (posts && !may_infer(dashboard))
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "this page calls no models: the key dashboard_infer is off");
    dashboard->models.on_request(dashboard->models.context, request);
    return STATUS_OK;
}

static enum status
answer(struct dashboard *dashboard, struct http_request *request, struct error *error)
{
    const char *path = http_request_path(request);
    bool gets = http_request_method(request) == HTTP_GET;
    if (strncmp(path, "/v2", 3) == 0)
        return pass_on(dashboard, request, error);
    if (!gets && http_request_method(request) != HTTP_HEAD)
        return error_set(error, STATUS_UNIMPLEMENTED, "only GET is answered here");
    if (pages_answer(request, path))
        return STATUS_OK;
    if (strcmp(path, "/about") == 0) {
        answer_about(dashboard, request);
        return STATUS_OK;
    }
    if (strcmp(path, "/history") == 0)
        return answer_history(dashboard, request, error);
    if (strcmp(path, "/ask") == 0)
        return asks_take(dashboard->asks, request, error);
    if (strcmp(path, "/stream") == 0 && gets)
        return add_viewer(dashboard, request, error);
    return error_set(error, STATUS_NOT_FOUND, "there is no such page");
}

static void
log_in(struct dashboard *dashboard, struct http_request *request)
{
    char body[BODY_BYTES_MAX + 1];
    char token[GATE_TOKEN_BYTES_MAX + 1];
    char cookie[GATE_TOKEN_BYTES_MAX + 128];
    size_t bytes;
    const void *data = http_request_body(request, &bytes);
    bytes = data == NULL || bytes > BODY_BYTES_MAX ? 0 : bytes;
    if (bytes > 0)
        memcpy(body, data, bytes);
    body[bytes] = '\0';
    if (query_value(body, "token", token, sizeof(token)) != QUERY_FOUND ||
        !gate_is_token(&dashboard->gate, token)) {
        counter_add_shared(dashboard->options.node.counters, NODE_DASHBOARD_REFUSED, 1);
        pages_answer_login(request, 401);
        return;
    }
    snprintf(cookie, sizeof(cookie), GATE_COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict%s", token,
             http_request_place(request) == HTTP_AT_TLS ? "; Secure" : "");
    pages_answer_redirect(request, "/", cookie);
}

static bool
is_log_in(const struct http_request *request)
{
    return strcmp(http_request_path(request), "/login") == 0 &&
           http_request_method(request) == HTTP_POST;
}

static void
on_request(void *context, struct http_request *request)
{
    struct dashboard *dashboard = context;
    const char *path = http_request_path(request);
    struct error error = ERROR_NONE;
    const struct gate_headers headers = {
        .place = http_request_place(request),
        .host = http_request_header(request, "Host"),
        .origin = http_request_header(request, "Origin"),
        .fetch_site = http_request_header(request, "Sec-Fetch-Site"),
        .authorization = http_request_header(request, "Authorization"),
        .cookie = http_request_header(request, "Cookie"),
    };
    bool is_page = strcmp(path, "/") == 0 || pages_is_public(path);
    enum status status =
        gate_check(&dashboard->gate, &headers, is_page ? GATE_PAGE : GATE_DATA, &error);
    if (status == STATUS_UNAUTHENTICATED && is_log_in(request))
        log_in(dashboard, request);
    else if (status == STATUS_UNAUTHENTICATED && pages_is_public(path))
        (void)pages_answer(request, path);
    else if (status == STATUS_UNAUTHENTICATED && is_page)
        pages_answer_redirect(request, "/login", NULL);
    else if (status == STATUS_OK && is_log_in(request))
        pages_answer_redirect(request, "/", NULL);
    else if (status != STATUS_OK || answer(dashboard, request, &error) != STATUS_OK)
        refuse(dashboard, request, &error);
}

static void
on_gone(void *context, struct http_request *request)
{
    struct dashboard *dashboard = context;
    if (strcmp(http_request_path(request), "/stream") == 0)
        viewers_remove(dashboard->viewers, request);
    else if (strcmp(http_request_path(request), "/ask") == 0)
        asks_gone(dashboard->asks, request);
    else
        dashboard->models.on_gone(dashboard->models.context, request);
}

/* ---- life ---- */

static enum status
open_listeners(struct dashboard *dashboard, struct error *error)
{
    const struct config *config = dashboard->options.node.config;
    const struct web_place place = {config, dashboard->options.node.counters,
                                    dashboard->options.tls};
    struct http_pool *pool = web_pool_create(&place, dashboard->thread, "dashboard",
                                             config->dashboard.viewers_max + CONNECTIONS_SPARE);
    const struct http_service service = {
        .on_request = on_request,
        .on_gone = on_gone,
        .context = dashboard,
        .header_bytes_max = HEADER_BYTES_MAX,
        .body_bytes_max = may_infer(dashboard) ? config->http_limits.large_bytes : BODY_BYTES_MAX,
    };
    rest_set_pool(dashboard->rest, pool);
    return web_listen(&place, pool, &config->dashboard.addresses, &service, &dashboard->tls, error);
}

enum status
dashboard_create(const struct dashboard_options *options, struct dashboard **created,
                 struct error *error)
{
    const struct config *config = options->node.config;
    *created = NULL;
    if (config->dashboard.addresses.count == 0)
        return STATUS_OK;
    struct dashboard *dashboard = calloc(1, sizeof(*dashboard));
    CHECK(dashboard != NULL);
    *created = dashboard;
    dashboard->options = *options;
    snprintf(dashboard->path, sizeof(dashboard->path), "/proc/self/fd/%d", options->counters->fd);
    enum status status =
        gate_init(&dashboard->gate, config->dashboard.token_file, config->http_hosts, error);
    if (status == STATUS_OK)
        status = http_thread_create("shoald:dash", &dashboard->thread, error);
    if (status != STATUS_OK)
        return status;
    dashboard->options.lists.thread = dashboard->thread;
    dashboard->asks = asks_create(&dashboard->options.lists);
    dashboard->rest = rest_create(&options->node, dashboard->thread);
    dashboard->models = rest_service(dashboard->rest);
    dashboard->events = recent_events_start();
    dashboard->history = history_create();
    dashboard->viewers = viewers_create(config->dashboard.viewers_max, options->node.counters);
    dashboard->timer =
        loop_timer_create(loop_base(http_thread_loop(dashboard->thread)), on_look, dashboard);
    status = open_listeners(dashboard, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "dashboard");
}

void
dashboard_start(struct dashboard *dashboard, enum rpc_accept accept)
{
    if (dashboard == NULL)
        return;
    if (accept == RPC_ACCEPT_LATER)
        http_listeners_pause(http_thread_server(dashboard->thread));
    loop_timer_set(dashboard->timer, 0);
    dashboard->is_started = true;
    http_thread_start(dashboard->thread);
}

void
dashboard_accept(struct dashboard *dashboard)
{
    if (dashboard != NULL)
        http_thread_accept(dashboard->thread);
}

void
dashboard_set_ready(struct dashboard *dashboard, bool ready)
{
    if (dashboard != NULL)
        rest_set_node_ready(dashboard->rest, ready);
}

static void
on_part(void *context)
{
    struct dashboard *dashboard = context;
    dashboard->is_parting = true;
    http_server_part(http_thread_server(dashboard->thread));
    viewers_end(dashboard->viewers);
}

void
dashboard_part(struct dashboard *dashboard)
{
    if (dashboard != NULL)
        http_thread_post(dashboard->thread, on_part, dashboard);
}

static void
on_stop(void *context)
{
    struct dashboard *dashboard = context;
    loop_timer_destroy(dashboard->timer);
    viewers_end(dashboard->viewers);
}

void
dashboard_stop(struct dashboard *dashboard)
{
    if (dashboard == NULL || dashboard->rest == NULL)
        return;
    asks_stop(dashboard->asks);
    rest_stop(dashboard->rest);
    http_thread_post(dashboard->thread, on_stop, dashboard);
}

void
dashboard_destroy(struct dashboard *dashboard)
{
    if (dashboard == NULL)
        return;
    if (!dashboard->is_started)
        loop_timer_destroy(dashboard->timer);
    http_thread_destroy(dashboard->thread);
    rest_destroy(dashboard->rest);
    http_tls_destroy(dashboard->tls);
    asks_destroy(dashboard->asks);
    viewers_destroy(dashboard->viewers);
    history_destroy(dashboard->history);
    recent_events_stop();
    free(dashboard);
}
