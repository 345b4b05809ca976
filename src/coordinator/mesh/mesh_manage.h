/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmesh.ModelMesh: models and vmodels are registered, loaded, looked at (mesh_request.h,
 * mesh_answer.h). Each call is an order of the driver's. Callbacks on the threads that step the
 * front's queues; answers from any thread.
 */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/mesh/mesh_pending.h"
#include "mesh/edge/driver.h"
#include "rpc/rpc.h"

#define MESH_SERVICE "mmesh.ModelMesh"

struct mesh_manage;

struct mesh_manage_options {
    struct pending *pending;
    const char *vmodel_owner;                   /* of calls that name none; NULL: nobody. Kept */
    const struct config_management *management; /* whose `allow` calls are judged by; kept */
    _Atomic uint64_t *counters;                 /* of the node */
};

struct mesh_manage *mesh_manage_create(const struct mesh_manage_options *options);
/* When no order is left. NULL is left alone. */
void mesh_manage_destroy(struct mesh_manage *manage);
void mesh_manage_bind(struct mesh_manage *manage, struct driver *driver);

/* The methods, those of old names included: rows for a server's table, which hand on to
 * mesh_manage_on_message. `on_cancel` is for tags of pending calls. */
enum { MESH_METHOD_COUNT = 18 };
void mesh_manage_methods(struct rpc_method methods[MESH_METHOD_COUNT],
                         void (*on_message)(void *context, struct rpc_call *call,
                                            const struct rpc_message *message),
                         void (*on_cancel)(void *context, uint64_t tag));
/* Whether a call must be allowed by its caller's certificate, if there is `allow`. */
enum mesh_manage_door { MESH_MANAGE_OPEN, MESH_MANAGE_GUARDED };
void mesh_manage_on_message(struct mesh_manage *manage, enum mesh_manage_door door,
                            struct rpc_call *call, const struct rpc_message *message);
/* Whether a method ("/package.Service/Method") is of this service, or of its old name. */
bool mesh_manage_is(const char *method);
