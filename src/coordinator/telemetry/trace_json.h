/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces as OTLP/JSON: an ExportTraceServiceRequest with one span per request and a child span for
 * each of its runs in a stage. Pure: ids and the distance between the clocks are arguments. A
 * failed allocation ends the program (CHECK).
 *
 *     struct trace_export *export = trace_export_create(&resource);
 *     spans += trace_export_add(export, trace, &ids, offset_ns);
 *     text = trace_export_finish(export, &bytes);
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "coordinator/telemetry/trace.h"

enum { TRACE_SPANS_MAX = 1 + STAMPS_MAX };

/* The process that writes the spans. */
struct trace_resource {
    const char *service_name;
    const char *service_version;
    const char *host_name; /* "": not known */
    int64_t pid;
};

/* Random bytes for all ids that one trace can need. Ids of zeros only are made valid. */
struct trace_ids {
    uint8_t trace_id[TRACE_ID_BYTES]; /* for a trace without a parent */
    uint8_t span_ids[TRACE_SPANS_MAX][SPAN_ID_BYTES];
};

struct trace_export;

struct trace_export *trace_export_create(const struct trace_resource *resource);

/* Returns the number of spans added. `offset_ns`: Unix time minus the monotonic clock. */
uint32_t trace_export_add(struct trace_export *export, const struct trace *trace,
                          const struct trace_ids *ids, int64_t offset_ns);

/* Returns one line without a newline, to be freed with free(); NULL if nothing was added. Frees the
 * export. */
char *trace_export_finish(struct trace_export *export, size_t *bytes);

/* The number of spans that a collector's answer (ExportTraceServiceResponse) rejects; 0 if the text
 * is no such answer. */
uint64_t trace_answer_rejected(const char *text, size_t bytes);
