/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose tries may not be repeated: rule R15. */
#pragma once

#include "mesh/core/state.h"

/* Marks unreachable copies as tried. */
void non_retryable_pass_over(struct mesh *mesh, struct core_call *call);
/* Unmarks them and routes the call again; false: there were none. */
bool non_retryable_turn_back(struct mesh *mesh, uint32_t call);
