/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which pool loads a model on a node that has pipelines with `models` and an external
 * runtime, by the name of its type: the `model_type` of its key, else the registered type without
 * `mt:` and without what follows the format. A pipeline gets the types in its `types`, the runtime
 * those in `runtime_types`, or all others if that is left out; no pool loads the rest.
 * DESIGN-calls.md.
 *
 * Pure: any thread.
 */
#pragma once

#include "coordinator/config/config.h"

/* The pools of such a node (K6 of the core). A node without pipelines with `models`, or without a
 * runtime, has only the first. */
enum mesh_pool { MESH_POOL_PIPELINES, MESH_POOL_EXTERNAL };

/* The core's callback; `config` is a struct config. Types of no pool go to the pipelines, which
 * refuse them. */
uint32_t mesh_types_pool(const void *config, const char *type, const char *key);

/* The name within a registered type; "": none that a pipeline could have. */
void mesh_types_name(const char *type, char name[CONFIG_NAME_BYTES_MAX + 1]);
