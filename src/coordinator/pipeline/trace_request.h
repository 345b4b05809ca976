/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A traced request on its way through a lane: its slot is marked, so that workers stamp it; when it
 * is answered its stamps are copied into its trace. Submitting and answering threads.
 */
#pragma once

#include "coordinator/pipeline/lane.h"
#include "coordinator/telemetry/trace.h"

/* The number of stamps per slot of such a pipeline; 0: nothing is traced. */
uint32_t trace_stamp_count(const struct config *config, const struct config_pipeline *pipeline);

/* Notes the pipeline that the call named. `trace` NULL: the call is not traced. */
void trace_name_pipeline(struct trace *trace, const char *pipeline);

/* Call before the slot is pushed for the first time. */
void trace_request_begin(struct request *request, struct shm_ticket ticket, struct trace *trace);

/* This thread has claimed the request's answer and answered it; the slot is still held. */
void trace_request_end(struct request *request, enum status status, const char *text);
