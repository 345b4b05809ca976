/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/trace_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Values of the protocol's enums. */
enum { SPAN_KIND_INTERNAL = 1, SPAN_KIND_SERVER = 2, STATUS_CODE_ERROR = 2 };

struct trace_export {
    json_t *resource;
    json_t *spans;
};

/* ---- pieces ---- */

static void
put(json_t *object, const char *key, json_t *value)
{
    CHECK(json_object_set_new(object, key, value) == 0);
}

static void
append(json_t *array, json_t *value)
{
    CHECK(json_array_append_new(array, value) == 0);
}

/* Texts of modelets and callers may be any bytes; JSON is UTF-8. */
static json_t *
text_value(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char ascii[TRACE_TEXT_BYTES];
    size_t i = 0;
    for (; text[i] != '\0' && i + 1 < sizeof(ascii); i++)
        ascii[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    ascii[i] = '\0';
    return json_string(ascii);
}

/* 64-bit integers are texts in the JSON form of protobuf. */
static json_t *
number_text(int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    return json_string(text);
}

static json_t *
id_text(const uint8_t *bytes, size_t count)
{
    char text[2 * TRACE_ID_BYTES + 1];
    CHECK(2 * count < sizeof(text));
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_string(text);
}

static void
attribute(json_t *attributes, const char *key, const char *type, json_t *value)
{
    json_t *typed = json_object();
    put(typed, type, value);
    json_t *entry = json_object();
    put(entry, "key", json_string(key));
    put(entry, "value", typed);
    append(attributes, entry);
}

static void
attribute_text(json_t *attributes, const char *key, const char *text)
{
    attribute(attributes, key, "stringValue", text_value(text));
}

static void
attribute_number(json_t *attributes, const char *key, int64_t number)
{
    attribute(attributes, key, "intValue", number_text(number));
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

static json_t *
span_begin(const struct span *span)
{
    json_t *object = json_object();
    put(object, "traceId", id_text(span->trace_id, TRACE_ID_BYTES));
    put(object, "spanId", id_text(span->span_id, SPAN_ID_BYTES));
    if (span->parent_id != NULL)
        put(object, "parentSpanId", id_text(span->parent_id, SPAN_ID_BYTES));
    if (span->state[0] != '\0')
        put(object, "traceState", text_value(span->state));
    put(object, "name", text_value(span->name));
    put(object, "kind", json_integer(span->kind));
    put(object, "startTimeUnixNano", number_text(span->start_ns));
    put(object, "endTimeUnixNano", number_text(span->end_ns));
    return object;
}

static void
span_error(json_t *span, const char *message)
{
    json_t *status = json_object();
    put(status, "code", json_integer(STATUS_CODE_ERROR));
    put(status, "message", text_value(message));
    put(span, "status", status);
}

static json_t *
request_span(const struct trace *trace, const struct span *span)
{
    json_t *object = span_begin(span);
    json_t *attributes = json_array();
    for (uint32_t i = 0; i < TRACE_ATTRIBUTES_MAX; i++)
        if (trace->origin->attributes[i].key != NULL)
            attribute_text(attributes, trace->origin->attributes[i].key,
                           trace->origin->attributes[i].value);
    attribute_number(attributes, "rpc.grpc.status_code", trace->status);
    if (trace->pipeline[0] != '\0')
        attribute_text(attributes, "shoal.pipeline", trace->pipeline);
    if (trace->admitted) {
        attribute_number(attributes, "shoal.generation", (int64_t)trace->generation);
        attribute_number(attributes, "shoal.worker.deaths", trace->deaths);
    }
    put(object, "attributes", attributes);
    if (trace->status != STATUS_OK)
        span_error(object, trace->text[0] != '\0' ? trace->text : status_name(trace->status));
    return object;
}

static void
run_event(json_t *object, int64_t at_ns)
{
    json_t *event = json_object();
    put(event, "timeUnixNano", number_text(at_ns));
    put(event, "name", json_string("run"));
    json_t *events = json_array();
    append(events, event);
    put(object, "events", events);
}

/* Whether and how the request failed in this span. */
static const char *
run_failure(const struct trace *trace, const struct trace_run *run)
{
    if (run->lost)
        return "the worker died";
    if (trace->status != STATUS_OK && trace->failed_stage == (int)run->stage)
        return trace->text[0] != '\0' ? trace->text : status_name(trace->status);
    return run->unfinished ? "not finished when the request was answered" : NULL;
}

static json_t *
run_span(const struct trace *trace, const struct trace_run *run, const struct span *span,
         int64_t offset_ns)
{
    json_t *object = span_begin(span);
    json_t *attributes = json_array();
    attribute_text(attributes, "shoal.stage", trace->stages[run->stage].name);
    attribute_number(attributes, "shoal.stage.index", run->stage);
    attribute_number(attributes, "shoal.attempt", run->attempt);
    if (run->has_worker)
        attribute_number(attributes, "shoal.worker.index", run->worker);
    if (run->pid != 0)
        attribute_number(attributes, "shoal.worker.pid", run->pid);
    if (run->batch_items != 0)
        attribute_number(attributes, "shoal.batch.size", run->batch_items);
    attribute_number(attributes, "shoal.queue_ns", run->began_ns - run->enqueued_ns);
    attribute_number(attributes, "shoal.run_ns", run->ended_ns - run->began_ns);
    put(object, "attributes", attributes);
    if (run->was_run)
        run_event(object, run->began_ns + offset_ns);
    const char *failure = run_failure(trace, run);
    if (failure != NULL)
        span_error(object, failure);
    return object;
}

/* ---- an export ---- */

struct trace_export *
trace_export_create(const struct trace_resource *resource)
{
    struct trace_export *export = calloc(1, sizeof(*export));
    CHECK(export != NULL);
    json_t *attributes = json_array();
    attribute_text(attributes, "service.name", resource->service_name);
    attribute_text(attributes, "service.version", resource->service_version);
    if (resource->host_name[0] != '\0')
        attribute_text(attributes, "host.name", resource->host_name);
    attribute_number(attributes, "process.pid", resource->pid);
    export->resource = json_object();
    put(export->resource, "attributes", attributes);
    export->spans = json_array();
    CHECK(export->spans != NULL);
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
    uint32_t count = trace_settle(trace, runs);
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
    append(export->spans, request_span(trace, &span));
    span.parent_id = span_ids[0];
    span.kind = SPAN_KIND_INTERNAL;
    for (uint32_t i = 0; i < count; i++) {
        char name[TRACE_NAME_BYTES + 8];
        snprintf(name, sizeof(name), "stage %s", trace->stages[runs[i].stage].name);
        span.span_id = span_ids[1 + i];
        span.name = name;
        span.start_ns = runs[i].enqueued_ns + offset_ns;
        span.end_ns = runs[i].ended_ns + offset_ns;
        append(export->spans, run_span(trace, &runs[i], &span, offset_ns));
    }
    return 1 + count;
}

/* Puts the value into the object as the only element of an array. */
static void
put_listed(json_t *object, const char *key, json_t *value)
{
    json_t *array = json_array();
    append(array, value);
    put(object, key, array);
}

char *
trace_export_finish(struct trace_export *export, size_t *bytes)
{
    char *text = NULL;
    if (json_array_size(export->spans) > 0) {
        json_t *scope = json_object();
        put(scope, "name", json_string("shoal"));
        json_t *scoped = json_object();
        put(scoped, "scope", scope);
        put(scoped, "spans", json_incref(export->spans));
        json_t *whole = json_object();
        put(whole, "resource", json_incref(export->resource));
        put_listed(whole, "scopeSpans", scoped);
        json_t *request = json_object();
        put_listed(request, "resourceSpans", whole);
        text = json_dumps(request, JSON_COMPACT);
        CHECK(text != NULL);
        json_decref(request);
    }
    *bytes = text != NULL ? strlen(text) : 0;
    json_decref(export->spans);
    json_decref(export->resource);
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
