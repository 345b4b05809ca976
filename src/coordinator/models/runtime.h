/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves mmesh.ModelRuntime on the addresses of `runtime` (runtime_place.h): another mesh loads and
 * unloads this node's models (models.h). docs/model-runtime.md describes it for that mesh.
 *
 * Threads. Calls arrive on any thread that steps a server, are judged there and posted to the loop,
 * which begins and answers them. Everything else on the loop thread. A caller that goes changes
 * nothing: its load goes on, and its answer goes nowhere.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/models/models.h"
#include "loop/loop.h"
#include "rpc/rpc.h"

#define RUNTIME_SERVICE "mmesh.ModelRuntime"

struct runtime;

struct runtime_options {
    const struct config *config;
    const char *const *listen; /* the front's addresses */
    uint32_t listen_count;
    struct loop *loop;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_registry *registry;
    enum rpc_accept accept; /* at its own addresses */
};

/* `*runtime` is NULL without `runtime` in the configuration; every function here leaves NULL alone.
 */
enum status runtime_create(const struct runtime_options *options, struct runtime **runtime,
                           struct error *error) WARN_UNUSED;
/* Binds the addresses that are not the front's. `queue`: a front thread's, not stepped yet, which
 * takes their calls. */
enum status runtime_open(struct runtime *runtime, struct rpc_queue *queue,
                         struct error *error) WARN_UNUSED;

/* Returns whether the front must serve RUNTIME_METHODS. */
bool runtime_is_at_front(const struct runtime *runtime);

/* A call that arrived at the front. */
void runtime_on_front(struct runtime *runtime, struct rpc_call *call,
                      const struct wire_message *message);

/* A pipeline has begun or ceased to serve. True: models can be loaded. */
bool runtime_update(struct runtime *runtime);

/* Begins to accept, after RPC_ACCEPT_LATER. */
void runtime_accept(struct runtime *runtime);
/* Like rpc_server_part(). */
void runtime_part(struct runtime *runtime);
/* The node is about to stop: refuses loads from now on. */
void runtime_drain(struct runtime *runtime);
/* Answers every call and begins none. Call after the loop has ended and before the front ends. */
void runtime_end(struct runtime *runtime);
/* Call after the queues have ended, when every pipeline with the outcome of every load is gone. */
void runtime_destroy(struct runtime *runtime);

/* Rows of a table of methods; `on_message` hands them on. */
#define RUNTIME_METHOD(name, on_message)                                                           \
    {                                                                                              \
        "/" RUNTIME_SERVICE "/" name, RPC_UNARY, false, on_message, NULL, NULL                     \
    }
#define RUNTIME_METHODS(on_message)                                                                \
    RUNTIME_METHOD("loadModel", on_message), RUNTIME_METHOD("unloadModel", on_message),            \
        RUNTIME_METHOD("predictModelSize", on_message), RUNTIME_METHOD("modelSize", on_message),   \
        RUNTIME_METHOD("runtimeStatus", on_message)
enum { RUNTIME_METHOD_COUNT = 5 };
