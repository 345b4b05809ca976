/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's repair of records: rules G1 and G2. */
#pragma once

#include "mesh/core/state.h"

void reaper_tick(struct mesh *mesh);
