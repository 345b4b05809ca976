/* SPDX-License-Identifier: Apache-2.0 */
/* Loads that hang: rule R17. */
#pragma once

#include "mesh/core/state.h"

void elsewhere_tick(struct mesh *mesh);
/* A peer sent back a call that waited for a load there: that load counts as a copy that was tried
 * without success. */
void elsewhere_learn(struct mesh *mesh, struct core_call *call, uint32_t instance);
