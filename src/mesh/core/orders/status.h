/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a model and of a vmodel by their records: rule O4. It lies in the step's memory. */
#pragma once

#include "mesh/core/state.h"

struct mesh_status status_of(struct mesh *mesh, uint32_t model);
struct mesh_vmodel_status vmodel_status_of(struct mesh *mesh, uint32_t vmodel);
