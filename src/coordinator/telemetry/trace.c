/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/trace.h"

#include <string.h>

void
trace_copy_text(char *to, size_t room, const char *text)
{
    size_t bytes = strnlen(text, room);
    if (bytes == room) { /* cut: not within a character of several bytes */
        bytes--;
        while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80)
            bytes--;
    }
    memcpy(to, text, bytes);
    to[bytes] = '\0';
}

static int64_t
clamp(int64_t value, int64_t least, int64_t most)
{
    if (value < least)
        return least;
    return value > most ? most : value;
}

/* Rules 2 to 5. */
static struct trace_run
make_run(const struct trace *trace, uint32_t stage, const struct stamp *stamp, int64_t since_ns)
{
    const struct trace_stage *place = &trace->stages[stage];
    int64_t until_ns = trace->ended_ns;
    struct trace_run run = {
        .stage = stage,
        .unfinished = stamp->ended_ns == 0,
        .was_run = stamp->began_ns != 0,
        .has_worker =
            stamp->worker<place->worker_count, .worker = stamp->worker, .pid = stamp->pid> 0
                ? stamp->pid
                : 0};
    if (run.was_run && stamp->batch_items <= place->batch_size)
        run.batch_items = stamp->batch_items;
    run.enqueued_ns = clamp(stamp->enqueued_ns, since_ns, until_ns);
    run.ended_ns = run.unfinished ? until_ns : clamp(stamp->ended_ns, run.enqueued_ns, until_ns);
    run.began_ns =
        run.was_run ? clamp(stamp->began_ns, run.enqueued_ns, run.ended_ns) : run.ended_ns;
    return run;
}

uint32_t
trace_make_runs(const struct trace *trace, struct trace_run runs[STAMPS_MAX])
{
    uint32_t count = 0;
    int64_t since_ns = trace->began_ns;
    uint32_t lost_count = trace->lost_count < trace->deaths ? trace->lost_count : trace->deaths;
    for (uint32_t stage = 0; trace->admitted && stage < trace->stage_count; stage++) {
        uint32_t attempt = 1;
        for (uint32_t i = 0; i < lost_count; i++) {
            if (trace->lost[i].stage != stage)
                continue;
            runs[count] = make_run(trace, stage, &trace->lost[i], since_ns);
            runs[count].lost = true;
            runs[count].attempt = attempt++;
            since_ns = runs[count++].ended_ns;
        }
        if (!trace->stages[stage].stamped)
            continue;
        runs[count] = make_run(trace, stage, &trace->stages[stage].stamp, since_ns);
        runs[count].attempt = attempt;
        since_ns = runs[count++].ended_ns;
    }
    return count;
}
