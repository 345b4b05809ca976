/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner's runtime for this node's pipelines: loads and unloads their models by models.h. Loop
 * thread.
 */
#pragma once

#include "coordinator/models/models.h"
#include "mesh/edge/runner.h"

struct config;
struct mesh_loads;

/* `shared`: an external runtime loads models, too (mesh_types.h); NULL: there is none. */
struct mesh_loads *mesh_loads_create(struct pipeline *const *pipelines, uint32_t pipeline_count,
                                     struct model_registry *registry, const struct config *shared);
/* After every pipeline is gone, and with it every outcome of a load. */
void mesh_loads_destroy(struct mesh_loads *loads);

struct runner_runtime mesh_loads_for_runner(struct mesh_loads *loads);

/* Sets the runner that is told the results of loads; before the first load. */
void mesh_loads_bind(struct mesh_loads *loads, struct mesh_runner *runner);

/* Announces the pool of each pipeline with models. */
void mesh_loads_announce(const struct mesh_loads *loads);
