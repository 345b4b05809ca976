/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as OpenAI's API has them: {"error": {"message", "type", "param", "code"}}. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "gateway/proxy/internal.h"

static void
write_error(struct bytes *out, const char *message, const char *type, int code)
{
    struct json json = json_begin(out, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_open(&json, "error", '{');
    json_field_string(&json, "message", message);
    json_field_string(&json, "type", type);
    json_name(&json, "param");
    json_put_null(&json);
    json_name(&json, "code");
    if (code != 0)
        json_put_int(&json, code);
    else
        json_put_null(&json);
    json_close(&json, '}');
    json_close(&json, '}');
}

void
openai_error_body(const char *text, char *body, size_t room)
{
    struct bytes out = {0};
    write_error(&out, text, "invalid_request_error", 0);
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
    snprintf(seconds, sizeof(seconds), "%" PRId64,
             error->retry_ms > 0 ? (error->retry_ms + 999) / 1000 : 1);
    if (error->allow != NULL)
        headers[count++] = (struct http_header){"Allow", error->allow};
    if (error->may_retry)
        headers[count++] = (struct http_header){"Retry-After", seconds};
    write_error(&out, error->message, error->type, error->code);
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
