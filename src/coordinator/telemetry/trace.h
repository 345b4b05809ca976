/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace: the record of one traced request, from its call to its answer, of fixed size
 * (DESIGN.md). A record has one owner at a time: the thread that takes the call, the thread that
 * answers the request, then the thread that writes spans.
 *
 * Its stamps are written by workers and not trusted. `trace_make_runs` makes possible runs of them:
 *
 *  1. Runs are in the order of the stages; at one stage those that a worker's death ended come
 *     first, in the order of the deaths, and at most as many as deaths were counted.
 *  2. A run's times lie between the end of the previous run (or the request's arrival) and the
 *     request's answer; a time outside is moved to the nearer end. In a run, `enqueued_ns` <=
 *     `began_ns` <= `ended_ns`.
 *  3. A run without an end ended with the answer, unfinished.
 *  4. A run that never began (its item was dropped) is all waiting: it "began" at its end.
 *  5. An impossible worker or batch size is left out.
 *
 * All times are on the monotonic clock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/telemetry/traceparent.h"
#include "shm/layout.h"
#include "shm/stamp.h"

struct tracer;

/* The kind of call. Static data. */
enum { TRACE_ATTRIBUTES_MAX = 3 };
struct trace_origin {
    const char *span_name;
    struct {
        const char *key; /* NULL: no more of them */
        const char *value;
    } attributes[TRACE_ATTRIBUTES_MAX];
};

/* The caller's context of the trace. */
struct trace_context {
    struct traceparent parent;
    struct tracestate state;
};

/* The purpose of a record. */
enum trace_use { TRACE_SPANS = 1, TRACE_LINE = 2 /* in the log */ };

enum { TRACE_NAME_BYTES = 64, TRACE_TEXT_BYTES = 256, TRACE_STAGE_NONE = -1 };

struct trace_stage {
    char name[TRACE_NAME_BYTES];
    uint32_t worker_count;
    uint32_t batch_size; /* at least 1 */
    bool stamped;
    struct stamp stamp;
};

struct trace {
    _Atomic uint32_t next; /* the pool's */
    struct tracer *tracer;
    const struct trace_origin *origin;
    unsigned uses;   /* enum trace_use */
    bool has_parent; /* else the trace begins here, and `context` is not set */
    struct trace_context context;
    int64_t began_ns;
    int64_t ended_ns;
    enum status status;
    char text[TRACE_TEXT_BYTES];
    char pipeline[TRACE_NAME_BYTES]; /* "": none was named */
    char model[TRACE_NAME_BYTES]; /* as the caller names it; "": it did not, or could not be read */
    char request[TRACE_NAME_BYTES]; /* the caller's id; likewise */
    bool admitted;
    /* If admitted: */
    uint64_t generation;
    uint32_t deaths;  /* of workers that held it */
    int failed_stage; /* or TRACE_STAGE_NONE */
    uint32_t stage_count;
    struct trace_stage stages[STAGES_MAX];
    uint32_t lost_count;
    struct stamp lost[STAMPS_LOST_MAX];
};

/* One run in a stage, made possible. */
struct trace_run {
    uint32_t stage;
    uint32_t attempt; /* at this stage, from 1 on */
    bool lost;        /* the worker died */
    bool unfinished;
    bool was_run;
    bool has_worker;
    uint32_t worker;
    int32_t pid;          /* 0: not known */
    uint32_t batch_items; /* 0: not known */
    int64_t enqueued_ns;
    int64_t began_ns;
    int64_t ended_ns;
};

/* Copies text of any length, cut between characters. */
void trace_copy_text(char *to, size_t room, const char *text);

/* Returns the number of runs. */
uint32_t trace_make_runs(const struct trace *trace, struct trace_run runs[STAMPS_MAX]);
