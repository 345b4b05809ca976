/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model types that a configuration names for its pipelines and for an external runtime.
 * mesh/mesh_types.h decides by them which pool loads a model. Pure.
 */
#pragma once

#include "coordinator/config/config.h"

/* Returns whether a runtime beside the pipelines may load models: `runtime`, or one that `images`
 * run. */
bool config_has_runtime(const struct config *config);

/* Returns whether pipelines and an external runtime both load models. */
bool config_types_are_shared(const struct config *config);

/* Returns whether a pipeline has that name in its `types`. */
bool config_types_has_pipeline(const struct config *config, const char *name);

/* Returns whether `name` is one of the comma-separated `names`. */
bool config_types_lists(const char *names, const char *name);
