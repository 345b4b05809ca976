/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers of REST calls: gRPC messages become JSON.
 */
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/front/rest_inquiry.h"
#include "coordinator/front/rest_openapi.h"
#include "rpc/spans.h"

/* ---- a call's ---- */

static enum status
write_small(struct rest_call *call, const struct wire_message *message, struct bytes *json,
            int *code, struct error *error)
{
    struct rest_route route;
    bool is_ready = true;
    enum status status = STATUS_OK;
    rest_route(&route, http_request_path_encoded(call->request));
    if (call->what == REST_MODEL)
        status = oip_json_put_model(json, message, error);
    else if (call->what == REST_MODELS)
        status = triton_write_names(message, call->page_rows, json, error);
    else if (call->what == REST_OPENAPI)
        rest_openapi_write(&call->rest->dispatch.scope, message, call->page_rows, json);
    else if (call->what == REST_TRITON)
        status = triton_write_json(route.row->method, message, json, error);
    else
        status = oip_json_put_model_ready(json, route.model, message, &is_ready, error);
    *code = is_ready ? 200 : rest_code(STATUS_UNAVAILABLE);
    return status;
}

enum status
rest_call_write(struct rest_call *call, int *code, struct error *error)
{
    struct rpc_spans spans;
    struct oip_json_answer *answer = &call->written;
    if (call->copied.failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to write the answer");
    *code = 200;
    spans_of_pieces(&spans, call->pieces, call->piece_count);
    enum status status = call->json != NULL
                             ? oip_json_write(call->json, &spans.message, answer, error)
                             : write_small(call, &spans.message, &answer->text, code, error);
    spans_fini(&spans);
    if (status == STATUS_OK && answer->text.failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to write the answer");
    return status;
}

/* ---- any ---- */

void
rest_answer(struct http_request *request, int code, struct bytes *json,
            const struct http_header *more)
{
    static const char no_memory[] = "{\"error\":\"no memory to write the answer\"}";
    struct http_header headers[2] = {{"Content-Type", "application/json"}};
    size_t header_count = 1;
    if (more != NULL)
        headers[header_count++] = *more;
    struct http_piece piece = {no_memory, sizeof(no_memory) - 1, NULL, NULL};
    if (json->failed) {
        code = rest_code(STATUS_RESOURCE_EXHAUSTED);
        bytes_fini(json);
    } else {
        piece.data = piece.release_context = bytes_take(json, &piece.bytes);
        piece.release = free;
    }
    http_answer(request, code, headers, header_count, &piece, 1);
}

void
rest_answer_error(struct http_request *request, int code, const char *text, uint32_t retry_ms)
{
    struct bytes json = {0};
    char seconds[16];
    struct http_header retry = {"Retry-After", seconds};
    snprintf(seconds, sizeof(seconds), "%u", (retry_ms + 999) / 1000); /* it knows whole ones */
    oip_json_put_error(&json, text);
    rest_answer(request, code, &json, retry_ms > 0 ? &retry : NULL);
}

void
rest_notify_error(const struct inquiry *inquiry)
{
    rest_answer_error(inquiry->request,
                      inquiry->code != 0 ? inquiry->code : rest_code(inquiry->error.status),
                      inquiry->error.text, inquiry->retry_ms);
}
