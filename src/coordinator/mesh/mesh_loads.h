/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner's runtime for this node's pipelines: loads and unloads their models by models.h. Loop
 * thread.
 */
#pragma once

#include "coordinator/models/models.h"
#include "mesh/edge/runner.h"

struct config;

/* Must stay until every pipeline is gone, and with it every outcome of a load. */
struct mesh_loads {
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_registry *registry;
    const struct config *shared; /* an external runtime loads models, too (mesh_types.h); or NULL */
    struct mesh_runner *runner;  /* gets the results of loads; set before the first one */
};

struct runner_runtime mesh_loads_for_runner(struct mesh_loads *loads);

/* Announces the pool of each pipeline with models. */
void mesh_loads_announce(const struct mesh_loads *loads);
