/* SPDX-License-Identifier: Apache-2.0 */
/* Repairs what concerns this node: rules J. */
#pragma once

#include "mesh/core/state.h"

void janitor_tick(struct mesh *mesh);
/* J5, B3: only the copy that began to load last goes, so not all go at once. */
bool janitor_is_last_to_come(const struct mesh *mesh, const struct core_model *model,
                             const struct core_place *own);
