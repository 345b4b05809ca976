/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/trace_call.h"

#include <string.h>

/* Exactly one header that is well formed. */
static bool
read_parent(const struct rpc_call *call, struct traceparent *parent)
{
    struct wire_span value;
    struct wire_span another;
    size_t position = 0;
    return rpc_call_metadata_next(call, "traceparent", &position, &value) &&
           !rpc_call_metadata_next(call, "traceparent", &position, &another) &&
           traceparent_parse(value.data, value.bytes, parent);
}

static void
read_state(const struct rpc_call *call, struct tracestate *state)
{
    struct wire_span value;
    size_t position = 0;
    tracestate_init(state);
    while (rpc_call_metadata_next(call, "tracestate", &position, &value))
        tracestate_add(state, value.data, value.bytes);
}

struct trace *
trace_call_begin(struct tracer *tracer, const struct trace_origin *origin,
                 const struct rpc_call *call)
{
    struct trace_context context;
    bool has_parent = read_parent(call, &context.parent);
    unsigned uses = tracer_uses(tracer, has_parent ? &context.parent : NULL);
    if (uses == 0)
        return NULL;
    if (has_parent)
        read_state(call, &context.state);
    return tracer_begin(tracer, origin, has_parent ? &context : NULL, uses);
}

struct trace *
trace_text_begin(struct tracer *tracer, const struct trace_origin *origin, const char *parent,
                 const char *state)
{
    struct trace_context context;
    bool has_parent = parent != NULL && traceparent_parse(parent, strlen(parent), &context.parent);
    unsigned uses = tracer_uses(tracer, has_parent ? &context.parent : NULL);
    if (uses == 0)
        return NULL;
    tracestate_init(&context.state);
    if (state != NULL)
        tracestate_add(&context.state, state, strlen(state));
    return tracer_begin(tracer, origin, has_parent ? &context : NULL, uses);
}
