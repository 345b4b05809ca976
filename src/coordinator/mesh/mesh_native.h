/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime of a mesh's node that is the node itself: its pipelines with models. To the runner it
 * is what loads, unloads and knows sizes (models.h); to the owner of a call of the mesh, its
 * server. DESIGN.md.
 *
 * Threads. native_serve and native_cancel as the runner's callbacks: any thread. The rest on the
 * loop thread.
 */
#pragma once

#include "base/error.h"
#include "coordinator/entry/caller.h"
#include "coordinator/models/models.h"
#include "loop/loop.h"
#include "mesh/edge/peers.h"

struct config;
struct native;
struct trace;

struct native_options {
    struct loop *loop;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_registry *registry;
    struct callers callers;
    const struct config *shared; /* mesh_loads.h */
};

struct native *native_create(const struct native_options *options);
/* Call when every pipeline is gone. NULL is ignored. */
void native_destroy(struct native *native);

/* The runtime, for runner_options. */
struct runner_runtime native_for_runner(struct native *native);

/* Call before the runner starts. */
void native_bind(struct native *native, struct mesh_runner *runner);

/* A pipeline has begun or ceased to serve; the runner is notified when all do for the first
 * time. */
void native_update(struct native *native);

/* The reason why a pipeline did not take a request that another node's pipeline may take. */
struct native_refusal {
    struct error error; /* STATUS_OK: it does not have the model */
    uint32_t retry_ms;  /* 0: not said */
};

/* Facts about a request that only the node knows to which it came first. */
struct native_origin {
    uint64_t caller;     /* caller_of; 0: by the metadata that came with it */
    struct trace *trace; /* NULL: none, or it was taken */
};

/*
 * UNDER THE LOCK of the runner, as `serve` of a runner_call_type. The request's message goes into
 * the pipeline that has the model loaded; UNDER_WAY: its on_ended will be called, later. If the
 * result is ENDED, `refusal` is filled in.
 */
enum runner_begun native_serve(struct native *native, struct peer_request *request,
                               const struct runner_attempt *attempt, struct native_origin *origin,
                               struct runner_end *end, struct native_refusal *refusal);

/* Cancels what is under way for the request without waiting for it. */
void native_cancel(struct native *native, struct peer_request *request);
