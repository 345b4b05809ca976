/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/trace_json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/number_text.h"

/* Values of the protocol's enums. */
enum { SPAN_KIND_INTERNAL = 1, SPAN_KIND_SERVER = 2, STATUS_CODE_ERROR = 2 };

struct trace_export {
    struct bytes text;
    struct json json;
    uint32_t span_count;
};

/* ---- pieces ---- */

/* 64-bit integers are texts in the JSON form of protobuf. */
static void
field_number(struct json *json, const char *name, int64_t number)
{
    char text[NUMBER_ROOM];
    number_text_int(text, number);
    json_field_string(json, name, text);
}

static void
field_id(struct json *json, const char *name, const uint8_t *bytes, size_t count)
{
    char text[2 * TRACE_ID_BYTES + 1];
    CHECK(2 * count < sizeof(text));
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    json_field_string(json, name, text);
}

static void
attribute_text(struct json *json, const char *key, const char *text)
{
    json_open(json, '{');
    json_field_string(json, "key", key);
    json_field_open(json, "value", '{');
    json_field_string(json, "stringValue", text);
    json_close(json, '}');
    json_close(json, '}');
}

static void
attribute_number(struct json *json, const char *key, int64_t number)
{
    json_open(json, '{');
    json_field_string(json, "key", key);
    json_field_open(json, "value", '{');
    field_number(json, "intValue", number);
    json_close(json, '}');
    json_close(json, '}');
}

/* ---- spans ---- */

struct span {
    const uint8_t *trace_id;
    const uint8_t *span_id;
    const uint8_t *parent_id; /* NULL: none */
    const char *state;        /* "": none */
    const char *name;
    int kind;
    int64_t start_ns; /* Unix time */
    int64_t end_ns;
};

/* Up to its attributes, which follow. */
static void
span_begin(struct json *json, const struct span *span)
{
    json_open(json, '{');
    field_id(json, "traceId", span->trace_id, TRACE_ID_BYTES);
    field_id(json, "spanId", span->span_id, SPAN_ID_BYTES);
    if (span->parent_id != NULL)
        field_id(json, "parentSpanId", span->parent_id, SPAN_ID_BYTES);
    if (span->state[0] != '\0')
        json_field_string(json, "traceState", span->state);
    json_field_string(json, "name", span->name);
    json_field_int(json, "kind", span->kind);
    field_number(json, "startTimeUnixNano", span->start_ns);
    field_number(json, "endTimeUnixNano", span->end_ns);
    json_field_open(json, "attributes", '[');
}

/* `message` NULL: it did not fail. */
static void
span_end(struct json *json, const char *message)
{
    if (message != NULL) {
        json_field_open(json, "status", '{');
        json_field_int(json, "code", STATUS_CODE_ERROR);
        json_field_string(json, "message", message);
        json_close(json, '}');
    }
    json_close(json, '}');
}

static const char *
failure_text(const struct trace *trace)
{
    return trace->text[0] != '\0' ? trace->text : status_name(trace->status);
}

static void
request_span(struct json *json, const struct trace *trace, const struct span *span)
{
    span_begin(json, span);
    for (uint32_t i = 0; i < TRACE_ATTRIBUTES_MAX; i++)
        if (trace->origin->attributes[i].key != NULL)
            attribute_text(json, trace->origin->attributes[i].key,
                           trace->origin->attributes[i].value);
    attribute_number(json, "rpc.grpc.status_code", trace->status);
    if (trace->pipeline[0] != '\0')
        attribute_text(json, "shoal.pipeline", trace->pipeline);
    if (trace->admitted) {
        attribute_number(json, "shoal.generation", (int64_t)trace->generation);
        attribute_number(json, "shoal.worker.deaths", trace->deaths);
    }
    json_close(json, ']');
    span_end(json, trace->status != STATUS_OK ? failure_text(trace) : NULL);
}

static void
run_event(struct json *json, int64_t at_ns)
{
    json_field_open(json, "events", '[');
    json_open(json, '{');
    field_number(json, "timeUnixNano", at_ns);
    json_field_string(json, "name", "run");
    json_close(json, '}');
    json_close(json, ']');
}

/* Returns whether and how the request failed in this span. */
static const char *
run_failure(const struct trace *trace, const struct trace_run *run)
{
    if (run->lost)
        return "the worker died";
    if (trace->status != STATUS_OK && trace->failed_stage == (int)run->stage)
        return failure_text(trace);
    return run->unfinished ? "not finished when the request was answered" : NULL;
}

