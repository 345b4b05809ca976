/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The destination of exports of spans: a file, one line each, or an OpenTelemetry collector over
 * HTTP. The tracer's thread sends, and waits while it does.
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
    int64_t said_ns;   /* SINK_LATER: the delay asked for; 0: none */
    uint64_t rejected; /* SINK_TAKEN: the number of spans rejected */
    struct error error;
};

/* The interval at which a waiting send calls `meanwhile`. */
#define TRACE_SINK_LOOK_NS (NS_PER_S / 5)

struct trace_sink {
    /* Takes at most ten seconds. The answer's error explains any result but SINK_TAKEN. */
    enum trace_sink_result (*send)(struct trace_sink *sink, const char *text, size_t bytes,
                                   struct trace_sink_answer *answer);
    /* Any thread: bounds the present and all later sends. */
    void (*hurry)(struct trace_sink *sink, int64_t until_ns);
    void (*close)(struct trace_sink *sink);
    /* Set by the sender before the first send. NULL: nothing to do meanwhile. */
    void (*meanwhile)(void *context);
    void *context;
};

/*
 * Appends lines to a regular file, created if missing (mode 0640). If the name no longer names this
 * file before a line is written, because it was rotated, the file is opened anew. A line is written
 * whole or not at all.
 */
enum status trace_file_open(const char *path, struct trace_sink **sink,
                            struct error *error) WARN_UNUSED;

/*
 * Posts exports to an http or https URL as OTLP/HTTP with JSON. Taken: any 2xx. Retried: 429, 502,
 * 503, 504, and no answer. Refused: anything else, redirects included. Does not connect yet.
 */
enum status trace_http_open(const char *url, struct trace_sink **sink,
                            struct error *error) WARN_UNUSED;
