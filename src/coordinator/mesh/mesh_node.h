/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node as one of a mesh: what src/mesh/edge and src/mesh/store need of it, put together from
 * the configuration. DESIGN.md.
 *
 * Loop thread, but for mesh_node_permits and calls (front threads).
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "coordinator/config/config.h"
#include "coordinator/loop/control.h"
#include "coordinator/loop/loop.h"
#include "coordinator/mesh/mesh_call.h"
#include "coordinator/mesh/mesh_id.h"
#include "coordinator/mesh/mesh_manage.h"
#include "coordinator/mesh/mesh_management.h"
#include "coordinator/pipeline/share.h"
#include "rpc/rpc.h"

struct meters;
struct mesh_node;
struct tracer;

struct mesh_node_options {
    const struct config *config;
    struct loop *loop;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct registry *registry;
    _Atomic uint64_t *counters; /* of the node */
    struct tracer *tracer;      /* NULL: nothing is traced */
    struct share_key share_key;
    enum log_level log_level; /* unless the registry says another */
    /* Loop thread: the registry forbids that new nodes start. */
    void (*on_disabled)(void *context);
    /* Loop thread, before it was ready: what its configuration lists cannot be registered. */
    void (*on_refused)(void *context, const struct error *error);
    void *context;
    struct rpc_tls *tls;         /* between nodes; NULL: none */
    struct rpc_tls *callers_tls; /* likewise of callers */
    const char *counters_path;   /* of the node's file; kept */
    const char *const *listen;   /* what the front listens on; kept */
    uint32_t listen_count;
};

/* `*node` is NULL without `mesh` in the configuration, which every function here leaves alone. */
enum status mesh_node_create(const struct mesh_node_options *options, struct mesh_node **node,
                             struct error *error) WARN_UNUSED;
/* Opens the store, and what other nodes call; `queues` are the front's, in the order of its
 * threads. Before the front starts. */
enum status mesh_node_open(struct mesh_node *node, struct rpc_queue *const *queues,
                           uint32_t queue_count, struct error *error) WARN_UNUSED;
void mesh_node_start(struct mesh_node *node);

/* The meters to show at `metrics`; NULL: none. */
struct meters *mesh_node_meters(const struct mesh_node *node);

/* Any thread: a call for a model was refused before the mesh or a pipeline had it. */
void mesh_node_refused(struct mesh_node *node, const char *method, enum status status,
                       uint64_t request_bytes);

/* Every now and then: its counters (mesh_counters.h). */
void mesh_node_publish(struct mesh_node *node);

/* Whether the front serves mmesh.ModelMesh (mesh_management.h); false without a mesh. */
bool mesh_node_is_managed_at_front(const struct mesh_node *node);
/* If a method that the front does not serve is of mmesh.ModelMesh: the text for its caller, and it
 * is counted; else NULL. Any thread. */
const char *mesh_node_misplaced(struct mesh_node *node, const char *method);
/* Sets the health of mmesh.ModelMesh where it is served, but for the front's. */
void mesh_node_set_serving(struct mesh_node *node, bool serving);

/* A pipeline has begun or ceased to serve. */
void mesh_node_update(struct mesh_node *node);
/* The registry was read, and what the configuration lists is registered: calls for models can be
 * taken. True without a mesh. */
bool mesh_node_is_ready(struct mesh_node *node);

/* Answers an operator: the verbs CONTROL_MESH_…; until the end, also of a node that has stopped.
 */
void mesh_node_report(struct mesh_node *node, const struct control_request *request,
                      struct control_call *call);

/* The files of type constraints and of the data plane are read again. */
void mesh_node_reload(struct mesh_node *node);

/* Models move to other nodes, calls go on; where there are none, what waits for loads is waited
 * for. False: nothing is. */
bool mesh_node_drain(struct mesh_node *node);
bool mesh_node_is_drained(const struct mesh_node *node);
/* The end of a drain: new calls are UNAVAILABLE, those under way are waited for. */
void mesh_node_refuse_calls(struct mesh_node *node);
bool mesh_node_has_calls(struct mesh_node *node);

/* Calls that wait are answered, none is begun any more. Once more is harmless. */
void mesh_node_stop(struct mesh_node *node);
/* After that: the loop is still to be turned, for 2 s at most, or other nodes wait for a lease. */
bool mesh_node_is_leaving(const struct mesh_node *node);
/* Other nodes and management, when the front's queues have ended, and what was served has. */
void mesh_node_end_peers(struct mesh_node *node);
/* When every pipeline is gone. */
void mesh_node_destroy(struct mesh_node *node);

/* Methods that are none of this node's own may be called: other nodes or an external runtime may
 * have them. False without a mesh. Any thread. */
bool mesh_node_takes_any(const struct mesh_node *node);

/* Looks up a method in the data-plane configuration ("/package.Service/Method"); UNIMPLEMENTED. */
enum status mesh_node_permits(const struct mesh_node *node, const char *method,
                              struct dataplane_rule *rule, struct error *error) WARN_UNUSED;

/* ---- calls ---- */

/* For `start`, or for all that `named` names, if they are several. */
/* Whether the metadata of a call say for which one model it is, whatever its messages are, or that
 * it is for none. */
bool mesh_node_names_by_metadata(const struct mesh_node *node, const struct rpc_call *call);
void mesh_node_infer(struct mesh_node *node, const struct mesh_call_start *start,
                     const struct mesh_named *named);
void mesh_node_more(struct mesh_node *node, const struct rpc_call *call,
                    const struct rpc_message *message);
void mesh_node_sent(struct mesh_node *node, uint64_t tag);
/* Of mmesh.ModelMesh at the front. */
void mesh_node_manage(struct mesh_node *node, struct rpc_call *call,
                      const struct rpc_message *message);
/* Nobody waits for the call of that tag. */
void mesh_node_cancel(struct mesh_node *node, uint64_t tag);
