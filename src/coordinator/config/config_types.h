/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of models that a configuration names: those of its pipelines, and those that an
 * external runtime has. Whose a model is by them: mesh/mesh_types.h. Pure.
 */
#pragma once

#include "coordinator/config/config.h"

/* Pipelines and an external runtime both load models. */
bool config_types_are_shared(const struct config *config);

/* A pipeline has that name in its `types`. */
bool config_types_has_pipeline(const struct config *config, const char *name);

/* Whether it is one of those names, commas between. */
bool config_types_lists(const char *names, const char *name);
