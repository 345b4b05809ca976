/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node as a member of a mesh: assembles src/mesh/edge and src/mesh/store from the configuration
 * (DESIGN.md).
 *
 * Loop thread, except mesh_node_permits and calls (front threads and the HTTP thread) and where
 * stated.
 */
#pragma once

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "coordinator/config/config.h"
#include "coordinator/mesh/mesh_call.h"
#include "coordinator/mesh/mesh_id.h"
#include "coordinator/mesh/mesh_manage.h"
#include "coordinator/mesh/mesh_management.h"
#include "coordinator/mesh/mesh_successor.h"
#include "coordinator/pipeline/share.h"
#include "ipc/control.h"
#include "loop/loop.h"
#include "rpc/rpc.h"

struct meters;
struct mesh_node;
struct tracer;

struct mesh_node_options {
    const struct config *config;
    struct loop *loop;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_registry *registry;
    struct storage *storage;    /* NULL: models are not fetched */
    _Atomic uint64_t *counters; /* of the node */
    struct tracer *tracer;      /* NULL: nothing is traced */
    struct share_key share_key;
    enum log_level log_level; /* unless the registry sets another */
    /* Loop thread: the registry forbids new nodes to start. */
    void (*on_disabled)(void *context);
    /* Loop thread, before it is ready: its start has failed for good, because etcd is away
     * (`fail_fast`) or a listed model cannot be registered. */
    void (*on_refused)(void *context, const struct error *error);
    void *context;
    struct rpc_tls *tls;         /* between nodes; NULL: none */
    struct rpc_tls *callers_tls; /* for callers; NULL: none */
    const char *counters_path;   /* of the node's file; kept */
    const char *const *listen;   /* the front's addresses; kept */
    uint32_t listen_count;
    const char *worker_program; /* kept; runs containers (worker/keep.h) */
    enum rpc_accept accept;     /* callers of management; other nodes at once */
};

/* `*node` is NULL without `mesh` in the configuration; every function here leaves NULL alone. */
enum status mesh_node_create(const struct mesh_node_options *options, struct mesh_node **node,
                             struct error *error) WARN_UNUSED;
/* Opens the store and the addresses for other nodes; `queues` are the front's, in the order of its
 * threads. Before the front starts. */
enum status mesh_node_open(struct mesh_node *node, struct rpc_queue *const *queues,
                           uint32_t queue_count, struct error *error) WARN_UNUSED;
void mesh_node_start(struct mesh_node *node);

/* Begins to accept, after RPC_ACCEPT_LATER. */
void mesh_node_accept(struct mesh_node *node);
/* Like rpc_server_part(), for management. */
void mesh_node_part(struct mesh_node *node);

/* The meters to show at `metrics`; NULL: none. */
struct meters *mesh_node_meters(const struct mesh_node *node);

/* Any thread: counts a call for a model that was refused before it reached the mesh or a pipeline.
 */
void mesh_node_refused(struct mesh_node *node, const char *method, enum status status,
                       uint64_t request_bytes);

/* Publishes its counters (mesh_counters.h); to be called periodically. */
void mesh_node_publish(struct mesh_node *node);

/* Returns whether the front serves mmesh.ModelMesh (mesh_management.h); false without a mesh. */
bool mesh_node_is_managed_at_front(const struct mesh_node *node);
/* Counts a call of a method of mmesh.ModelMesh that the front does not serve and returns the text
 * for its caller; returns NULL for other methods. Any thread. */
const char *mesh_node_misplaced(struct mesh_node *node, const char *method);
/* Sets the health of mmesh.ModelMesh on its own servers; the front's is not changed. */
void mesh_node_set_serving(struct mesh_node *node, bool serving);

/* A pipeline has begun or ceased to serve. */
void mesh_node_update(struct mesh_node *node);
/* Returns whether the registry was read and the listed models are registered, so that calls for
 * models can be taken. True without a mesh. */
bool mesh_node_is_ready(struct mesh_node *node);

/* Writes the list that a CONTROL_MESH_… request asks for; to the end, also of a node that has
 * stopped. Loop thread. */
enum status mesh_node_report(struct mesh_node *node, const struct control_request *request,
                             struct bytes *list, struct error *error) WARN_UNUSED;

/* Reads the files of type constraints and of the data plane again. */
void mesh_node_reload(struct mesh_node *node);

/* Shows the instance of the process that is to take this node's place. */
enum mesh_successor mesh_node_successor(struct mesh_node *node, pid_t successor);
/* Moves models to other nodes while calls go on; without other nodes, waits for calls that need a
 * load. */
void mesh_node_drain(struct mesh_node *node);
bool mesh_node_is_drained(const struct mesh_node *node);
/* The end of a drain: new calls are UNAVAILABLE, those under way go on. */
void mesh_node_refuse_calls(struct mesh_node *node);
bool mesh_node_has_calls(struct mesh_node *node);

/* Answers waiting calls and begins none any more. May be repeated. */
void mesh_node_stop(struct mesh_node *node);
/* Kills the containers of its runtime. */
void mesh_node_kill(struct mesh_node *node);
/* Returns, after mesh_node_stop, whether the loop must still run: for 2 s at most, to withdraw the
 * instance, for whose lease other nodes would otherwise wait, and to send other nodes their last
 * answers; for `stop_timeout_ms` at most, to end the containers of its runtime. */
bool mesh_node_is_leaving(const struct mesh_node *node);
/* Ends management and drops the connections of other nodes. Call once, after mesh_node_stop. */
void mesh_node_cut(struct mesh_node *node);
/* Frees peers and management, after the front's queues and all served calls have ended. */
void mesh_node_end_peers(struct mesh_node *node);
/* Call when every pipeline is gone. */
void mesh_node_destroy(struct mesh_node *node);

/* Returns whether methods that this node does not have may be called, because other nodes or an
 * external runtime may have them. False without a mesh. Any thread. */
bool mesh_node_takes_any(const struct mesh_node *node);

/* Looks up a method in the data-plane configuration ("/package.Service/Method"); UNIMPLEMENTED. */
enum status mesh_node_permits(const struct mesh_node *node, const char *method,
                              struct dataplane_rule *rule, struct error *error) WARN_UNUSED;

/* ---- calls ---- */

/* Returns whether the metadata of a call alone decide which one model it is for, or that it is for
 * none. */
bool mesh_node_names_by_metadata(const struct mesh_node *node, const struct inbound *inbound);
/* Begins a call, within the callback that received it: for `start`, or for all models of `named` if
 * they are several. */
void mesh_node_infer(struct mesh_node *node, const struct mesh_call_start *start,
                     const struct mesh_named *named);
void mesh_node_more(struct mesh_node *node, const struct rpc_call *call,
                    const struct wire_message *message);
void mesh_node_sent(struct mesh_node *node, uint64_t tag);
void mesh_node_taken(struct mesh_node *node, uint64_t tag, uint64_t bytes);
/* A call of mmesh.ModelMesh at the front. */
void mesh_node_manage(struct mesh_node *node, struct rpc_call *call,
                      const struct wire_message *message);
/* Any thread: the caller of that tag is gone. */
void mesh_node_cancel(struct mesh_node *node, uint64_t tag);
