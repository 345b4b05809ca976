/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the Open Inference Protocol over gRPC. A call is placed by the model that its first
 * message names, and its messages go to the chosen server as they came, but for a name that a route
 * rewrites. They are kept until that server's answer begins: for one answer with its first byte,
 * for a stream of them with its head, as gRPC's own rules for retries have it (gRFC A6). Until then
 * another server may be tried.
 *
 * All messages of a stream must name the same model, since all go to the server that was chosen for
 * the first.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "gateway/proxy/internal.h"
#include "gateway/scan/load_report.h"
#include "gateway/scan/oip_call.h"

enum { FIELDS_PASSED_MAX = 120, PACE_BYTES = 64 << 10 };

/* ---- time ---- */

static void
refuse(struct exchange *exchange, int code, const char *message)
{
    exchange->proxy->counters[code == 408 ? PROXY_GRPC_LATE : PROXY_INVALID]++;
    exchange_refuse(exchange, &(struct openai_error){.code = code, .message = message});
}

/* Returns when the client must have sent what the call is placed by. */
static int64_t
reading_ns(const struct exchange *exchange)
{
    return exchange->began_ns + exchange->proxy->settings->client_timeout_ms * NS_PER_MS +
           (int64_t)(exchange->body_bytes / PACE_BYTES) * NS_PER_S;
}

static void
arm(struct exchange *exchange)
{
    int64_t at_ns = exchange->deadline_ns;
    if (exchange->state == EXCHANGE_READING && reading_ns(exchange) < at_ns)
        at_ns = reading_ns(exchange);
    if (at_ns != TIME_NEVER_NS)
        loop_timer_set(exchange->timer, at_ns - clock_now_ns() + NS_PER_US);
}

static void
on_time(void *context)
{
    struct exchange *exchange = context;
    int64_t now_ns = clock_now_ns();
    if (exchange->deadline_ns <= now_ns)
        refuse(exchange, 408, "the call's deadline has passed");
    else if (exchange->state == EXCHANGE_READING && reading_ns(exchange) <= now_ns)
        refuse(exchange, 408, "the call's message took too long to arrive");
    else
        arm(exchange);
}

/* Writes at most eight digits: the unit grows with the number. */
static void
put_timeout(char text[16], int64_t left_ns)
{
    enum { NUMBER_MAX = 99999999 };
    int64_t left_us = left_ns > NS_PER_US ? left_ns / NS_PER_US : 1;
    if (left_us <= NUMBER_MAX)
        snprintf(text, 16, "%" PRId64 "u", left_us);
    else if (left_us / 1000 <= NUMBER_MAX)
        snprintf(text, 16, "%" PRId64 "m", left_us / 1000);
    else
        snprintf(text, 16, "%dS",
                 (int)(left_ns / NS_PER_S < NUMBER_MAX ? left_ns / NS_PER_S : NUMBER_MAX));
}

/* ---- messages from the client ---- */

static void
place(struct exchange *exchange)
{
    exchange_enter(exchange, EXCHANGE_PLACED);
    endpoint_pool_step(exchange->proxy->endpoints,
                       &(struct gateway_event){.kind = GATEWAY_REQUEST,
                                               .request = exchange->number,
                                               .ask = exchange_ask(exchange)});
}

/* Returns NULL or the mistake. */
static const char *
take_message(struct exchange *exchange, size_t bytes)
{
    struct oip_name name;
    const char *message = exchange->body + exchange->whole_bytes + GRPC_FRAME_BYTES;
    if (!exchange->method->is_stream && exchange->whole_bytes > 0)
        return "this method takes one message";
    const char *mistake = oip_scan_name(message, bytes, &name);
    if (mistake != NULL)
        return mistake;
    if (exchange->model_name == NULL)
        exchange_scan_head(exchange, name.text, name.text_bytes);
    size_t known = strlen(exchange->model_name);
    if (exchange->model != gateway_name_hash(name.text, name.text_bytes) ||
        known > name.text_bytes || memcmp(exchange->model_name, name.text, known) != 0)
        return "all messages of a stream must name the same model: open another for the other";
    exchange->whole_bytes += GRPC_FRAME_BYTES + bytes;
    return NULL;
}

