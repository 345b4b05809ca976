/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One exchange with a server. Messages are framed anew on both sides: of the received heads only
 * end-to-end fields pass, lengths and chunks are our own. Until the client sees a byte, the request
 * may go to another server; so a short answer of known length is passed on when it is whole.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"
#include "gateway/proxy/internal.h"
#include "gateway/scan/load_report.h"

enum { EVENT_LINE_ENDS = 2, SMALL_BYTES = 4096 };

/* ---- heads ---- */

/* Returns whether a comma-separated list names this field. */
static bool
is_named(const char *list, const char *name)
{
    size_t bytes = strlen(name);
    while (*list != '\0') {
        list += strspn(list, " \t,");
        size_t found = strcspn(list, " \t,");
        if (found == bytes && strncasecmp(list, name, bytes) == 0)
            return true;
        list += found;
    }
    return false;
}

/* Fields of one hop, and those that we write. */
static bool
is_ours(const char *name)
{
    static const char *const ours[] = {"connection",
                                       "keep-alive",
                                       "proxy-authenticate",
                                       "proxy-authorization",
                                       "proxy-connection",
                                       "te",
                                       "trailer",
                                       "transfer-encoding",
                                       "upgrade",
                                       "content-length",
                                       "host",
                                       "expect",
                                       "date",
                                       "grpc-timeout",
                                       "x-request-id",
                                       "x-gateway-inference-fairness-id",
                                       "x-gateway-inference-objective",
                                       "x-llm-d-inference-fairness-id",
                                       "x-llm-d-inference-objective",
                                       "endpoint-load-metrics-format",
                                       "endpoint-load-metrics",
                                       "endpoint-load-metrics-bin"};
    for (size_t i = 0; i < ARRAY_COUNT(ours); i++)
        if (strcasecmp(name, ours[i]) == 0)
            return true;
    return false;
}

/* Keeps the fields that pass, behind our own. Connection may come several times. */
size_t
forward_keep_passing(struct http_header headers[HEADERS_MAX], size_t own_count, size_t count)
{
    const char *lists[HEADERS_MAX];
    size_t list_count = 0;
    size_t kept = own_count;
    for (size_t i = own_count; i < count; i++)
        if (strcasecmp(headers[i].name, "Connection") == 0)
            lists[list_count++] = headers[i].value;
    for (size_t i = own_count; i < count; i++) {
        bool passes = !is_ours(headers[i].name);
        for (size_t j = 0; j < list_count && passes; j++)
            passes = !is_named(lists[j], headers[i].name);
        if (passes)
            headers[kept++] = headers[i];
    }
    return kept;
}

size_t
forward_request_headers(const struct exchange *exchange, struct http_header *headers, size_t count)
{
    size_t position = 0;
    struct http_header header;
    headers[count++] = (struct http_header){"x-request-id", exchange->id};
    headers[count++] = (struct http_header){"endpoint-load-metrics-format", "TEXT"};
    size_t own_count = count;
    while (count < HEADERS_MAX &&
           http_request_header_walk(exchange->request, &position, &header.name, &header.value))
        if (exchange->key == NULL || strcasecmp(header.name, "authorization") != 0)
            headers[count++] = header;
    return forward_keep_passing(headers, own_count, count);
}

static size_t
answer_headers(const struct exchange *exchange, const struct http_call *call,
               struct http_header headers[HEADERS_MAX])
{
    size_t position = 0;
    size_t count = 1;
    struct http_header header;
    headers[0] = (struct http_header){"x-request-id", exchange->id};
    while (count < HEADERS_MAX &&
           http_call_header_walk(call, &position, &header.name, &header.value))
        headers[count++] = header;
    return forward_keep_passing(headers, 1, count);
}

/* ---- the core ---- */

const struct gateway_report forward_no_report = {.has_waiting = false};

static void
step(struct exchange *exchange, struct gateway_event event)
{
    event.request = exchange->number;
    endpoint_pool_step(exchange->proxy->endpoints, &event);
}

void
forward_try_failed(struct exchange *exchange, enum gateway_failure failure)
{
    bytes_fini(&exchange->held);
    step(exchange, (struct gateway_event){.kind = GATEWAY_TRY_FAILED,
                                          .failure = failure,
                                          .ask = exchange_ask(exchange)});
}

void
forward_started(struct exchange *exchange, const struct gateway_report *report)
{
    exchange_enter(exchange, EXCHANGE_STARTED);
    exchange->used = exchange->tokens; /* at least, also if the client leaves */
    exchange->first_ns = clock_now_ns();
    step(exchange, (struct gateway_event){.kind = GATEWAY_STARTED, .report = *report});
}

static void
start(struct exchange *exchange, const struct http_call *call)
{
    struct load_report report;
    report.figures = forward_no_report;
    for (const char *const *name = load_report_headers; *name != NULL; name++) {
        const char *value = http_call_header(call, *name);
        if (value != NULL)
            load_report_read(*name, value, &report);
    }
    forward_started(exchange, &report.figures);
}

