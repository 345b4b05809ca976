/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmesh.ModelMesh: registers, loads and describes models and vmodels (mesh_request.h,
 * mesh_answer.h). Each call is an order to the runner. Callbacks on the threads that step the
 * servers' queues; answers from any thread.
 */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/mesh/mesh_pending.h"
#include "mesh/edge/runner.h"
#include "rpc/rpc.h"

#define MESH_SERVICE "mmesh.ModelMesh"

struct mesh_manage;

struct mesh_manage_options {
    struct pending *pending;
    const char *vmodel_owner;                   /* for calls that name none; NULL: none. Kept */
    const struct config_management *management; /* its `allow` judges calls; kept */
    _Atomic uint64_t *counters;                 /* of the node */
};

struct mesh_manage *mesh_manage_create(const struct mesh_manage_options *options);
/* Call when no order is left. NULL is ignored. */
void mesh_manage_destroy(struct mesh_manage *manage);
void mesh_manage_bind(struct mesh_manage *manage, struct mesh_runner *runner);

/* Rows for a server's table of methods, old names included. `on_message` passes calls to
 * mesh_manage_on_message; `on_cancel` gets tags of pending calls. */
enum { MESH_METHOD_COUNT = 18 };
void mesh_manage_methods(struct rpc_method methods[MESH_METHOD_COUNT],
                         void (*on_message)(void *context, struct rpc_call *call,
                                            const struct wire_message *message),
                         void (*on_cancel)(void *context, uint64_t tag));
/* Says whether the caller's certificate must allow the call, if there is `allow`. */
enum mesh_manage_door { MESH_MANAGE_OPEN, MESH_MANAGE_GUARDED };
void mesh_manage_on_message(struct mesh_manage *manage, enum mesh_manage_door door,
                            struct rpc_call *call, const struct wire_message *message);
/* Returns whether the caller may do everything: there is no `allow`, or an entry without `methods`
 * and `models` names it. */
bool mesh_manage_allows_all(struct mesh_manage *manage, const struct rpc_call *call);
/* Returns whether a method ("/package.Service/Method") belongs to this service or to its old
 * name. */
bool mesh_manage_is(const char *method);
