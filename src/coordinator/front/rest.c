/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/front/rest_call.h"
#include "coordinator/front/rest_reader.h"
#include "coordinator/front/rest_route.h"
#include "coordinator/telemetry/trace_call.h"

enum { RETRY_MS = 1000 }; /* when a large body may be read */

/* One request, while it is looked at. */
struct inquiry {
    struct rest *rest;
    struct http_request *request;
    struct rest_route route;
    struct trace *trace; /* NULL: it is not traced, or not the inquiry's any more */
    struct error error;
    int code;          /* of a refusal, where HTTP has a better one than the status */
    uint32_t retry_ms; /* of a refusal */
};

/* ---- what headers say ---- */

static enum status
unsupported(struct inquiry *inquiry, const char *header, const char *value, const char *taken)
{
    inquiry->code = 415;
    return error_set(&inquiry->error, STATUS_INVALID_ARGUMENT, "%s \"%.100s\" is not taken: %s",
                     header, value, taken);
}

/* JSON by any of the names that common clients give it, unless they are told. */
static enum status
check_content(struct inquiry *inquiry)
{
    const char *type = http_request_header(inquiry->request, "Content-Type");
    const char *encoding = http_request_header(inquiry->request, "Content-Encoding");
    if (encoding != NULL && strcasecmp(encoding, "identity") != 0)
        return unsupported(inquiry, "Content-Encoding", encoding, "send the body as it is");
    if (type == NULL)
        return STATUS_OK;
    size_t bytes = strcspn(type, "; \t");
    static const char *const taken[] = {"application/json", "application/octet-stream",
                                        "application/x-www-form-urlencoded"};
    for (size_t i = 0; i < ARRAY_COUNT(taken); i++)
        if (bytes == strlen(taken[i]) && strncasecmp(type, taken[i], bytes) == 0)
            return STATUS_OK;
    return unsupported(inquiry, "Content-Type", type,
                       "application/json is, and application/octet-stream with binary data");
}

/* Where the JSON ends; all of the body without the header. */
static enum status
json_bytes(struct inquiry *inquiry, size_t body_bytes, size_t *bytes)
{
    static const char name[] = "Inference-Header-Content-Length";
    const char *text = http_request_header(inquiry->request, name);
    *bytes = body_bytes;
    if (text == NULL)
        return STATUS_OK;
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || number > body_bytes)
        return error_set(&inquiry->error, STATUS_INVALID_ARGUMENT,
                         "%s \"%.40s\": must be the bytes of JSON, at most those of the body, %zu",
                         name, text, body_bytes);
    *bytes = (size_t)number;
    return STATUS_OK;
}

/* `Grpc-Timeout`, as gRPC writes deadlines and gateways to it take them: 8 digits at most and a
 * unit. */
static enum status
header_deadline(struct inquiry *inquiry, int64_t *deadline_ns)
{
    static const char units[] = "HMSmun";
    static const int64_t unit_ns[] = {3600 * NS_PER_S, 60 * NS_PER_S, NS_PER_S,
                                      NS_PER_MS,       NS_PER_US,     1};
    const char *text = http_request_header(inquiry->request, "Grpc-Timeout");
    int64_t timeout_ns;
    *deadline_ns = TIME_NEVER_NS;
    if (text == NULL)
        return STATUS_OK;
    size_t digits = strspn(text, "0123456789");
    const char *unit = digits > 0 && text[digits] != '\0' ? strchr(units, text[digits]) : NULL;
    if (unit == NULL || digits > 8 || text[digits + 1] != '\0')
        return error_set(&inquiry->error, STATUS_INVALID_ARGUMENT,
                         "Grpc-Timeout \"%.40s\": must be 1 to 8 digits and one of H M S m u n",
                         text);
    if (__builtin_mul_overflow(strtoll(text, NULL, 10), unit_ns[unit - units], &timeout_ns) ||
        __builtin_add_overflow(clock_now_ns(), timeout_ns, deadline_ns))
        *deadline_ns = TIME_NEVER_NS; /* thousands of years */
    return STATUS_OK;
}

/* ---- inference ---- */

static enum status
read_body(struct inquiry *inquiry, struct oip_json **json)
{
    struct oip_json_ask ask = {
        .model = inquiry->route.model,
        .version = inquiry->route.version,
        .message_bytes_max = inquiry->rest->options.config->message_bytes_max,
    };
    const void *body = http_request_body(inquiry->request, &ask.body_bytes);
    ask.body = body != NULL ? body : "";
    enum status status = json_bytes(inquiry, ask.body_bytes, &ask.json_bytes);
    if (status == STATUS_OK)
        status = oip_json_read(&ask, json, &inquiry->error);
    if (status == STATUS_OUT_OF_RANGE)
        inquiry->code = 413;
    return status;
}

static enum status
stopping(struct inquiry *inquiry)
{
    return error_set(&inquiry->error, STATUS_UNAVAILABLE, "this node is about to stop");
}

