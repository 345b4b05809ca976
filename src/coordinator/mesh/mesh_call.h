/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's call for a model of the mesh that is not loaded here, or for a vmodel: it becomes a
 * call of the runner, which has it served here (mesh_native.h, external.h) or elsewhere (peers.h).
 * DESIGN-calls.md.
 *
 * Threads. mesh_call_begin within the callback that received the call; the rest on any thread.
 */
#pragma once

#include "coordinator/entry/inbound.h"
#include "coordinator/mesh/mesh_native.h"
#include "coordinator/mesh/mesh_pending.h"
#include "loop/loop.h"
#include "mesh/edge/external.h"

struct mesh_call;
struct mesh_calls;
struct meters;
struct mesh_many;
struct tracer;

struct mesh_calls_options {
    struct loop *loop;
    struct pending *pending;
    struct native *native;
    struct meters *meters;      /* NULL: none are kept */
    struct tracer *tracer;      /* NULL: nothing is traced */
    _Atomic uint64_t *counters; /* of the node */
    size_t message_bytes_max;
};

struct mesh_calls *mesh_calls_create(const struct mesh_calls_options *options);
/* Call when no call is left. NULL is ignored. */
void mesh_calls_destroy(struct mesh_calls *calls);
/* Call before the first call arrives. `external` serves the models of its pool, `native` all
 * others; NULL: there is none. */
void mesh_calls_bind(struct mesh_calls *calls, struct mesh_runner *runner,
                     struct external *external);

/* A call as it begins. */
struct mesh_call_start {
    const struct inbound *inbound;
    const char *id;
    enum runner_name name;
    /* The queue of a call of rpc_any, which the inbound's call then is. NULL: one message each
     * way. */
    struct rpc_queue *flow_queue;
    bool is_empty;   /* with a flow_queue: the call has ended without any message */
    bool is_awaited; /* with a flow_queue: neither its first message nor its end has come */
    struct native_origin origin;
    struct rpc_kept *kept;  /* its message, if it is kept already; NULL: it is not */
    struct mesh_many *many; /* gets the end instead of the caller; NULL: no part of several */
    uint32_t part;
};

/* Begins a call; it is answered, now or later. */
void mesh_call_begin(struct mesh_calls *calls, const struct mesh_call_start *start);
/* Passes on another message of a call with a flow_queue, on its thread; NULL: no more follow. */
void mesh_call_more(struct mesh_calls *calls, const struct rpc_call *call,
                    const struct wire_message *message);
/* The adapter has consumed a piece of so many bytes (inbound.h). Any thread. */
void mesh_call_taken(struct mesh_calls *calls, uint64_t tag, uint64_t bytes);
/* The transport has taken a message of the answer. */
void mesh_call_sent(struct mesh_calls *calls, uint64_t tag);

/* ---- parts of a call for several (mesh_many.h) ---- */

const struct mesh_calls_options *mesh_calls_options(const struct mesh_calls *calls);

/*
 * Prepares a call, which must begin within the same callback; its owner gets a reference. NULL: it
 * cannot be made, and nobody was notified. One of the next three functions must follow, once.
 */
struct mesh_call *mesh_call_prepare(struct mesh_calls *calls, const struct mesh_call_start *start,
                                    struct error *error) WARN_UNUSED;
void mesh_call_go(struct mesh_call *call);
void mesh_call_drop(struct mesh_call *call);    /* as if cancelled: its `many` is notified */
void mesh_call_discard(struct mesh_call *call); /* nobody is notified */

/* Ends a call that nobody waits for any more, if it has not ended. Call only after it has begun or
 * was dropped. */
void mesh_call_cancel(struct mesh_call *call);
void mesh_call_unref(struct mesh_call *call);
