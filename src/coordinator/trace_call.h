/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which gRPC calls are traced: those whose metadata hold a valid `traceparent` with the flag
 * "sampled", and a share of those without one. Front threads.
 */
#pragma once

#include "coordinator/tracer.h"
#include "rpc/rpc.h"

/* NULL: it is not traced. `origin` is kept. */
struct trace *trace_call_begin(struct tracer *tracer, const struct trace_origin *origin,
                               const struct rpc_call *call);