/* `json` is used up in every case. */
static enum status
submit(struct inquiry *inquiry, struct oip_json *json)
{
    struct rest *rest = inquiry->rest;
    int64_t deadline_ns;
    enum status status = header_deadline(inquiry, &deadline_ns);
    if (status != STATUS_OK) {
        oip_json_destroy(json);
        return status;
    }
    struct rest_call *call = rest_call_create(rest, inquiry->request, REST_INFER, json);
    if (call == NULL)
        return stopping(inquiry);
    struct inbound inbound = rest_call_inbound(call, oip_json_elements(json), deadline_ns);
    inbound.decoded = oip_json_take_request(json);
    inbound.trace = inquiry->trace;
    struct submission submission = dispatch_submission(&inbound, &rest->builder);
    submission_shorten(&submission, oip_json_timeout_ns(json));
    inbound.deadline_ns = submission.deadline_ns; /* wherever it goes */
    status = dispatch_infer(&rest->dispatch, &inbound, NULL, &submission, &inquiry->error);
    oip_request_destroy(submission.decoded); /* unless it was taken */
    inquiry->retry_ms = submission.retry_ms;
    inquiry->trace = submission.trace;
    if (status == STATUS_OK)
        /* the call is still there: its answer has to come by this thread */
        rest_call_taken(call, submission.deadline_ns);
    else
        rest_call_refused(call);
    return status;
}

/* A call whose body is read by the reader: in the meantime nothing else knows of it. */
struct rest_reading {
    struct inquiry inquiry;
    struct oip_json *json;
    enum status status; /* of reading */
};

static void refuse_infer(struct inquiry *inquiry);

static void
reading_free(struct rest_reading *reading)
{
    rest_one_answered(reading->inquiry.rest);
    free(reading);
}

/* Back on the HTTP thread. */
static void
on_read(void *context)
{
    struct rest_reading *reading = context;
    struct inquiry *inquiry = &reading->inquiry;
    enum status status = reading->status;
    if (status == STATUS_OK && http_request_is_gone(inquiry->request)) {
        oip_json_destroy(reading->json);
        status = error_set(&inquiry->error, STATUS_CANCELLED, "the client has gone");
    } else if (status == STATUS_OK) {
        status = submit(inquiry, reading->json);
    }
    if (status != STATUS_OK)
        refuse_infer(inquiry);
    reading_free(reading);
}

static void
read_apart(void *context)
{
    struct rest_reading *reading = context;
    reading->status = read_body(&reading->inquiry, &reading->json);
    http_thread_post(reading->inquiry.rest->thread, on_read, reading);
}

/* STATUS_OK: on_read will come. */
static enum status
begin_reading(struct inquiry *inquiry)
{
    struct rest *rest = inquiry->rest;
    if (!rest_one_more(rest))
        return stopping(inquiry);
    struct rest_reading *reading = calloc(1, sizeof(*reading));
    CHECK(reading != NULL);
    reading->inquiry.rest = rest;
    reading->inquiry.request = inquiry->request;
    reading->inquiry.trace = inquiry->trace;
    rest_route(&reading->inquiry.route, http_request_path_encoded(inquiry->request));
    counter_add_shared(rest->options.counters, NODE_HTTP_LARGE_BODIES, 1);
    if (rest_reader_push(rest->reader, read_apart, reading))
        return STATUS_OK;
    reading_free(reading);
    counter_add_shared(rest->options.counters, NODE_HTTP_LARGE_REFUSED, 1);
    inquiry->retry_ms = RETRY_MS;
    return error_set(&inquiry->error, STATUS_RESOURCE_EXHAUSTED,
                     "too many large bodies wait to be read");
}

static enum status
read_and_submit(struct inquiry *inquiry)
{
    struct oip_json *json = NULL;
    size_t bytes;
    enum status status = check_content(inquiry);
    if (status != STATUS_OK)
        return status;
    (void)http_request_body(inquiry->request, &bytes);
    if (bytes > inquiry->rest->options.config->http_limits.large_bytes)
        return begin_reading(inquiry);
    status = read_body(inquiry, &json);
    return status == STATUS_OK ? submit(inquiry, json) : status;
}

static void
infer(struct inquiry *inquiry)
{
    static const struct trace_origin origin = {
        "POST /v2/models/{model}/infer",
        {{"http.request.method", "POST"}, {"http.route", "/v2/models/{model}/infer"}}};
    struct tracer *tracer = inquiry->rest->options.tracer;
    if (tracer != NULL)
        inquiry->trace =
            trace_text_begin(tracer, &origin, http_request_header(inquiry->request, "traceparent"),
                             http_request_header(inquiry->request, "tracestate"));
    if (inquiry->trace != NULL)
        trace_copy_text(inquiry->trace->model, sizeof(inquiry->trace->model), inquiry->route.model);
    if (read_and_submit(inquiry) != STATUS_OK)
        refuse_infer(inquiry);
}

/* ---- the small answers ---- */

static bool
is_ready(struct rest *rest)
{
    pthread_mutex_lock(&rest->lock);
    bool ready = rest->node_ready;
    pthread_mutex_unlock(&rest->lock);
    return ready;
}

