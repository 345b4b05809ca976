/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of the number of copies, each second: rules B3 to B5. */
#pragma once

#include "mesh/core/state.h"

void bounds_tick(struct mesh *mesh);
/* Call when the model's record has changed. */
void bounds_on_model(struct mesh *mesh, uint32_t model);
