/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/front/rest_inquiry.h"
#include "coordinator/front/rest_reader.h"
#include "coordinator/front/rest_stream.h"

/* ---- the small answers ---- */

static void
answer_health(struct inquiry *inquiry)
{
    /* For readiness the protocol's text has the key `live`, and its servers have `ready`. */
    bool asks_live = inquiry->route.what == REST_LIVE;
    bool good = asks_live || rest_is_ready(inquiry->rest);
    struct bytes json = {0};
    bytes_put_text(&json, asks_live ? "{\"live\":true}"
                          : good    ? "{\"live\":true,\"ready\":true}"
                                    : "{\"live\":false,\"ready\":false}");
    rest_answer(inquiry->request, good ? 200 : 503, &json, NULL);
}

static enum status
answer_model(struct inquiry *inquiry)
{
    bool asks_ready = inquiry->route.what == REST_MODEL_READY;
    int64_t deadline_ns;
    enum status status = rest_deadline(inquiry, &deadline_ns);
    if (status != STATUS_OK)
        return status;
    struct rest_call *call =
        rest_call_create(inquiry->rest, inquiry->request, inquiry->route.what, NULL);
    if (call == NULL)
        return rest_stopping(inquiry);
    return rest_ask_model(inquiry, call, asks_ready ? OIP_MODEL_READY : OIP_MODEL_METADATA,
                          deadline_ns);
}

/* ---- requests ---- */

/* STATUS_OK: it is answered, or will be. */
static enum status
go(struct inquiry *inquiry)
{
    struct bytes json = {0};
    switch (inquiry->route.what) {
    case REST_NOWHERE: break;
    case REST_LIVE:
    case REST_READY: answer_health(inquiry); return STATUS_OK;
    case REST_SERVER:
        oip_json_put_server(&json, inquiry->rest->dispatch.server_name);
        rest_answer(inquiry->request, 200, &json, NULL);
        return STATUS_OK;
    case REST_MODEL:
    case REST_MODEL_READY: return answer_model(inquiry);
    case REST_PREDICT:
    case REST_GENERATE:
    case REST_GENERATE_STREAM:
    case REST_INFER: rest_infer(inquiry); return STATUS_OK;
    case REST_MODELS:
    case REST_OPENAPI:
    case REST_TRITON: return rest_triton(inquiry);
    }
    return error_set(&inquiry->error, STATUS_NOT_FOUND,
                     "no such path; /v2/openapi.json lists those that there are");
}

static void
refuse_method(struct http_request *request, const char *allowed)
{
    struct bytes json = {0};
    char text[64];
    snprintf(text, sizeof(text), "the method is not allowed here: %s", allowed);
    oip_json_put_error(&json, text);
    rest_answer(request, 405, &json, &(struct http_header){"Allow", allowed});
}

static void
refuse(struct inquiry *inquiry)
{
    counter_add_shared(inquiry->rest->node.counters, NODE_CALLS_REFUSED, 1);
    rest_notify_error(inquiry);
}

static void
on_request(void *context, struct http_request *request)
{
    struct rest *rest = context;
    struct inquiry inquiry = {.rest = rest, .request = request};
    counter_add_shared(rest->node.counters, NODE_CALLS, 1);
    if (rest_guard_check(&rest->guard, http_request_place(request),
                         http_request_header(request, "Host"),
                         http_request_header(request, "Origin"), &inquiry.error) != STATUS_OK) {
        refuse(&inquiry);
        return;
    }
    rest_route(&inquiry.route, http_request_path_encoded(request));
    const char *allowed = inquiry.route.what == REST_NOWHERE
                              ? NULL
                              : rest_route_allows(inquiry.route.row, http_request_method(request));
    if (allowed != NULL) {
        counter_add_shared(rest->node.counters, NODE_CALLS_REFUSED, 1);
        refuse_method(request, allowed);
    } else if (go(&inquiry) != STATUS_OK) {
        refuse(&inquiry);
    }
}

static void
on_gone(void *context, struct http_request *request)
{
    (void)context;
    struct rest_call *call = http_request_user(request);
    if (call == NULL)
        return;
    call->gone = true;
    rest_call_cancel(call);
}

static void
error_body(const char *text, char *body, size_t room)
{
    struct bytes json = {0};
    oip_json_put_error(&json, text);
    size_t bytes = json.failed || json.used >= room ? 0 : json.used;
    if (bytes > 0)
        memcpy(body, json.data, bytes);
    body[bytes] = '\0';
    bytes_fini(&json);
}

/* ---- life ---- */

struct rest *
rest_create(const struct front_node *node, struct http_thread *thread)
{
    const struct config *config = node->config;
    struct rest *rest = calloc(1, sizeof(*rest));
    CHECK(rest != NULL);
    rest->node = *node;
    rest->dispatch = dispatch_of(node);
    rest->thread = thread;
    rest_guard_init(&rest->guard, config->http_hosts);
    CHECK(pthread_mutex_init(&rest->lock, NULL) == 0);
    CHECK(pthread_cond_init(&rest->all_answered, NULL) == 0);
    const struct rest_reader_limits limits = {config->http_limits.large_waiting_max,
                                              config->http_limits.large_waiting_bytes_max};
    rest->reader = rest_reader_create(&limits);
    return rest;
}

struct http_service
rest_service(struct rest *rest)
{
    return (struct http_service){
        .on_request = on_request,
        .on_gone = on_gone,
        .context = rest,
        .body_bytes_max = rest->node.config->message_bytes_max,
        .header_bytes_max = REST_HEADER_BYTES_MAX,
        .error_body = error_body,
        .error_type = "application/json",
    };
}

void
rest_set_pool(struct rest *rest, struct http_pool *pool)
{
    rest->pool = pool;
}

void
rest_set_node_ready(struct rest *rest, bool ready)
{
    if (rest == NULL)
        return;
    pthread_mutex_lock(&rest->lock);
    rest->node_ready = ready;
    pthread_mutex_unlock(&rest->lock);
}

void
rest_stop(struct rest *rest)
{
    if (rest == NULL)
        return;
    pthread_mutex_lock(&rest->lock);
    rest->stopping = true;
    http_thread_post(rest->thread, rest_streams_stop, rest);
    while (rest->unanswered > 0)
        pthread_cond_wait(&rest->all_answered, &rest->lock);
    pthread_mutex_unlock(&rest->lock);
}

void
rest_destroy(struct rest *rest)
{
    if (rest == NULL)
        return;
    CHECK(rest->unanswered == 0);
    CHECK(rest->lent_count == 0);
    rest_reader_destroy(rest->reader);
    pthread_cond_destroy(&rest->all_answered);
    pthread_mutex_destroy(&rest->lock);
    free(rest);
}
