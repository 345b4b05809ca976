/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which models or vmodels of a mesh a call names, by the rules and in the words of KServe
 * ModelMesh. Front threads.
 */
#pragma once

#include "coordinator/mesh/mesh_dataplane.h"
#include "coordinator/models/target.h"

enum { MESH_IDS_MAX = 64 };

/* The models that a call names. */
struct mesh_named {
    struct target_id id;   /* the first; `bytes` 0: none */
    enum driver_name name; /* of all of them */
    const char *key;       /* of metadata, under which they are; NULL: the request has it */
    uint32_t count;        /* of metadata, in the order in which they came, each as often */
};

/*
 * By metadata alone. INVALID_ARGUMENT: one is empty, too long, not UTF-8, there are both models and
 * vmodels, or more than MESH_IDS_MAX.
 */
enum status mesh_id_of_call(const struct rpc_call *call, struct mesh_named *named,
                            struct error *error) WARN_UNUSED;

/* In the request where the rule says, else by metadata. */
enum status mesh_id_find(const struct rpc_call *call, const struct rpc_message *message,
                         const struct dataplane_rule *rule, struct mesh_named *named,
                         struct error *error) WARN_UNUSED;

/* The ids of metadata one by one, from position 0 on; false at the end. Of a call that
 * mesh_id_of_call has found no fault with. */
bool mesh_id_next(const struct rpc_call *call, const struct mesh_named *named, size_t *position,
                  struct target_id *id);
