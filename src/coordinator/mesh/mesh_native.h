/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime of a mesh's node that is the node itself: its pipelines with models. To the driver it
 * is what loads, unloads and knows sizes (models.h); to whoever has a call of the mesh, what serves
 * it. DESIGN.md.
 *
 * Threads. native_serve and native_cancel as the driver's callbacks: any thread. The rest on the
 * loop thread.
 */
#pragma once

#include "base/error.h"
#include "coordinator/loop/loop.h"
#include "coordinator/models/models.h"
#include "coordinator/pipeline/share.h"
#include "mesh/edge/peers.h"

struct config;
struct native;
struct trace;

struct native_options {
    struct loop *loop;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct registry *registry;
    const char *caller_metadata; /* by which callers say who they are */
    struct share_key share_key;
    const struct config *shared; /* mesh_loads.h */
};

struct native *native_create(const struct native_options *options);
/* When every pipeline is gone. NULL is left alone. */
void native_destroy(struct native *native);

/* The runtime, for driver_options. */
struct driver_runtime native_for_driver(struct native *native);

/* Before the driver starts. */
void native_bind(struct native *native, struct driver *driver);

/* A pipeline has begun or ceased to serve; the driver is told when all do for the first time. */
void native_update(struct native *native);

/* Why a pipeline would not take what another node's may. */
struct native_refusal {
    struct error error; /* STATUS_OK: it does not have the model */
    uint32_t retry_ms;  /* 0: not said */
};

/* Facts about a request that only the node knows to which it came first. */
struct native_origin {
    uint64_t caller;     /* share_hash; 0: by its metadata */
    struct trace *trace; /* NULL: none, or it was taken */
};

/*
 * UNDER THE LOCK of the driver, as `serve` of a driver_call_type. The request's message goes into
 * the pipeline that has the model loaded; UNDER_WAY: its on_ended will be called, later. `refusal`
 * is filled in of what has ENDED.
 */
enum driver_begun native_serve(struct native *native, struct peer_request *request,
                               const struct driver_attempt *attempt, struct native_origin *origin,
                               struct driver_end *end, struct native_refusal *refusal);

/* Nobody waits for what is under way of it. */
void native_cancel(struct native *native, struct peer_request *request);
