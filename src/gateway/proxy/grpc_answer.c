/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of the gateway itself to calls over gRPC: errors, and the methods that ask of the server.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "gateway/proxy/internal.h"
#include "gateway/scan/oip_call.h"
#include "wire/wire.h"

static void
answer_yes(struct llm_proxy *proxy, struct bytes *out)
{
    (void)proxy;
    wire_append_number(out, 1, 1);
}

static void
answer_ready(struct llm_proxy *proxy, struct bytes *out)
{
    if (proxy_is_ready(proxy))
        wire_append_number(out, 1, 1);
}

static void
answer_metadata(struct llm_proxy *proxy, struct bytes *out)
{
    static const char name[] = "shoal-gateway";
    (void)proxy;
    wire_append_run(out, 1, name, sizeof(name) - 1);
    wire_append_run(out, 2, SHOAL_VERSION, sizeof(SHOAL_VERSION) - 1);
}

#define SERVICE "/inference.GRPCInferenceService/"

static const struct oip_call methods[] = {
    {.path = SERVICE "ModelInfer"},
    {.path = SERVICE "ModelStreamInfer", .is_stream = true},
    {.path = SERVICE "ModelReady"},
    {.path = SERVICE "ModelMetadata"},
    {.path = SERVICE "ServerLive", .answer = answer_yes},
    {.path = SERVICE "ServerReady", .answer = answer_ready},
    {.path = SERVICE "ServerMetadata", .answer = answer_metadata},
};

static enum status
status_of(int code)
{
    switch (code) {
    case 400: return STATUS_INVALID_ARGUMENT;
    case 401: return STATUS_UNAUTHENTICATED;
    case 404: return STATUS_NOT_FOUND;
    case 405:
    case 415: return STATUS_UNIMPLEMENTED;
    case 408: return STATUS_DEADLINE_EXCEEDED;
    case 413:
    case 429: return STATUS_RESOURCE_EXHAUSTED;
    default: return STATUS_UNAVAILABLE;
    }
}

/* The trailers of an error; texts need no percents. Returns their number. */
static size_t
put_error(struct http_header trailers[3], const struct openai_error *error, char status[4],
          char pushback[24])
{
    size_t count = 0;
    snprintf(status, 4, "%d", (int)status_of(error->code));
    trailers[count++] = (struct http_header){"grpc-status", status};
    trailers[count++] = (struct http_header){"grpc-message", error->message};
    if (error->may_retry) {
        snprintf(pushback, 24, "%" PRId64, openai_retry_seconds(error) * 1000);
        trailers[count++] = (struct http_header){"grpc-retry-pushback-ms", pushback};
    }
    return count;
}

static void
refuse_call(struct http_request *request, const struct openai_error *error)
{
    char status[4];
    char pushback[24];
    struct http_header headers[5] = {{"content-type", GRPC_CONTENT_TYPE}};
    size_t count = 1;
    if (error->request_id != NULL)
        headers[count++] = (struct http_header){"x-request-id", error->request_id};
    count += put_error(headers + count, error, status, pushback);
    http_answer(request, 200, headers, count, NULL, 0);
}

void
grpc_break_off(struct http_request *request, const struct openai_error *error)
{
    char status[4];
    char pushback[24];
    struct http_header trailers[3];
    http_answer_end_with(request, trailers, put_error(trailers, error, status, pushback));
}

static void
answer_message(struct http_request *request, const struct bytes *message)
{
    static const struct http_header header = {"content-type", GRPC_CONTENT_TYPE};
    static const struct http_header ok = {"grpc-status", "0"};
    unsigned char prefix[GRPC_FRAME_BYTES];
    grpc_put_prefix(prefix, message->used);
    http_answer_begin(request, 200, &header, 1, NULL);
    (void)http_answer_append(request,
                             &(struct http_piece){.data = prefix, .bytes = sizeof(prefix)});
    (void)http_answer_append(request,
                             &(struct http_piece){.data = message->data, .bytes = message->used});
    http_answer_end_with(request, &ok, 1);
}

bool
grpc_is_call(const struct http_request *request)
{
    const char *value = http_request_header(request, "content-type");
    return value != NULL && http_request_is_http2(request) &&
           strncmp(value, GRPC_CONTENT_TYPE, sizeof(GRPC_CONTENT_TYPE) - 1) == 0 &&
           strchr("+;", value[sizeof(GRPC_CONTENT_TYPE) - 1]) != NULL;
}

void
answer_refuse(struct http_request *request, const struct openai_error *error)
{
    (grpc_is_call(request) ? refuse_call : openai_refuse)(request, error);
}

const struct oip_call *
grpc_find(struct llm_proxy *proxy, struct http_request *request)
{
    static const struct openai_error unknown = {
        .code = 405,
        .message = "this method is not here: inference.GRPCInferenceService has ModelInfer, "
                   "ModelStreamInfer, ModelReady, ModelMetadata, ServerLive, ServerReady and "
                   "ServerMetadata"};
    const struct oip_call *method = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++)
        if (strcmp(http_request_path(request), methods[i].path) == 0)
            method = &methods[i];
    proxy->counters[PROXY_GRPC_CALLS]++;
    if (method == NULL || http_request_method(request) != HTTP_POST) {
        proxy->counters[PROXY_INVALID]++;
        refuse_call(request, &unknown);
        return NULL;
    }
    if (method->answer == NULL)
        return method;
    struct bytes message = {0};
    method->answer(proxy, &message);
    answer_message(request, &message);
    bytes_fini(&message);
    return NULL;
}
