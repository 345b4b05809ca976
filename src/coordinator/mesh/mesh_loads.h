/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a mesh loads and unloads the models of this node's pipelines: the driver's runtime, by
 * models.h. Loop thread.
 */
#pragma once

#include "coordinator/models/models.h"
#include "mesh/edge/driver.h"

struct config;
struct mesh_loads;

/* `shared`: an external runtime loads models, too (mesh_types.h); NULL: none does. */
struct mesh_loads *mesh_loads_create(struct pipeline *const *pipelines, uint32_t pipeline_count,
                                     struct registry *registry, const struct config *shared);
/* When every pipeline is gone, and with them whoever may still tell how a load went. */
void mesh_loads_destroy(struct mesh_loads *loads);

struct driver_runtime mesh_loads_for_driver(struct mesh_loads *loads);

/* Sets the driver that is told of loads' results; before the first. */
void mesh_loads_bind(struct mesh_loads *loads, struct driver *driver);

/* Of all pipelines together, which are one runtime to the mesh: runtime_figures. */
struct driver_capacity mesh_loads_capacity(const struct mesh_loads *loads);