/* Only a stream shows when its tokens came. */
static void
note_times(const struct exchange *exchange)
{
    uint64_t tokens =
        exchange->usage.answer_tokens > 0 ? exchange->usage.answer_tokens : exchange->pieces;
    int64_t rest_ns = clock_now_ns() - exchange->first_ns;
    endpoint_pool_note_answer(exchange->proxy->endpoints, exchange->endpoint,
                              exchange->first_ns - exchange->began_ns,
                              tokens > 1 ? rest_ns / (int64_t)(tokens - 1) : -1);
}

void
forward_ended(struct exchange *exchange, enum gateway_end how, const struct gateway_report *report)
{
    uint64_t *counters = exchange->proxy->counters;
    const struct usage *usage = &exchange->usage;
    bool is_whole = how == GATEWAY_END_OK;
    counters[is_whole ? PROXY_ANSWERED : PROXY_CUT_SHORT]++;
    if (is_whole)
        account_tokens(exchange);
    if (is_whole && exchange->is_events)
        note_times(exchange);
    if (usage->prompt_tokens + usage->answer_tokens > 0)
        exchange->used = usage->prompt_tokens + usage->answer_tokens;
    account_log(exchange, exchange->code, is_whole ? "answered" : "cut");
    step(exchange, (struct gateway_event){.kind = GATEWAY_ENDED,
                                          .end = how,
                                          .report = *report,
                                          .prompt_tokens = usage->prompt_tokens,
                                          .answer_tokens = usage->answer_tokens});
}

/* ---- the answer ---- */

static void
on_writable(struct http_request *request)
{
    struct exchange *exchange = http_request_user(request);
    if (exchange->call != NULL)
        http_call_resume(exchange->call);
}

static void
on_head(void *context, struct http_call *call)
{
    struct exchange *exchange = context;
    int code = http_call_code(call);
    bool is_absent = code == 404 && (exchange->is_routed || exchange->tries > 1);
    if (code == 429 || code == 503 || is_absent) {
        exchange->call = NULL;
        http_call_cancel(call);
        forward_try_failed(exchange, is_absent ? GATEWAY_FAILED_ABSENT : GATEWAY_FAILED_BUSY);
        return;
    }
    const char *type = http_call_header(call, "Content-Type");
    exchange->code = code;
    int64_t length = http_call_length(call);
    exchange->is_events = type != NULL && strncasecmp(type, "text/event-stream", 17) == 0 &&
                          http_call_header(call, "Content-Encoding") == NULL;
    exchange->line_ends = EVENT_LINE_ENDS;
    exchange->pieces = 0;
    exchange->tail.used = 0;
    exchange->is_held = length >= 0 && length <= HELD_BYTES_MAX;
    if (exchange->is_held)
        return;
    struct http_header headers[HEADERS_MAX];
    size_t count = answer_headers(exchange, call, headers);
    start(exchange, call);
    if (http_call_has_sent(call))
        exchange_forget_body(exchange);
    http_answer_begin(exchange->request, code, headers, count, on_writable);
}

/* Counts the line ends that the client has seen last: two end an event. */
static void
note_line_ends(struct exchange *exchange, const char *data, size_t bytes)
{
    uint32_t ends = 0;
    size_t left = bytes;
    for (; left > 0 && ends < EVENT_LINE_ENDS; left--) {
        if (data[left - 1] != '\n' && data[left - 1] != '\r')
            break;
        ends += data[left - 1] == '\n';
    }
    exchange->line_ends = left == 0 ? exchange->line_ends + ends : ends;
    if (exchange->line_ends > EVENT_LINE_ENDS)
        exchange->line_ends = EVENT_LINE_ENDS;
}

static void
on_piece(void *context, struct http_call *call, const void *data, size_t bytes)
{
    struct exchange *exchange = context;
    usage_feed(&exchange->tail, data, bytes);
    if (exchange->is_held) {
        bytes_put(&exchange->held, data, bytes);
        return;
    }
    note_line_ends(exchange, data, bytes);
    exchange->pieces++;
    exchange->used++; /* a piece is about a token, until the server says */
    struct http_piece piece = {.data = data, .bytes = bytes};
    bool is_first_of_many = bytes <= SMALL_BYTES && http_call_has_more(call);
    enum http_flow flow =
        (is_first_of_many ? http_answer_append : http_answer_write)(exchange->request, &piece);
    if (flow == HTTP_WAIT) {
        exchange->proxy->counters[PROXY_PAUSED]++;
        http_call_pause(call);
    }
}

/* The answer that the client sees breaks off. After a whole event one more says so; else the
 * framing does: behind half an event it would be taken for the other half. */
