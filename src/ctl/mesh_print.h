/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the status of models and vmodels as text and JSON. The messages come from another process:
 * unknown status numbers are shown as numbers, texts unchanged.
 */
#pragma once

#include <stdbool.h>

#include "ctl/ctl.h"
#include "mmesh/model-mesh.pb-c.h"

void mesh_print_model(const char *id, const Mmesh__ModelStatusInfo *info, enum ctl_output output);
void mesh_print_vmodel(const char *id, const Mmesh__VModelStatusInfo *info, enum ctl_output output);

/* Returns whether a script may continue: the model is known and its load has not failed. */
bool mesh_model_is_good(const Mmesh__ModelStatusInfo *info);
bool mesh_vmodel_is_good(const Mmesh__VModelStatusInfo *info);
