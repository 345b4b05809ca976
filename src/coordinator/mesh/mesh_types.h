/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pools of a node (K6 of the core): one for each pipeline with `models`, and the last for an
 * external runtime. The name of a model's type decides which of several loads it: the `model_type`
 * of its key, else the registered type without `mt:` and without what follows the format. A
 * pipeline gets the types in its `types`, the runtime those in `runtime_types`, or all others if
 * that is left out; no pool loads the rest. DESIGN-calls.md.
 *
 * Pure: any thread.
 */
#pragma once

#include "coordinator/config/config.h"
#include "mesh/core/mesh_core.h"

/* The types of the pools, as the core takes them. A single pool has no types: it loads all that it
 * can. */
struct mesh_pools {
    char *types[MESH_POOLS_MAX];
    uint32_t count;
};

void mesh_types_pools(const struct config *config, struct mesh_pools *pools);
void mesh_types_pools_fini(struct mesh_pools *pools);

/* The core's callback. */
void mesh_types_pool_name(const char *type, const char *key, char name[MESH_POOL_NAME_BYTES]);

/* The name within a registered type; "": none that a pipeline could have. */
void mesh_types_name(const char *type, char name[CONFIG_NAME_BYTES_MAX + 1]);