/* False: it was refused. */
static bool
take_messages(struct exchange *exchange)
{
    size_t max = (size_t)exchange->proxy->settings->body_mib_max << 20;
    enum grpc_scan found;
    const char *mistake = NULL;
    size_t bytes;
    while (mistake == NULL && (found = grpc_scan_frame(exchange->body + exchange->whole_bytes,
                                                       exchange->body_bytes - exchange->whole_bytes,
                                                       max, &bytes)) == GRPC_SCAN_WHOLE)
        mistake = take_message(exchange, bytes);
    if (exchange->stream != NULL && mistake == NULL)
        grpc_send_more(exchange);
    if (mistake != NULL)
        refuse(exchange, 400, mistake);
    else if (found == GRPC_SCAN_COMPRESSED)
        refuse(exchange, 415, "messages must not be compressed");
    else if (found == GRPC_SCAN_LARGE)
        refuse(exchange, 413, "the message is larger than body_mib_max allows");
    else if (exchange->state != EXCHANGE_STARTED && exchange->whole_bytes > max + GRPC_FRAME_BYTES)
        refuse(exchange, 413, "the server has answered none of as many messages as may be kept");
    else
        return true;
    return false;
}

static void
on_piece(struct http_request *request, const void *data, size_t bytes)
{
    struct exchange *exchange = http_request_user(request);
    if (exchange_add_body(exchange, data, bytes) && take_messages(exchange) &&
        exchange->state == EXCHANGE_READING && exchange->method->is_stream &&
        exchange->whole_bytes > 0)
        place(exchange);
}

static void
on_body_end(struct http_request *request)
{
    struct exchange *exchange = http_request_user(request);
    bool is_reading = exchange->state == EXCHANGE_READING;
    exchange->has_ended = true;
    if (exchange->body_bytes != exchange->whole_bytes)
        refuse(exchange, 400, "the call ends within a message");
    else if (is_reading && exchange->whole_bytes == 0)
        refuse(exchange, 400, "the call has no message");
    else if (is_reading)
        place(exchange);
    else if (exchange->stream != NULL)
        grpc_send_more(exchange);
}

void
grpc_begin(struct exchange *exchange, const struct oip_call *method)
{
    static const struct http_body_sink sink = {on_piece, on_body_end};
    const char *timeout = http_request_header(exchange->request, "grpc-timeout");
    int64_t timeout_ns;
    exchange->method = method;
    exchange->is_oip = true;
    exchange->is_held = exchange->is_events = false;
    exchange->pieces = 0;
    exchange->is_streamed = method->is_stream;
    exchange->body_declared = SIZE_MAX;
    exchange->deadline_ns = TIME_NEVER_NS;
    if (timeout != NULL && !grpc_read_timeout(timeout, &timeout_ns)) {
        refuse(exchange, 400, "grpc-timeout: write up to eight digits and a unit, as 250m");
        return;
    }
    if (timeout != NULL)
        exchange->deadline_ns = exchange->began_ns + timeout_ns;
    exchange->timer = loop_timer_create(exchange->proxy->base, on_time, exchange);
    arm(exchange);
    http_request_stream_freely(exchange->request, &sink);
}

/* ---- the answer ---- */

static void
on_room(void *context, struct http2_call *call)
{
    (void)call;
    grpc_send_more(context);
}

static void
on_writable(struct http_request *request)
{
    struct exchange *exchange = http_request_user(request);
    if (exchange->stream != NULL)
        http2_call_resume(exchange->stream);
}

/* Returns the number of fields that pass. */
static size_t
passed(const struct http2_call *call, enum http2_block block, struct http_header *headers,
       size_t count)
{
    size_t position = 0;
    size_t own_count = count;
    struct http_header header;
    while (count < FIELDS_PASSED_MAX &&
           http2_call_walk(call, block, &position, &header.name, &header.value))
        headers[count++] = header;
    return forward_keep_passing(headers, own_count, count);
}

