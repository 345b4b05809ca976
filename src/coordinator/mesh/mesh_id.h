/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the models or vmodels that a call names, by the rules and with the texts of KServe
 * ModelMesh. Within the callback that received the call.
 */
#pragma once

#include "coordinator/entry/inbound.h"
#include "coordinator/mesh/mesh_dataplane.h"
#include "coordinator/models/target.h"

enum { MESH_IDS_MAX = 64 };

/* The models that a call names. */
struct mesh_named {
    struct target_id id;   /* the first; `bytes` 0: none */
    enum runner_name name; /* of all of them */
    const char *key;       /* the metadata key that has them; NULL: the id is in the request */
    uint32_t count;        /* of ids in metadata, repetitions included */
};

/*
 * Looks at metadata only. INVALID_ARGUMENT: an id is empty, too long or not UTF-8, there are both
 * models and vmodels, or more than MESH_IDS_MAX ids.
 */
enum status mesh_id_of_metadata(const struct inbound *inbound, struct mesh_named *named,
                                struct error *error) WARN_UNUSED;

/* Looks in the request where the rule says, else at metadata. */
enum status mesh_id_find(const struct inbound *inbound, const struct dataplane_rule *rule,
                         struct mesh_named *named, struct error *error) WARN_UNUSED;

/* Iterates over the ids in metadata, from position 0; false at the end. Only for a call that
 * mesh_id_of_metadata accepted. */
bool mesh_id_next(const struct inbound *inbound, const struct mesh_named *named, size_t *position,
                  struct target_id *id);
