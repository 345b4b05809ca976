/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime beside this node's pipelines: a process that is there already (`runtime`), or, with
 * `images`, one of the mesh's ServingRuntimes, which this node chooses, starts and watches
 * (serving/runtimes/DESIGN.md, rules N).
 *
 * Loop thread.
 */
#pragma once

#include <stdbool.h>

#include "coordinator/config/config.h"
#include "loop/loop.h"
#include "mesh/edge/external.h"
#include "serving/leader/leader.h"

struct mesh_runtime;
struct meters;
struct storage;

struct mesh_runtime_options {
    const struct config *config;
    struct loop *loop;
    struct meters *meters;
    struct storage *storage; /* NULL: models are not fetched */
    struct rpc_queue *const *queues;
    uint32_t queue_count;
    uint32_t pool;
    _Atomic uint64_t *counters; /* of the node */
    const char *worker_program;
};

/* NULL: the configuration has none; every function here leaves NULL alone. */
struct mesh_runtime *mesh_runtime_create(const struct mesh_runtime_options *options);
/* NULL of NULL. */
struct external *mesh_runtime_external(const struct mesh_runtime *runtime);

/* Set before the start. `address`: how other nodes reach this one; "": there are none. */
struct mesh_runtime_bound {
    struct mesh_runner *runner;
    struct serving_leader *leader;
    const char *address;
};
void mesh_runtime_start(struct mesh_runtime *runtime, const struct mesh_runtime_bound *bound);

/* Ends calls and loads, and the containers. May be repeated. */
void mesh_runtime_stop(struct mesh_runtime *runtime);
/* Returns, after the stop, whether containers are still ending, for `stop_timeout_ms` at most. */
bool mesh_runtime_is_stopping(const struct mesh_runtime *runtime);
/* Kills them. */
void mesh_runtime_kill(struct mesh_runtime *runtime);
/* The external runtime, when every queue has ended. */
void mesh_runtime_end_calls(struct mesh_runtime *runtime);
/* Waits for the containers' end. */
void mesh_runtime_destroy(struct mesh_runtime *runtime);
