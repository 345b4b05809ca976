/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/trace_request.h"

#include "coordinator/pipeline/generation.h"
#include "coordinator/telemetry/tracer.h"
#include "shm/slot.h"

uint32_t
trace_stamp_count(const struct config *config, const struct config_pipeline *pipeline)
{
    if (config->traces == NULL && config->access_log == 0)
        return 0;
    uint32_t lost = 0; /* the first death beyond attempts_max fails the request */
    for (uint32_t i = 0; i < pipeline->stage_count; i++)
        if (pipeline->stages[i].attempts_max > lost)
            lost = pipeline->stages[i].attempts_max;
    return pipeline->stage_count + (lost < STAMPS_LOST_MAX ? lost : STAMPS_LOST_MAX);
}

void
trace_name_pipeline(struct trace *trace, const char *pipeline)
{
    if (trace != NULL)
        trace_copy_text(trace->pipeline, sizeof(trace->pipeline), pipeline);
}

void
trace_request_begin(struct request *request, struct shm_ticket ticket, struct trace *trace)
{
    trace->failed_stage = TRACE_STAGE_NONE;
    slot_trace(&request->lane->region, ticket);
}

static void
describe_stage(struct trace_stage *stage, const struct config_stage *config)
{
    trace_copy_text(stage->name, sizeof(stage->name), config->name);
    stage->worker_count = config->worker_count;
    stage->batch_size = config->batch_size > 0 ? config->batch_size : 1;
}

void
trace_request_end(struct request *request, enum status status, const char *text)
{
    struct trace *trace = request->trace;
    const struct lane *lane = request->lane;
    const struct config_pipeline *config = lane->generation->config;
    uint32_t slot = (uint32_t)(request - lane->requests);
    uint32_t generation = use_generation(atomic_load_explicit(&request->use, memory_order_relaxed));
    trace->admitted = true;
    trace->generation = lane->generation->number;
    trace->deaths = atomic_load_explicit(&request->deaths, memory_order_relaxed);
    trace->stage_count = config->stage_count;
    for (uint32_t i = 0; i < config->stage_count; i++) {
        struct trace_stage *stage = &trace->stages[i];
        const struct shm_stamp *stamp = region_stamp(&lane->region, slot, i);
        describe_stage(stage, &config->stages[i]);
        stage->stamped = stamp != NULL && stamp_read(stamp, generation, &stage->stamp);
    }
    trace->lost_count = 0;
    for (uint32_t i = 0; i < STAMPS_LOST_MAX; i++) {
        const struct shm_stamp *stamp = region_stamp(&lane->region, slot, config->stage_count + i);
        if (stamp != NULL && stamp_read(stamp, generation, &trace->lost[trace->lost_count]))
            trace->lost_count++;
    }
    request->trace = NULL;
    tracer_end(trace, status, text);
}
