/* SPDX-License-Identifier: Apache-2.0 */
/* Drains this node: rules D. */
#pragma once

#include "mesh/core/state.h"

void drain_begin(struct mesh *mesh);
void drain_tick(struct mesh *mesh);
/* A record has changed. */
void drain_on_model(struct mesh *mesh, uint32_t model);
/* D1, D5. O(entries). */
void drain_check(const struct mesh *mesh);