/* The server's load, as a block of its answer reports it. */
static const struct gateway_report *
read_report(const struct http2_call *call, enum http2_block block, struct load_report *report)
{
    report->figures = forward_no_report;
    for (const char *const *name = load_report_headers; *name != NULL; name++) {
        const char *value = http2_call_find(call, block, *name);
        if (value != NULL)
            load_report_read(*name, value, report);
    }
    return &report->figures;
}

/* From here on the client sees this server's answer. */
static void
begin_answer(struct exchange *exchange, const struct http2_call *call)
{
    struct load_report report;
    struct http_header headers[HEADERS_MAX] = {{"x-request-id", exchange->id}};
    forward_started(exchange, read_report(call, HTTP2_HEAD, &report));
    grpc_forget_sent(exchange);
    http_answer_begin(exchange->request, 200, headers, passed(call, HTTP2_HEAD, headers, 1),
                      on_writable);
}

static void
try_failed(struct exchange *exchange, enum gateway_failure failure)
{
    exchange->stream = NULL;
    forward_try_failed(exchange, failure);
}

/* A head with the status is the whole answer. */
static void
on_head(void *context, struct http2_call *call)
{
    struct exchange *exchange = context;
    int code = http2_call_code(call);
    const char *its_type = http2_call_find(call, HTTP2_HEAD, "content-type");
    bool is_grpc = its_type != NULL &&
                   strncmp(its_type, GRPC_CONTENT_TYPE, sizeof(GRPC_CONTENT_TYPE) - 1) == 0;
    if (code != 200 || !is_grpc) {
        http2_call_cancel(call);
        try_failed(exchange, code == 429 || code == 503 ? GATEWAY_FAILED_BUSY
                             : code >= 500              ? GATEWAY_FAILED_BROKE
                                                        : GATEWAY_FAILED_FOREIGN);
    } else if (exchange->method->is_stream &&
               http2_call_find(call, HTTP2_HEAD, "grpc-status") == NULL) {
        begin_answer(exchange, call);
    }
}

static void
on_answer(void *context, struct http2_call *call, const void *data, size_t bytes)
{
    struct exchange *exchange = context;
    const struct http_piece piece = {.data = data, .bytes = bytes};
    if (exchange->state != EXCHANGE_STARTED)
        begin_answer(exchange, call);
    exchange->pieces++;
    if (http_answer_append(exchange->request, &piece) == HTTP_WAIT) {
        exchange->proxy->counters[PROXY_PAUSED]++;
        http2_call_pause(call);
    }
}

static void
broke(struct exchange *exchange, enum gateway_end how)
{
    static const struct openai_error error = {.code = 502,
                                              .message = "the model server broke off its answer"};
    struct http_request *request = exchange->request;
    exchange->code = (int)STATUS_UNAVAILABLE;
    forward_ended(exchange, how, &forward_no_report);
    exchange_free(exchange);
    grpc_break_off(request, &error);
}

static bool
has_declined(const struct exchange *exchange, int status, enum gateway_failure *failure)
{
    bool is_absent = status == STATUS_NOT_FOUND && (exchange->is_routed || exchange->tries > 1);
    *failure = is_absent ? GATEWAY_FAILED_ABSENT : GATEWAY_FAILED_BUSY;
    return is_absent || status == STATUS_UNAVAILABLE || status == STATUS_RESOURCE_EXHAUSTED;
}

/* The status is in `block`. */
static void
answer_end(struct exchange *exchange, const struct http2_call *call, enum http2_block block)
{
    struct http_request *request = exchange->request;
    struct http_header headers[HEADERS_MAX];
    char id[REQUEST_ID_BYTES]; /* the exchange's may be another's when the answer is written */
    memcpy(id, exchange->id, sizeof(id));
    headers[0] = (struct http_header){"x-request-id", id};
    struct load_report report;
    bool is_begun = exchange->state == EXCHANGE_STARTED;
    bool is_head = block == HTTP2_HEAD && !is_begun;
    if (is_head)
        forward_started(exchange, &forward_no_report);
    else if (!is_begun)
        begin_answer(exchange, call);
    forward_ended(exchange, GATEWAY_END_OK, read_report(call, block, &report));
    exchange_free(exchange);
    if (is_head)
        http_answer(request, 200, headers, passed(call, block, headers, 1), NULL, 0);
    else
        http_answer_end_with(request, headers, passed(call, block, headers, 0));
}

