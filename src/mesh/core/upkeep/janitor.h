/* SPDX-License-Identifier: Apache-2.0 */
/* Repairs what concerns this node: rules J. */
#pragma once

#include "mesh/core/state.h"

void janitor_tick(struct mesh *mesh);
