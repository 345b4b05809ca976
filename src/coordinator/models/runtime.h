/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmesh.ModelRuntime: how a mesh beside this node loads and unloads its models (models.h), on the
 * addresses of `runtime` (runtime_place.h). docs/model-runtime.md says what a mesh sees of it.
 *
 * Threads. runtime_on_message on any thread that steps a server; it judges a call and posts it to
 * the loop, where it is begun and answered. Everything else on the loop thread. Whether the caller
 * still waits does not matter: a load goes on, and an answer to a call that is gone goes nowhere.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/loop/loop.h"
#include "coordinator/models/models.h"
#include "rpc/rpc.h"

#define RUNTIME_SERVICE "mmesh.ModelRuntime"

struct runtime;

struct runtime_options {
    const struct config *config;
    const char *const *listen; /* what the front listens on */
    uint32_t listen_count;
    struct loop *loop;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct registry *registry;
};

/* Binds what is not the front's; calls are taken from runtime_start on. `*runtime` is NULL without
 * `runtime` in the configuration, which every function here leaves alone. */
enum status runtime_create(const struct runtime_options *options, struct runtime **runtime,
                           struct error *error) WARN_UNUSED;
void runtime_start(struct runtime *runtime);

/* Whether the front is to have RUNTIME_METHODS among its own. */
bool runtime_is_at_front(const struct runtime *runtime);

/* A call of the front's. */
void runtime_on_front(struct runtime *runtime, struct rpc_call *call,
                      const struct rpc_message *message);

/* A pipeline has begun or ceased to serve. True: models can be loaded now. */
bool runtime_update(struct runtime *runtime);

/* No more loads: the node is about to stop. */
void runtime_drain(struct runtime *runtime);
/* When the loop has ended, and before the front does: every call is answered, none is begun. */
void runtime_end(struct runtime *runtime);
/* When every pipeline is gone, and with them whoever may still tell how a load went. */
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
