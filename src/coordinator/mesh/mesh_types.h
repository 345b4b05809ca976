/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a model is, on a node that has pipelines with `models` and an external runtime: by the name
 * of its type, which is the `model_type` of its key, else what it is registered with, `mt:` and
 * what follows the format left out. What a pipeline has in its `types` is that pipeline's, all else
 * the runtime's; or, with `runtime_types`, what that has, and the rest is nobody's. DESIGN.md.
 *
 * Pure: any thread.
 */
#pragma once

#include "coordinator/config/config.h"

/* The pools of such a node (K6 of the core). One that has no pipelines with `models`, or no
 * runtime, has one pool, the first. */
enum mesh_pool { MESH_POOL_PIPELINES, MESH_POOL_EXTERNAL };

/* As the core asks for it: `config` is a struct config. Nobody's are the pipelines', which refuse
 * them. */
uint32_t mesh_types_pool(const void *config, const char *type, const char *key);

/* The name of a type that a model is registered with; "": none that a pipeline could have. */
void mesh_types_name(const char *type, char name[CONFIG_NAME_BYTES_MAX + 1]);
