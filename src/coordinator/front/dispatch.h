/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a call of gRPC or REST to a pipeline of this node, to a model loaded here, or to the mesh.
 * front/DESIGN.md, mesh/DESIGN.md.
 *
 * Threads. Within the callback that received the call, except dispatch_cancel, dispatch_taken and
 * dispatch_refused: any thread.
 */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/entry/caller.h"
#include "coordinator/entry/inbound.h"
#include "coordinator/mesh/mesh_node.h"
#include "coordinator/protocol/oip.h"

struct repository;
struct shared_memory;
struct tracer;

/* The parts of the node that calls reach, for gRPC and REST alike. */
struct front_node {
    const struct config *config;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_registry *registry; /* of the node's models */
    struct repository *repository;   /* of them */
    struct shared_memory *shared_memory;
    struct mesh_node *mesh;     /* NULL: the node is of no mesh */
    _Atomic uint64_t *counters; /* of the node */
    struct share_key share_key; /* of the hashes that identify callers */
    struct tracer *tracer;      /* NULL: nothing is traced */
};

struct dispatch {
    struct mesh_node *mesh;
    _Atomic uint64_t *counters;
    const char *server_name;
    bool names_vmodels; /* names in requests are vmodels' */
    struct target_scope scope;
    struct callers callers;
};

struct dispatch dispatch_of(const struct front_node *node);

/* Describes the call as a submission to a pipeline. */
struct submission dispatch_submission(const struct inbound *inbound,
                                      struct payload_builder *builder);

/* `bound`: the pipeline that the call's method is bound to; NULL: ModelInfer. STATUS_OK: the call
 * was or will be answered. Otherwise the caller answers it and passes the error to
 * dispatch_refused. */
enum status dispatch_infer(const struct dispatch *dispatch, const struct inbound *inbound,
                           struct pipeline *bound, struct submission *submission,
                           struct error *error) WARN_UNUSED;

/* Counts a refused call for a model, and ends its trace, if it has one; does not answer it. */
void dispatch_refused(const struct dispatch *dispatch, const char *method, uint64_t request_bytes,
                      struct trace *trace, const struct error *error);

/* The answer of a small method, packed and malloc'ed; or `is_elsewhere`: the mesh answers it. */
struct dispatch_answer {
    void *response;
    size_t response_bytes;
    bool is_elsewhere;
};

struct dispatch_question {
    enum oip_method method;
    bool node_is_ready;
};

/* Answers a small method of the node or of a model. */
enum status dispatch_ask(const struct dispatch *dispatch, const struct inbound *inbound,
                         const struct dispatch_question *question, struct dispatch_answer *reported,
                         struct error *error) WARN_UNUSED;

/* ---- calls of methods that this node does not have (gRPC) ---- */

/* Reads the models that a call of a mesh names; none is no error. */
enum status dispatch_name(const struct dispatch *dispatch, const struct inbound *inbound,
                          struct mesh_named *named, struct error *error) WARN_UNUSED;
/* Passes the call to the mesh; `start` has all but the name and the caller. */
void dispatch_elsewhere(const struct dispatch *dispatch, struct mesh_call_start *start,
                        const struct mesh_named *named);

/* The adapter has consumed a piece of so many bytes (inbound.h). Without a lock that `piece` takes.
 */
void dispatch_taken(const struct dispatch *dispatch, uint64_t tag, uint64_t bytes);
/* The caller of that tag is gone. */
void dispatch_cancel(const struct dispatch *dispatch, uint64_t tag);
