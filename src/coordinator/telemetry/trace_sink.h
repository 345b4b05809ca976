/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where exports of spans go: a file, one line each, or a collector of OpenTelemetry's over HTTP.
 * The tracer's thread sends, and waits while it does.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"

enum trace_sink_result {
    SINK_TAKEN,
    SINK_LATER,   /* to be tried again */
    SINK_REFUSED, /* never to be tried again */
};

struct trace_sink_answer {
    int64_t said_ns;   /* SINK_LATER: in how long; 0: it has not said */
    uint64_t rejected; /* SINK_TAKEN: so many spans of it were not */
    struct error error;
};

/* A send that waits calls `meanwhile` so often. */
#define TRACE_SINK_LOOK_NS (NS_PER_S / 5)

struct trace_sink {
    /* Takes at most ten seconds. What it returns but SINK_TAKEN is explained in the answer's error.
     */
    enum trace_sink_result (*send)(struct trace_sink *sink, const char *text, size_t bytes,
                                   struct trace_sink_answer *answer);
    /* From any thread: from now on nothing takes longer than until then. */
    void (*hurry)(struct trace_sink *sink, int64_t until_ns);
    void (*close)(struct trace_sink *sink);
    /* Set by the one who sends, before the first send. NULL: nothing is to be done meanwhile. */
    void (*meanwhile)(void *context);
    void *context;
};

/*
 * Lines are appended to a regular file, made if it is not there (mode 0640). Before each line it is
 * looked whether the name still names this file; if not, because somebody has rotated it, it is
 * opened anew. A line is in the file whole or not at all.
 */
enum status trace_file_open(const char *path, struct trace_sink **sink,
                            struct error *error) WARN_UNUSED;

/*
 * Exports are posted to an http or https URL as OTLP/HTTP with JSON. Taken: any 2xx. Tried later:
 * 429, 502, 503, 504, and whatever keeps an answer from coming. Anything else is refused, redirects
 * included. Does not connect yet.
 */
enum status trace_http_open(const char *url, struct trace_sink **sink,
                            struct error *error) WARN_UNUSED;