static void
answer_health(struct inquiry *inquiry)
{
    /* For readiness the protocol's text has the key `live`, and its servers have `ready`. */
    bool asks_live = inquiry->route.what == REST_LIVE;
    bool good = asks_live || is_ready(inquiry->rest);
    struct bytes json = {0};
    bytes_put_text(&json, asks_live ? "{\"live\":true}"
                          : good    ? "{\"live\":true,\"ready\":true}"
                                    : "{\"live\":false,\"ready\":false}");
    rest_answer(inquiry->request, good ? 200 : 503, &json, NULL);
}

/* As the gRPC call that asks the same. */
static enum status
answer_model(struct inquiry *inquiry)
{
    struct rest *rest = inquiry->rest;
    bool asks_ready = inquiry->route.what == REST_MODEL_READY;
    struct bytes named = {0};
    struct dispatch_told told;
    int64_t deadline_ns;
    enum status status = header_deadline(inquiry, &deadline_ns);
    if (status != STATUS_OK)
        return status;
    struct rest_call *call = rest_call_create(rest, inquiry->request, inquiry->route.what, NULL);
    if (call == NULL)
        return stopping(inquiry);
    oip_json_put_named(&named, inquiry->route.model, inquiry->route.version);
    CHECK(!named.failed); /* it is shorter than the path */
    const struct wire_span span = {named.data, named.used};
    const struct wire_message message = {&span, named.used > 0, named.used};
    struct inbound inbound = rest_call_inbound(call, &message, deadline_ns);
    const struct dispatch_question question = {asks_ready ? OIP_MODEL_READY : OIP_MODEL_METADATA,
                                               is_ready(rest)};
    status = dispatch_ask(&rest->dispatch, &inbound, &question, &told, &inquiry->error);
    bytes_fini(&named);
    if (status != STATUS_OK)
        rest_call_refused(call);
    else if (told.is_elsewhere)
        rest_call_taken(call, deadline_ns);
    else
        rest_call_told(call, told.response, told.response_bytes);
    return status;
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
        oip_json_put_server(&json);
        rest_answer(inquiry->request, 200, &json, NULL);
        return STATUS_OK;
    case REST_MODEL:
    case REST_MODEL_READY: return answer_model(inquiry);
    case REST_INFER: infer(inquiry); return STATUS_OK;
    }
    return error_set(&inquiry->error, STATUS_NOT_FOUND,
                     "no such path; there are /v2, /v2/health/live, /v2/health/ready and "
                     "/v2/models/NAME[/versions/VERSION][/ready|/infer]");
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
notify_error(const struct inquiry *inquiry)
{
    rest_answer_error(inquiry->request,
                      inquiry->code != 0 ? inquiry->code : rest_code(inquiry->error.status),
                      inquiry->error.text, inquiry->retry_ms);
}

static void
refuse(struct inquiry *inquiry)
{
    counter_add_shared(inquiry->rest->options.counters, NODE_CALLS_REFUSED, 1);
    notify_error(inquiry);
}

static void
refuse_infer(struct inquiry *inquiry)
{
    size_t bytes;
    (void)http_request_body(inquiry->request, &bytes);
    dispatch_refused(&inquiry->rest->dispatch, INBOUND_INFER, bytes, inquiry->trace,
                     &inquiry->error);
    notify_error(inquiry);
}

static void
on_request(void *context, struct http_request *request)
{
    struct rest *rest = context;
    struct inquiry inquiry = {.rest = rest, .request = request};
    counter_add_shared(rest->options.counters, NODE_CALLS, 1);
    if (rest_guard_check(&rest->guard, http_request_place(request),
                         http_request_header(request, "Host"),
                         http_request_header(request, "Origin"), &inquiry.error) != STATUS_OK) {
        refuse(&inquiry);
        return;
    }
    rest_route(&inquiry.route, http_request_path_encoded(request));
    const char *allowed = inquiry.route.what == REST_NOWHERE
                              ? NULL
                              : rest_route_allows(inquiry.route.what, http_request_method(request));
    if (allowed != NULL) {
        counter_add_shared(rest->options.counters, NODE_CALLS_REFUSED, 1);
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
rest_create(const struct rest_options *options, struct http_thread *thread)
{
    const struct config *config = options->config;
    struct rest *rest = calloc(1, sizeof(*rest));
    CHECK(rest != NULL);
    rest->options = *options;
    rest->dispatch = dispatch_of(&(struct dispatch_options){
        .config = config,
        .pipelines = options->pipelines,
        .pipeline_count = options->pipeline_count,
        .registry = options->registry,
        .mesh = options->mesh,
        .counters = options->counters,
        .share_key = options->share_key,
    });
    rest->thread = thread;
    rest_guard_init(&rest->guard, config->http_hosts);
    CHECK(pthread_mutex_init(&rest->lock, NULL) == 0);
    CHECK(pthread_cond_init(&rest->all_answered, NULL) == 0);
    rest->reader = rest_reader_create(config->http_limits.large_waiting_max);
    return rest;
}

struct http_service
rest_service(struct rest *rest)
{
    return (struct http_service){
        .on_request = on_request,
        .on_gone = on_gone,
        .context = rest,
        .body_bytes_max = rest->options.config->message_bytes_max,
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
