/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "gateway/proxy/internal.h"

struct openai_error
openai_error_of(enum gateway_refusal refusal)
{
    static const struct openai_error errors[GATEWAY_REFUSAL_COUNT] = {
        [GATEWAY_REFUSED_NO_ENDPOINT] = {503, .message = "no model server can be reached"},
        [GATEWAY_REFUSED_BUSY] = {429, .message = "every model server in reach is busy"},
        [GATEWAY_REFUSED_FAILED] = {502, .message = "every model server that was tried failed"},
        [GATEWAY_REFUSED_SHED] = {429, .message = "the model servers are saturated, and requests "
                                                  "of a negative priority are refused"},
        [GATEWAY_REFUSED_QUEUE_FULL] = {429, .message = "the queue for the model servers is full"},
        [GATEWAY_REFUSED_SHARE] = {429, .message = "the model servers are saturated, and this "
                                                   "model got more than its share of tokens"},
        [GATEWAY_REFUSED_UNKNOWN] = {404, .message = "there is no such model: GET /v1/models lists "
                                                     "what the model servers have"},
        [GATEWAY_REFUSED_EXPIRED] = {429, .message = "the model servers were saturated for as long "
                                                     "as the request may wait"},
    };
    struct openai_error error = errors[refusal];
    error.may_retry = error.code != 404;
    error.type = error.code == 429   ? "RateLimitError"
                 : error.code == 404 ? "NotFoundError"
                                     : "InternalServerError";
    return error;
}

int64_t
openai_retry_seconds(const struct openai_error *error)
{
    return error->retry_ms > 0 ? (error->retry_ms + 999) / 1000 : 1;
}

void
openai_error_write(struct bytes *out, const struct openai_error *error)
{
    struct json json = json_begin(out, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_open(&json, "error", '{');
    json_field_string(&json, "message", error->message);
    json_field_string(&json, "type", error->type);
    json_name(&json, "param");
    json_put_null(&json);
    json_name(&json, "code");
    if (error->code != 0)
        json_put_int(&json, error->code);
    else
        json_put_null(&json);
    json_close(&json, '}');
    json_close(&json, '}');
}

void
openai_error_body(const char *text, char *body, size_t room)
{
    struct bytes out = {0};
    openai_error_write(&out,
                       &(struct openai_error){.type = "invalid_request_error", .message = text});
    size_t bytes = out.failed || out.used >= room ? 0 : out.used;
    if (bytes > 0)
        memcpy(body, out.data, bytes);
    body[bytes] = '\0';
    bytes_fini(&out);
}

void
openai_refuse(struct http_request *request, const struct openai_error *error)
{
    struct bytes out = {0};
    struct http_header headers[4] = {{"Content-Type", "application/json"}};
    size_t count = 1;
    if (error->request_id != NULL)
        headers[count++] = (struct http_header){"x-request-id", error->request_id};
    char seconds[24];
    snprintf(seconds, sizeof(seconds), "%" PRId64, openai_retry_seconds(error));
    if (error->allow != NULL)
        headers[count++] = (struct http_header){"Allow", error->allow};
    if (error->may_retry)
        headers[count++] = (struct http_header){"Retry-After", seconds};
    openai_error_write(&out, error);
    struct http_piece piece = {.data = out.data, .bytes = out.used};
    http_answer(request, error->code, headers, count, &piece, 1);
    bytes_fini(&out);
}

void
openai_answer_json(struct http_request *request, int code, const struct bytes *json)
{
    struct http_header header = {"Content-Type", "application/json"};
    struct http_piece piece = {.data = json->data, .bytes = json->used};
    http_answer(request, code, &header, 1, &piece, 1);
}