static void
run_span(struct json *json, const struct trace *trace, const struct trace_run *run,
         const struct span *span, int64_t offset_ns)
{
    span_begin(json, span);
    attribute_text(json, "shoal.stage", trace->stages[run->stage].name);
    attribute_number(json, "shoal.stage.index", run->stage);
    attribute_number(json, "shoal.attempt", run->attempt);
    if (run->has_worker)
        attribute_number(json, "shoal.worker.index", run->worker);
    if (run->pid != 0)
        attribute_number(json, "shoal.worker.pid", run->pid);
    if (run->batch_items != 0)
        attribute_number(json, "shoal.batch.size", run->batch_items);
    attribute_number(json, "shoal.queue_ns", run->began_ns - run->enqueued_ns);
    attribute_number(json, "shoal.run_ns", run->ended_ns - run->began_ns);
    json_close(json, ']');
    if (run->was_run)
        run_event(json, run->began_ns + offset_ns);
    span_end(json, run_failure(trace, run));
}

/* ---- an export ---- */

struct trace_export *
trace_export_create(const struct trace_resource *resource)
{
    struct trace_export *export = calloc(1, sizeof(*export));
    CHECK(export != NULL);
    export->json = json_begin(&export->text, JSON_STYLE_ANY);
    struct json *json = &export->json;
    json_open(json, '{');
    json_field_open(json, "resourceSpans", '[');
    json_open(json, '{');
    json_field_open(json, "resource", '{');
    json_field_open(json, "attributes", '[');
    attribute_text(json, "service.name", resource->service_name);
    attribute_text(json, "service.version", resource->service_version);
    if (resource->host_name[0] != '\0')
        attribute_text(json, "host.name", resource->host_name);
    attribute_number(json, "process.pid", resource->pid);
    json_close(json, ']');
    json_close(json, '}');
    json_field_open(json, "scopeSpans", '[');
    json_open(json, '{');
    json_field_open(json, "scope", '{');
    json_field_string(json, "name", "shoal");
    json_close(json, '}');
    json_field_open(json, "spans", '[');
    return export;
}

/* All zeros is no id. */
static void
copy_id(uint8_t *to, const uint8_t *from, size_t bytes)
{
    uint8_t any = 0;
    memcpy(to, from, bytes);
    for (size_t i = 0; i < bytes; i++)
        any |= to[i];
    if (any == 0)
        to[bytes - 1] = 1;
}

uint32_t
trace_export_add(struct trace_export *export, const struct trace *trace,
                 const struct trace_ids *ids, int64_t offset_ns)
{
    uint8_t trace_id[TRACE_ID_BYTES];
    uint8_t span_ids[TRACE_SPANS_MAX][SPAN_ID_BYTES];
    struct trace_run runs[STAMPS_MAX];
    bool remote = trace->has_parent;
    uint32_t count = trace_make_runs(trace, runs);
    copy_id(trace_id, remote ? trace->context.parent.trace_id : ids->trace_id, TRACE_ID_BYTES);
    for (uint32_t i = 0; i <= count; i++)
        copy_id(span_ids[i], ids->span_ids[i], SPAN_ID_BYTES);
    struct span span = {
        .trace_id = trace_id,
        .span_id = span_ids[0],
        .parent_id = remote ? trace->context.parent.span_id : NULL,
        .state = remote ? trace->context.state.text : "",
        .name = trace->origin->span_name,
        .kind = SPAN_KIND_SERVER,
        .start_ns = trace->began_ns + offset_ns,
        .end_ns = trace->ended_ns + offset_ns,
    };
    request_span(&export->json, trace, &span);
    span.parent_id = span_ids[0];
    span.kind = SPAN_KIND_INTERNAL;
    for (uint32_t i = 0; i < count; i++) {
        char name[TRACE_NAME_BYTES + 8];
        snprintf(name, sizeof(name), "stage %s", trace->stages[runs[i].stage].name);
        span.span_id = span_ids[1 + i];
        span.name = name;
        span.start_ns = runs[i].enqueued_ns + offset_ns;
        span.end_ns = runs[i].ended_ns + offset_ns;
        run_span(&export->json, trace, &runs[i], &span, offset_ns);
    }
    export->span_count += 1 + count;
    return 1 + count;
}

char *
trace_export_finish(struct trace_export *export, size_t *bytes)
{
    static const char ends[] = "]}]}]}"; /* of spans and what they are in; terminated */
    char *text = NULL;
    *bytes = 0;
    if (export->span_count > 0) {
        bytes_put(&export->text, ends, sizeof(ends));
        CHECK(!export->text.failed);
        text = bytes_take(&export->text, bytes);
        *bytes -= 1;
    }
    bytes_fini(&export->text);
    free(export);
    return text;
}

uint64_t
trace_answer_rejected(const char *text, size_t bytes)
{
    json_t *answer = json_loadb(text, bytes, 0, NULL);
    json_t *rejected = json_object_get(json_object_get(answer, "partialSuccess"), "rejectedSpans");
    uint64_t count = 0;
    if (json_is_string(rejected))
        count = strtoull(json_string_value(rejected), NULL, 10);
    else if (json_is_integer(rejected) && json_integer_value(rejected) > 0)
        count = (uint64_t)json_integer_value(rejected);
    json_decref(answer);
    return count;
}
