/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A traced request on its way through a lane: its slot is marked, so that workers stamp it, and
 * when it has been answered the stamps go into its trace. Submitting and answering threads.
 */
#pragma once

#include "coordinator/pipeline/lane.h"
#include "coordinator/telemetry/trace.h"

/* How many stamps a slot of such a pipeline has room for; 0: nothing is traced. */
uint32_t trace_stamp_count(const struct config *config, const struct config_pipeline *pipeline);

/* The call has named this pipeline. `trace` NULL: it is not traced. */
void trace_name_pipeline(struct trace *trace, const char *pipeline);

/* Before the slot is pushed for the first time. */
void trace_request_begin(struct request *request, struct shm_ticket ticket, struct trace *trace);

/* The request, whose answer this thread has claimed, is answered; its slot is still held. */
void trace_request_end(struct request *request, enum status status, const char *text);
