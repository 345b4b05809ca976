/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of either protocol as they come in: bodies, the fields that placing needs, refusals. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/proxy/internal.h"

enum { BODY_ROOM_FIRST = 4096, NAME_BYTES = 128 };

void
exchange_refuse(struct exchange *exchange, const struct openai_error *error)
{
    struct http_request *request = exchange->request;
    bool is_answering = exchange->state == EXCHANGE_STARTED;
    char id[REQUEST_ID_BYTES];
    struct openai_error reported = *error;
    memcpy(id, exchange->id, sizeof(id));
    reported.request_id = id;
    exchange_cancel(exchange);
    if (is_answering)
        forward_ended(exchange, GATEWAY_END_CANCELLED, &forward_no_report);
    else
        account_log(exchange, error->code, "refused");
    if (exchange->state == EXCHANGE_PLACED)
        endpoint_pool_step(exchange->proxy->endpoints,
                           &(struct gateway_event){.kind = GATEWAY_ENDED,
                                                   .request = exchange->number,
                                                   .end = GATEWAY_END_CANCELLED});
    exchange_free(exchange);
    (is_answering ? grpc_break_off : answer_refuse)(request, &reported);
}

/* ---- bodies ---- */

/* False: the limit of all bodies would be exceeded; the request is refused. */
static bool
body_reserve(struct exchange *exchange, size_t room)
{
    static const struct openai_error full = {
        .code = 503,
        .type = "InternalServerError",
        .may_retry = true,
        .message = "the gateway holds as many bytes of requests as it may"};
    struct llm_proxy *proxy = exchange->proxy;
    uint64_t limit = (uint64_t)proxy->settings->bodies_mib_max << 20;
    if (room <= exchange->body_room)
        return true;
    if (proxy->bodies_bytes + room - exchange->body_room > limit) {
        proxy->counters[PROXY_BODIES_FULL]++;
        exchange_refuse(exchange, &full);
        return false;
    }
    proxy->bodies_bytes += room - exchange->body_room;
    exchange->body = realloc(exchange->body, room);
    CHECK(exchange->body != NULL);
    exchange->body_room = room;
    return true;
}

bool
exchange_add_body(struct exchange *exchange, const void *data, size_t bytes)
{
    size_t needed = exchange->body_bytes + bytes;
    size_t room = exchange->body_room > 0 ? exchange->body_room : BODY_ROOM_FIRST;
    while (room < needed)
        room *= 2;
    if (room > exchange->body_declared)
        room = exchange->body_declared;
    if (!body_reserve(exchange, room))
        return false;
    memcpy(exchange->body + exchange->body_bytes, data, bytes);
    exchange->body_bytes = needed;
    return true;
}

/* ---- heads ---- */

/* The reference has two names for each of its headers. */
static const char *
either_header(const struct exchange *exchange, const char *name, const char *other)
{
    const char *value = http_request_header(exchange->request, name);
    return value != NULL ? value : http_request_header(exchange->request, other);
}

void
exchange_scan_fields(struct exchange *exchange)
{
    const char *session = either_header(exchange, "x-session-id", "x-session-token");
    const char *flow =
        either_header(exchange, "x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id");
    const char *objective =
        either_header(exchange, "x-gateway-inference-objective", "x-llm-d-inference-objective");
    const char *slo = either_header(exchange, "x-slo-ttft-ms", "x-llm-d-slo-ttft-ms");
    const char *wanted = exchange->proxy->settings->labels.header;
    const char *label = *wanted != '\0' ? http_request_header(exchange->request, wanted) : NULL;
    exchange->label = label != NULL ? gateway_name_hash(label, strlen(label)) : 0;
    long long slo_ms = slo != NULL ? strtoll(slo, NULL, 10) : 0;
    exchange->session = session != NULL ? gateway_name_hash(session, strlen(session)) : 0;
    exchange->flow = flow != NULL ? gateway_name_hash(flow, strlen(flow)) : 0;
    exchange->priority = 0;
    exchange->has_priority = false;
    if (objective != NULL)
        exchange->has_priority =
            endpoint_pool_priority(exchange->proxy->endpoints, objective, &exchange->priority);
    exchange->slo_ms = slo_ms > 0 && slo_ms <= INT32_MAX ? slo_ms : 0;
}

void
exchange_keep_model(struct exchange *exchange, const char *name, size_t bytes)
{
    size_t kept = bytes < NAME_BYTES ? bytes : NAME_BYTES;
    exchange->model_name = calloc(1, kept + 1); /* no strndup: a body does not end in NUL */
    CHECK(exchange->model_name != NULL);
    memcpy(exchange->model_name, name, kept);
}

/* Bodies of the Open Inference Protocol may be binary, and have no prefix that a server would
 * keep. */
void
exchange_scan_head(struct exchange *exchange, const char *model, size_t model_bytes)
{
    exchange_keep_model(exchange, model, model_bytes);
    exchange->model = gateway_name_hash(model, model_bytes);
    exchange->tokens = 1;
    exchange_scan_fields(exchange);
}