static void on_end(void *context, struct http2_call *call, enum http_call_end how);

static void
start_call(struct exchange *exchange)
{
    static const struct http2_call_handler handler = {on_head, on_answer, on_room, on_end};
    const struct gateway_settings *settings = exchange->proxy->settings;
    struct http_header headers[HEADERS_MAX] = {{"te", "trailers"}};
    char timeout[16];
    size_t count = 1;
    int64_t now_ns = clock_now_ns();
    int64_t left_ns = settings->total_timeout_ms * NS_PER_MS + exchange->began_ns - now_ns;
    if (exchange->deadline_ns != TIME_NEVER_NS) {
        put_timeout(timeout, exchange->deadline_ns - now_ns);
        headers[count++] = (struct http_header){"grpc-timeout", timeout};
    }
    const struct http2_call_request call = {
        .path = exchange->method->path,
        .headers = headers,
        .header_count = forward_request_headers(exchange, headers, count),
        .timeouts = {.connect_ns = settings->connect_timeout_ms * NS_PER_MS,
                     .first_byte_ns = settings->first_byte_timeout_ms * NS_PER_MS,
                     .idle_ns = settings->idle_timeout_ms * NS_PER_MS,
                     .total_ns = left_ns > 1 ? left_ns : 1}};
    exchange->stream = http2_call_start(exchange->grpc_target, &call, &handler, exchange);
    grpc_send_anew(exchange);
}

static void
on_end(void *context, struct http2_call *call, enum http_call_end how)
{
    struct exchange *exchange = context;
    bool in_head = http2_call_find(call, HTTP2_TRAILERS, "grpc-status") == NULL;
    enum http2_block block = in_head ? HTTP2_HEAD : HTTP2_TRAILERS;
    const char *status = http2_call_find(call, block, "grpc-status");
    bool is_whole = how == HTTP_CALL_DONE && status != NULL;
    enum gateway_failure failure;
    exchange->stream = NULL;
    if (is_whole)
        exchange->code = atoi(status); // NOLINT(cert-err34-c): what it is if it is no number
    if (exchange->state == EXCHANGE_STARTED && !is_whole) {
        broke(exchange, how == HTTP_CALL_LATE ? GATEWAY_END_LATE : GATEWAY_END_BROKE);
    } else if (how == HTTP_CALL_STALE) { /* says nothing about the server; each uses up one */
        exchange->proxy->counters[PROXY_STALE]++;
        start_call(exchange);
    } else if (!is_whole) {
        try_failed(exchange, how == HTTP_CALL_REFUSED     ? GATEWAY_FAILED_UNREACHABLE
                             : how == HTTP_CALL_LATE      ? GATEWAY_FAILED_LATE
                             : how == HTTP_CALL_MALFORMED ? GATEWAY_FAILED_FOREIGN
                             : how == HTTP_CALL_DECLINED  ? GATEWAY_FAILED_BUSY
                                                          : GATEWAY_FAILED_BROKE);
    } else if (exchange->state != EXCHANGE_STARTED &&
               has_declined(exchange, exchange->code, &failure)) {
        try_failed(exchange, failure);
    } else {
        answer_end(exchange, call, block);
    }
}

void
grpc_send_to(struct exchange *exchange, const struct endpoint_send *send)
{
    free(exchange->sent_model);
    exchange->sent_model = send->model != NULL ? strdup(send->model) : NULL;
    CHECK(exchange->sent_model != NULL || send->model == NULL);
    exchange->target = send->target;
    exchange->grpc_target = send->grpc_target;
    start_call(exchange);
}
