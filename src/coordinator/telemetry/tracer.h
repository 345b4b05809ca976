/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracing for the rest of the daemon: a traced call takes a record, the answering thread returns it
 * filled, and a thread of its own (`shoald:trace`) makes spans of it and sends them to a file or a
 * collector, and lines of the log. None of this can fail or delay a request: no lock, no
 * allocation, at most one wake in TRACER_NAP_NS; traces beyond the limits are dropped and counted.
 */
#pragma once

#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "coordinator/telemetry/trace.h"

/* The time that a trace waits for others to be written with it. */
#define TRACER_NAP_NS (NS_PER_S / 5)
/* The time to send the rest at the end. */
#define TRACER_END_NS (2 * NS_PER_S)

enum {
    TRACER_TRACES_MAX = 2048,          /* in flight and not yet written */
    TRACER_BACKLOG_BYTES_MAX = 8 << 20 /* of exports that wait for their file or collector */
};

struct tracer_options {
    const char *target;  /* "file:/path", "http://…", "https://…"; NULL: no spans are made */
    uint32_t access_log; /* one call in so many gets a line in the log; 0: none */
    uint64_t sample;     /* share of calls without a traceparent, of 2^32 */
    const char *version;
    _Atomic uint64_t *counters; /* of the node */
};

/* Starts the thread. Errors: the file cannot be opened, the URL makes no sense. */
enum status tracer_create(const struct tracer_options *options, struct tracer **tracer,
                          struct error *error) WARN_UNUSED;
/* Call when no trace is under way any more. Sends the rest within TRACER_END_NS. NULL is
 * ignored. */
void tracer_destroy(struct tracer *tracer);

/* Counts a call, and says what a record of it would be for: spans, by the caller's `parent` (NULL:
 * none) or a draw; a line. 0: it needs none. */
unsigned tracer_uses(struct tracer *tracer, const struct traceparent *parent);

/* A record of `uses`, enum trace_use, for a call that has just come; NULL: none is left. `context`
 * NULL: a new trace. */
struct trace *tracer_begin(struct tracer *tracer, const struct trace_origin *origin,
                           const struct trace_context *context, unsigned uses);
/* The call is answered. The record is no longer the caller's. */
void tracer_end(struct trace *trace, enum status status, const char *text);
