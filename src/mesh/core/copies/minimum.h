/* SPDX-License-Identifier: Apache-2.0 */
/* The least number of copies of a model: rules B4 and B5. */
#pragma once

#include "mesh/core/state.h"

/* B4: copies that shall stay now. 0: none. */
uint32_t minimum_of(const struct mesh *mesh, uint32_t model);
/* B5: the loaded copy is needed for it. */
bool minimum_needs(const struct mesh *mesh, const struct core_entry *entry);
