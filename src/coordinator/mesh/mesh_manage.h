/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmesh.ModelMesh: models and vmodels are registered, loaded, looked at (mesh_request.h,
 * mesh_answer.h). Each call is an order of the driver's. Callbacks on the threads that step the
 * front's queues; answers from any thread.
 */
#pragma once

#include "coordinator/mesh/mesh_pending.h"
#include "mesh/edge/driver.h"
#include "rpc/rpc.h"

#define MESH_SERVICE "mmesh.ModelMesh"

struct mesh_manage;

/* `vmodel_owner` of calls that name none; NULL: nobody. Both are kept. */
struct mesh_manage *mesh_manage_create(struct pending *pending, const char *vmodel_owner);
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
void mesh_manage_on_message(struct mesh_manage *manage, struct rpc_call *call,
                            const struct rpc_message *message);
