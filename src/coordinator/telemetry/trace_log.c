/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/trace_log.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

/* The sums over all runs of the request. */
struct trace_times {
    int64_t wait_ns;
    int64_t run_ns;
};

static struct trace_times
times_of(const struct trace *trace)
{
    struct trace_run runs[STAMPS_MAX];
    struct trace_times times = {0, 0};
    uint32_t count = trace_make_runs(trace, runs);
    for (uint32_t i = 0; i < count; i++) {
        times.wait_ns += runs[i].began_ns - runs[i].enqueued_ns;
        times.run_ns += runs[i].ended_ns - runs[i].began_ns;
    }
    return times;
}

bool
trace_log(const struct trace *trace, const struct trace_ids *ids)
{
    const uint8_t *id = trace->has_parent ? trace->context.parent.trace_id : ids->trace_id;
    char trace_id[2 * TRACE_ID_BYTES + 1];
    struct trace_times times = times_of(trace);
    for (size_t i = 0; i < TRACE_ID_BYTES; i++)
        snprintf(trace_id + 2 * i, 3, "%02x", id[i]);
    return log_beside(LOG_INFO,
                      "call id=\"%s\" method=\"%s\" pipeline=\"%s\" model=\"%s\" status=%s us=%lld "
                      "wait_us=%lld run_us=%lld trace_id=%s error=\"%s\"",
                      trace->request, trace->origin->span_name, trace->pipeline, trace->model,
                      status_name(trace->status),
                      (long long)((trace->ended_ns - trace->began_ns) / NS_PER_US),
                      (long long)(times.wait_ns / NS_PER_US), (long long)(times.run_ns / NS_PER_US),
                      trace_id, trace->text);
}
