/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's call for a model of the mesh that is not loaded here, or for a vmodel: it becomes a
 * call of the driver's, which says whether it is served here (mesh_native.h, or external.h) or
 * elsewhere (peers.h). DESIGN.md.
 *
 * Threads. mesh_call_begin on the front thread that received the call, within its callback. What
 * becomes of it happens on any thread.
 */
#pragma once

#include "coordinator/loop/loop.h"
#include "coordinator/mesh/mesh_native.h"
#include "coordinator/mesh/mesh_pending.h"
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
/* When no call is left. NULL is left alone. */
void mesh_calls_destroy(struct mesh_calls *calls);
/* Before the first. `external`: who serves what is loaded into its pool; all else `native` does.
 * NULL: there is none. */
void mesh_calls_bind(struct mesh_calls *calls, struct driver *driver, struct external *external);

/* A call as it begins. */
struct mesh_call_start {
    struct rpc_call *call;
    const struct rpc_message *message;
    const char *id;
    enum driver_name name;
    uint32_t queue;               /* of the front thread */
    struct rpc_queue *flow_queue; /* that queue, of a call of rpc_any; NULL: one message each way */
    bool is_empty;                /* with a flow_queue: the call has ended without any message */
    bool is_awaited; /* with a flow_queue: neither its first message nor its end came */
    struct native_origin origin;
    struct mesh_many *many; /* which of its parts it is: that is told, not the caller; NULL: none */
    uint32_t part;
};

/* It is answered, now or later. */
void mesh_call_begin(struct mesh_calls *calls, const struct mesh_call_start *start);
/* A call with a flow_queue, on its thread: another message, or NULL: it sends no more. */
void mesh_call_more(struct mesh_calls *calls, const struct rpc_call *call,
                    const struct rpc_message *message);
/* The transport has taken a message of the answer. */
void mesh_call_sent(struct mesh_calls *calls, uint64_t tag);

/* ---- parts of a call for several (mesh_many.h) ---- */

const struct mesh_calls_options *mesh_calls_options(const struct mesh_calls *calls);

/*
 * One that is still to begin, within the same callback; its owner has a reference. NULL: it cannot
 * be, which nobody was told yet. It is ended by one of the next three, once.
 */
struct mesh_call *mesh_call_prepare(struct mesh_calls *calls, const struct mesh_call_start *start,
                                    struct error *error) WARN_UNUSED;
void mesh_call_go(struct mesh_call *call);
void mesh_call_drop(struct mesh_call *call);    /* as if it was cancelled: its `many` is told */
void mesh_call_discard(struct mesh_call *call); /* nobody is told */

/* Nobody waits for it; it ends, or has. Not before it has begun or was dropped. */
void mesh_call_cancel(struct mesh_call *call);
void mesh_call_unref(struct mesh_call *call);
