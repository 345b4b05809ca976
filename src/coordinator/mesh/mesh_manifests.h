/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoal.manifests.Manifests: takes manifests and lists them. Calls arrive on the threads that step
 * the servers' queues; the loop thread, which has the manifests and reconciles them, answers.
 */
#pragma once

#include "coordinator/config/config.h"
#include "rpc/rpc.h"
#include "serving/leader/leader.h"

struct mesh_manifests;
struct storage;

/* Loop thread, as the next three. */
/* `storage` gets the Secret storage-config; NULL: nothing does. */
struct mesh_manifests *mesh_manifests_create(struct loop *loop, struct mesh_runner *runner,
                                             const struct config *config, struct storage *storage);
struct serving_leader *mesh_manifests_leader(struct mesh_manifests *manifests);
/* The events to open the store with: the runner's too. */
struct store_events mesh_manifests_events(struct mesh_manifests *manifests);
void mesh_manifests_start(struct mesh_manifests *manifests, struct store *store);
/* Calls end UNAVAILABLE from here on, and nothing is reconciled. May be repeated; NULL is ignored,
 * as by the next. */
void mesh_manifests_stop(struct mesh_manifests *manifests);
/* Call after mesh_manifests_stop, when no call can come and the store is closed. */
void mesh_manifests_destroy(struct mesh_manifests *manifests);

/* Rows for a server's table of methods. `on_message` passes calls to mesh_manifests_on_message. */
enum { MANIFESTS_METHOD_COUNT = 3 };
void mesh_manifests_methods(struct rpc_method methods[MANIFESTS_METHOD_COUNT],
                            void (*on_message)(void *context, struct rpc_call *call,
                                               const struct wire_message *message));
void mesh_manifests_on_message(struct mesh_manifests *manifests, struct rpc_call *call,
                               const struct wire_message *message);