static void
cut_short(struct exchange *exchange, enum gateway_end how)
{
    static const char event[] =
        "data: {\"error\":{\"message\":\"the model server broke off its answer\","
        "\"type\":\"InternalServerError\",\"param\":null,\"code\":502}}\n\n";
    struct http_request *request = exchange->request;
    struct http_piece piece = {.data = event, .bytes = sizeof(event) - 1};
    bool may_say = exchange->is_events && exchange->line_ends == EVENT_LINE_ENDS;
    forward_ended(exchange, how, &forward_no_report);
    exchange_free(exchange);
    if (!may_say) {
        http_answer_abort(request);
        return;
    }
    (void)http_answer_write(request, &piece);
    http_answer_end(request);
}

static void
answer_whole(struct exchange *exchange, struct http_call *call)
{
    struct http_request *request = exchange->request;
    struct http_header headers[HEADERS_MAX];
    int code = http_call_code(call);
    if (!exchange->is_held) {
        forward_ended(exchange, GATEWAY_END_OK, &forward_no_report);
        exchange_free(exchange);
        http_answer_end(request);
        return;
    }
    start(exchange, call);
    forward_ended(exchange, GATEWAY_END_OK, &forward_no_report);
    size_t count = answer_headers(exchange, call, headers);
    struct http_piece piece = {.data = exchange->held.data, .bytes = exchange->held.used};
    char id[REQUEST_ID_BYTES]; /* the exchange's may be another's when the answer is written */
    memcpy(id, exchange->id, sizeof(id));
    headers[0].value = id;
    struct bytes held = exchange->held;
    exchange->held = (struct bytes){0};
    exchange_free(exchange);
    http_answer(request, code, headers, count, &piece, 1);
    bytes_fini(&held);
}

static void call_start(struct exchange *exchange);

static void
on_end(void *context, struct http_call *call, enum http_call_end how)
{
    struct exchange *exchange = context;
    exchange->call = NULL;
    if (how == HTTP_CALL_DONE) {
        answer_whole(exchange, call);
    } else if (exchange->state == EXCHANGE_STARTED) {
        cut_short(exchange, how == HTTP_CALL_LATE ? GATEWAY_END_LATE : GATEWAY_END_BROKE);
    } else if (how == HTTP_CALL_STALE) { /* says nothing about the server; each uses up one */
        exchange->proxy->counters[PROXY_STALE]++;
        call_start(exchange);
    } else {
        forward_try_failed(exchange, how == HTTP_CALL_REFUSED ? GATEWAY_FAILED_UNREACHABLE
                                     : how == HTTP_CALL_LATE  ? GATEWAY_FAILED_LATE
                                                              : GATEWAY_FAILED_BROKE);
    }
}

/* ---- the call ---- */

static void
call_start(struct exchange *exchange)
{
    static const struct http_call_handler handler = {on_head, on_piece, on_end};
    const struct gateway_settings *settings = exchange->proxy->settings;
    struct http_header headers[HEADERS_MAX];
    const char *query = http_request_query(exchange->request);
    struct bytes path = {0};
    bytes_put_text(&path, exchange->routed_path != NULL ? exchange->routed_path
                                                        : http_request_path(exchange->request));
    if (*query != '\0')
        bytes_put_char(&path, '?');
    bytes_put(&path, query, strlen(query) + 1);
    CHECK(!path.failed);
    int64_t left_ns = settings->total_timeout_ms * NS_PER_MS + exchange->began_ns - clock_now_ns();
    struct http_call_request call = {
        .method = "POST",
        .path = path.data,
        .headers = headers,
        .header_count = forward_request_headers(exchange, headers, 0),
        .body = exchange->body,
        .body_bytes = exchange->body_bytes,
        .timeouts = {.connect_ns = settings->connect_timeout_ms * NS_PER_MS,
                     .first_byte_ns = settings->first_byte_timeout_ms * NS_PER_MS,
                     .idle_ns = settings->idle_timeout_ms * NS_PER_MS,
                     .total_ns = left_ns > 1 ? left_ns : 1},
    };
    exchange->call = http_call_start(exchange->target, &call, &handler, exchange);
    bytes_fini(&path);
}

void
forward_send_to(struct exchange *exchange, const struct endpoint_send *send)
{
    exchange->target = send->target;
    exchange_rewrite(exchange, send->model);
    call_start(exchange);
}

void
forward_on_refuse(void *context, uint32_t number, enum gateway_refusal refusal)
{
    struct llm_proxy *proxy = context;
    struct exchange *exchange = &proxy->exchanges[number];
    struct http_request *request = exchange->request;
    char id[REQUEST_ID_BYTES];
    memcpy(id, exchange->id, sizeof(id));
    struct openai_error error = openai_error_of(refusal);
    error.request_id = id;
    proxy->counters[error.code == 404 ? PROXY_INVALID : PROXY_UNAVAILABLE]++;
    account_log(exchange, error.code, "refused");
    exchange_free(exchange);
    answer_refuse(request, &error);
}
