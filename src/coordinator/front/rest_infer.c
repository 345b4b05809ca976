/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inference over REST: the body, in the form of v2, of KServe's v1 or of Triton's generate,
 * compressed or not, becomes a request, which is submitted as one of gRPC is.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/front/rest_inquiry.h"
#include "coordinator/front/rest_reader.h"
#include "coordinator/front/rest_stream.h"
#include "coordinator/models/target.h"
#include "coordinator/telemetry/trace_call.h"
#include "rpc/spans.h"

enum { RETRY_MS = 1000 }; /* when a large body may be read */

/* ---- what headers say ---- */

static enum status
unsupported(struct inquiry *inquiry, const char *header, const char *value, const char *taken)
{
    inquiry->code = 415;
    return error_set(&inquiry->error, STATUS_INVALID_ARGUMENT, "%s \"%.100s\" is not taken: %s",
                     header, value, taken);
}

/* Accepts JSON under any of the names that common clients give it. */
static enum status
check_content(struct inquiry *inquiry)
{
    const char *type = http_request_header(inquiry->request, "Content-Type");
    const char *encoding = http_request_header(inquiry->request, "Content-Encoding");
    inquiry->coding = http_coding_of(encoding);
    if (inquiry->coding == HTTP_CODING_UNKNOWN)
        return unsupported(inquiry, "Content-Encoding", encoding, "gzip and deflate are");
    const char *compression = inquiry->rest->node.config->compression;
    if (inquiry->coding != HTTP_CODING_NONE && compression != NULL &&
        strcmp(compression, "off") == 0)
        return unsupported(inquiry, "Content-Encoding", encoding, "`compression` is off");
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

/* Finds where the JSON ends: after all of the body if the header is absent. */
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
enum status
rest_deadline(struct inquiry *inquiry, int64_t *deadline_ns)
{
    static const char units[] = "HMSmun";
    static const int64_t unit_ns[] = {3600 * NS_PER_S, 60 * NS_PER_S, NS_PER_S,
                                      NS_PER_MS,       NS_PER_US,     1};
    const char *text = http_request_header(inquiry->request, "Grpc-Timeout");
    int64_t timeout_ns;
    *deadline_ns = inquiry->deadline_ns != 0 ? inquiry->deadline_ns : TIME_NEVER_NS;
    if (text == NULL || inquiry->deadline_ns != 0)
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

/* Decompresses the body, if it is compressed. OUT_OF_RANGE: it has more than `bytes_max` bytes. */
static enum status
inflate_body(struct inquiry *inquiry, size_t bytes_max)
{
    struct bytes body = {0};
    if (inquiry->coding == HTTP_CODING_NONE || inquiry->inflated.data != NULL)
        return STATUS_OK;
    body.data = (char *)(uintptr_t)http_request_body(inquiry->request, &body.used);
    enum status status =
        http_inflate(inquiry->coding, &body, bytes_max, &inquiry->inflated, &inquiry->error);
    if (status == STATUS_OUT_OF_RANGE)
        inquiry->code = 413;
    return status;
}

/* Returns whether the body cannot be read without knowing the model's inputs. */
static bool
needs_info(const struct inquiry *inquiry)
{
    return inquiry->route.what != REST_INFER;
}

/* The id whose tensors the body has. */
static void
find_id(const struct inquiry *inquiry, struct target_id *id)
{
    struct wire_span value;
    size_t position = 0;
    if (!rest_headers_find(inquiry->request, "mm-model-id", &position, &value) ||
        value.bytes > TARGET_ID_BYTES_MAX)
        value = (struct wire_span){inquiry->route.model, strlen(inquiry->route.model)};
    memcpy(id->text, value.data, value.bytes);
    id->text[value.bytes] = '\0';
}

static enum status
read_body_of(struct inquiry *inquiry, const struct oip_model_info *info,
             const struct oip_json_ask *ask, struct oip_json **json)
{
    struct oip_json_ask of_model = *ask;
    if (inquiry->route.what == REST_PREDICT)
        of_model.rows_of = info;
    else
        of_model.members_of = info;
    return oip_json_read(&of_model, json, &inquiry->error);
}

/* OK: call target_forget(reported). */
static enum status
find_info(struct inquiry *inquiry, const struct oip_named *named, struct oip_model_info *info,
          struct target_description *reported)
{
    const struct target_scope *scope = &inquiry->rest->dispatch.scope;
    bool is_ready;
    enum status status = target_describe(scope, named, info, &is_ready, reported, &inquiry->error);
    if (status != STATUS_OK || reported->model.model == NULL || info->input_count > 0)
        return status;
    status = model_ask_info(reported->model.model, &inquiry->error);
    target_forget(reported);
    if (status == STATUS_UNAVAILABLE)
        inquiry->retry_ms = RETRY_MS;
    if (status != STATUS_OK)
        return status;
    /* it declares none, or has become known meanwhile */
    return target_describe(scope, named, info, &is_ready, reported, &inquiry->error);
}

static enum status
read_by_info(struct inquiry *inquiry, const struct oip_json_ask *ask, struct oip_json **json)
{
    struct oip_model_info info = {0};
    struct target_description reported;
    struct target_id id;
    if (inquiry->schema != NULL)
        return read_body_of(inquiry, &inquiry->schema->info, ask, json);
    find_id(inquiry, &id);
    const struct oip_named named = {id.text, inquiry->route.version};
    enum status status = find_info(inquiry, &named, &info, &reported);
    if (status == STATUS_NOT_FOUND && inquiry->rest->dispatch.mesh != NULL) {
        /* is_elsewhere saw it here: it left while the body waited for the reader */
        inquiry->retry_ms = RETRY_MS;
        return error_set(&inquiry->error, STATUS_UNAVAILABLE,
                         "model \"%s\" has just left this node: try again", id.text);
    }
    if (status != STATUS_OK)
        return status;
    status = read_body_of(inquiry, &info, ask, json);
    target_forget(&reported);
    return status;
}

static enum status
read_body(struct inquiry *inquiry, struct oip_json **json)
{
    struct oip_json_ask ask = {
        .model = inquiry->route.model,
        .version = inquiry->route.version,
        .message_bytes_max = inquiry->rest->node.config->message_bytes_max,
    };
    const void *body = http_request_body(inquiry->request, &ask.body_bytes);
    if (inquiry->coding != HTTP_CODING_NONE) {
        body = inquiry->inflated.data;
        ask.body_bytes = inquiry->inflated.used;
    }
    ask.body = body != NULL ? body : "";
    enum status status = json_bytes(inquiry, ask.body_bytes, &ask.json_bytes);
    if (status == STATUS_OK)
        status = needs_info(inquiry) ? read_by_info(inquiry, &ask, json)
                                     : oip_json_read(&ask, json, &inquiry->error);
    if (status == STATUS_OUT_OF_RANGE)
        inquiry->code = 413;
    return status;
}

enum status
rest_stopping(struct inquiry *inquiry)
{
    return error_set(&inquiry->error, STATUS_UNAVAILABLE, "this node is about to stop");
}

/* Returns whether the answer is to come as events. INVALID_ARGUMENT: it cannot. */
static enum status
check_events(struct inquiry *inquiry, const struct oip_json *json, bool *events)
{
    *events = inquiry->route.what == REST_GENERATE_STREAM ||
              (inquiry->route.what == REST_INFER && rest_stream_is_wanted(inquiry->request));
    return !*events || oip_json_is_text(json)
               ? STATUS_OK
               : error_set(&inquiry->error, STATUS_INVALID_ARGUMENT,
                           "events have no room for binary data, which an output is asked for as");
}

/* `json` is used up in every case. */
static enum status
submit(struct inquiry *inquiry, struct oip_json *json)
{
    struct rest *rest = inquiry->rest;
    int64_t deadline_ns;
    bool events = false;
    enum status status = rest_deadline(inquiry, &deadline_ns);
    if (status == STATUS_OK)
        status = check_events(inquiry, json, &events);
    if (status != STATUS_OK) {
        oip_json_destroy(json);
        return status;
    }
    struct rest_call *call = rest_call_create(rest, inquiry->request, inquiry->route.what, json);
    if (call == NULL)
        return rest_stopping(inquiry);
    if (events)
        rest_stream_open(call);
    struct inbound inbound = rest_call_inbound(call, oip_json_elements(json), deadline_ns);
    inbound.decoded = oip_json_take_request(json);
    inbound.trace = inquiry->trace;
    struct submission submission = dispatch_submission(&inbound, &rest->builder);
    if (events)
        rest_stream_direct(call, &submission);
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

static void
refuse_infer(struct inquiry *inquiry)
{
    size_t bytes;
    (void)http_request_body(inquiry->request, &bytes);
    dispatch_refused(&inquiry->rest->dispatch, INBOUND_INFER, bytes, inquiry->trace,
                     &inquiry->error);
    rest_notify_error(inquiry);
}

/* A call whose body is read by the reader: in the meantime nothing else knows of it. */
struct rest_reading {
    struct inquiry inquiry;
    struct oip_json *json;
    enum status status; /* of reading */
};

static void
reading_free(struct rest_reading *reading)
{
    rest_one_answered(reading->inquiry.rest);
    free(reading->inquiry.schema);
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
    struct rest *rest = inquiry->rest;
    bytes_fini(&inquiry->inflated);
    rest_reader_taken(rest->reader);
    reading_free(reading);
}

static void
read_apart(void *context)
{
    struct rest_reading *reading = context;
    struct inquiry *inquiry = &reading->inquiry;
    reading->status = inflate_body(inquiry, inquiry->rest->node.config->message_bytes_max);
    if (reading->status == STATUS_OK)
        reading->status = read_body(inquiry, &reading->json);
    http_thread_post(reading->inquiry.rest->thread, on_read, reading);
}

/* STATUS_OK: on_read will come. */
static enum status
begin_reading(struct inquiry *inquiry)
{
    struct rest *rest = inquiry->rest;
    if (!rest_one_more(rest))
        return rest_stopping(inquiry);
    struct rest_reading *reading = calloc(1, sizeof(*reading));
    CHECK(reading != NULL);
    reading->inquiry.rest = rest;
    reading->inquiry.request = inquiry->request;
    reading->inquiry.trace = inquiry->trace;
    reading->inquiry.coding = inquiry->coding;
    reading->inquiry.schema = inquiry->schema;
    reading->inquiry.deadline_ns = inquiry->deadline_ns;
    rest_route(&reading->inquiry.route, http_request_path_encoded(inquiry->request));
    counter_add_shared(rest->node.counters, NODE_HTTP_LARGE_BODIES, 1);
    struct rest_job job = {.work = read_apart, .context = reading};
    (void)http_request_body(inquiry->request, &job.body_bytes);
    if (rest_reader_push(rest->reader, &job)) {
        inquiry->schema = NULL; /* the reading's */
        return STATUS_OK;
    }
    reading->inquiry.schema = NULL;
    reading_free(reading);
    counter_add_shared(rest->node.counters, NODE_HTTP_LARGE_REFUSED, 1);
    inquiry->retry_ms = RETRY_MS;
    return error_set(&inquiry->error, STATUS_RESOURCE_EXHAUSTED,
                     "too many large bodies wait to be read (http_large_waiting, "
                     "http_large_waiting_mib)");
}

/* Returns whether the body, or what it becomes, is for the reader. A compressed one is inflated
 * here as far as one that is not would be read here. */
static enum status
is_large(struct inquiry *inquiry, bool *large)
{
    size_t bytes;
    uint64_t bytes_max = inquiry->rest->node.config->http_limits.large_bytes;
    (void)http_request_body(inquiry->request, &bytes);
    *large = bytes > bytes_max;
    enum status status = *large ? STATUS_OK : inflate_body(inquiry, bytes_max);
    if (status != STATUS_OUT_OF_RANGE)
        return status;
    *large = true;
    error_clear(&inquiry->error);
    inquiry->code = 0;
    return STATUS_OK;
}

static enum status ask_schema(struct inquiry *inquiry);

/* Returns whether the mesh has to be asked for the model's inputs. */
static bool
is_elsewhere(const struct inquiry *inquiry)
{
    struct oip_model_info info = {0};
    struct target_description reported;
    struct target_id id;
    struct error ignored = ERROR_NONE;
    bool is_ready;
    if (!needs_info(inquiry) || inquiry->rest->dispatch.mesh == NULL || inquiry->schema != NULL)
        return false;
    find_id(inquiry, &id);
    const struct oip_named named = {id.text, inquiry->route.version};
    if (target_describe(&inquiry->rest->dispatch.scope, &named, &info, &is_ready, &reported,
                        &ignored) != STATUS_OK)
        return true;
    bool is_known = reported.model.model == NULL || info.input_count > 0;
    target_forget(&reported);
    return !is_known;
}

static enum status
read_and_submit(struct inquiry *inquiry)
{
    struct oip_json *json = NULL;
    bool large = false;
    enum status status = check_content(inquiry);
    if (status == STATUS_OK && is_elsewhere(inquiry))
        return ask_schema(inquiry);
    if (status == STATUS_OK)
        status = is_large(inquiry, &large);
    if (status != STATUS_OK)
        return status;
    if (large)
        return begin_reading(inquiry);
    status = read_body(inquiry, &json);
    return status == STATUS_OK ? submit(inquiry, json) : status;
}

static void
go_on(struct inquiry *inquiry, enum status status)
{
    if (status == STATUS_OK)
        status = read_and_submit(inquiry);
    if (status != STATUS_OK)
        refuse_infer(inquiry);
    bytes_fini(&inquiry->inflated);
    free(inquiry->schema);
}

/* The mesh has said what the model takes, or why it does not. */
static void
on_schema(struct rest_call *call)
{
    struct rest *rest = call->rest;
    struct inquiry inquiry = {.rest = rest,
                              .request = call->request,
                              .trace = call->trace,
                              .retry_ms = call->retry_ms,
                              .deadline_ns = call->deadline_ns};
    enum status status = call->status;
    if (call->request == NULL || call->gone) { /* answered as late, or gone */
        status = error_set(&inquiry.error, STATUS_CANCELLED, "the client has gone");
    } else if (status != STATUS_OK) {
        (void)error_set(&inquiry.error, status, "%s", call->copied.failed ? "" : call->copied.data);
    } else {
        struct rpc_spans spans;
        spans_of_pieces(&spans, call->pieces, call->piece_count);
        status = oip_read_schema(&spans.message, &inquiry.schema, &inquiry.error);
        spans_fini(&spans);
    }
    rest_call_free(call);
    if (inquiry.request == NULL) {
        dispatch_refused(&rest->dispatch, INBOUND_INFER, 0, inquiry.trace, &inquiry.error);
        return;
    }
    rest_route(&inquiry.route, http_request_path_encoded(inquiry.request));
    go_on(&inquiry, status);
}

/* STATUS_OK: on_schema has come, or will. */
static enum status
ask_schema(struct inquiry *inquiry)
{
    int64_t deadline_ns;
    enum status status = rest_deadline(inquiry, &deadline_ns);
    if (status != STATUS_OK)
        return status;
    struct rest_call *call = rest_call_create(inquiry->rest, inquiry->request, REST_MODEL, NULL);
    if (call == NULL)
        return rest_stopping(inquiry);
    call->reported = on_schema;
    call->trace = inquiry->trace;
    call->deadline_ns = deadline_ns;
    return rest_ask_model(inquiry, call, OIP_MODEL_METADATA, deadline_ns);
}

void
rest_infer(struct inquiry *inquiry)
{
#define ORIGIN(path)                                                                               \
    {                                                                                              \
        "POST " path,                                                                              \
        {                                                                                          \
            {"http.request.method", "POST"},                                                       \
            {                                                                                      \
                "http.route", path                                                                 \
            }                                                                                      \
        }                                                                                          \
    }
    static const struct trace_origin origins[] = {
        [REST_INFER] = ORIGIN("/v2/models/{model}/infer"),
        [REST_PREDICT] = ORIGIN("/v1/models/{model}:predict"),
        [REST_GENERATE] = ORIGIN("/v2/models/{model}/generate"),
        [REST_GENERATE_STREAM] = ORIGIN("/v2/models/{model}/generate_stream"),
    };
#undef ORIGIN
    const struct trace_origin *origin = &origins[inquiry->route.what];
    struct tracer *tracer = inquiry->rest->node.tracer;
    if (tracer != NULL)
        inquiry->trace =
            trace_text_begin(tracer, origin, http_request_header(inquiry->request, "traceparent"),
                             http_request_header(inquiry->request, "tracestate"));
    if (inquiry->trace != NULL)
        trace_copy_text(inquiry->trace->model, sizeof(inquiry->trace->model), inquiry->route.model);
    go_on(inquiry, STATUS_OK);
}
