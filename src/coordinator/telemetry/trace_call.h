/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which calls are traced: those whose metadata or HTTP headers have a valid `traceparent`
 * with the flag "sampled" (the originator of the trace has decided), a share of those without one,
 * and those that the access log counts out. Front threads and the HTTP thread.
 */
#pragma once

#include "coordinator/telemetry/tracer.h"
#include "rpc/rpc.h"

/* NULL: it is not traced. `origin` is kept. */
struct trace *trace_call_begin(struct tracer *tracer, const struct trace_origin *origin,
                               const struct rpc_call *call);

/* Like trace_call_begin(), for HTTP. `parent` and `state` are the headers' values; NULL: none. */
struct trace *trace_text_begin(struct tracer *tracer, const struct trace_origin *origin,
                               const char *parent, const char *state);
