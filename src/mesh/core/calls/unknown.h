/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for unknown ids: rule R13. */
#pragma once

#include "mesh/core/state.h"

/* False: there is no registry to ask. */
bool unknown_ask(struct mesh *mesh, const struct mesh_event *event);
void unknown_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end);
void unknown_cancelled(struct mesh *mesh, uint32_t call);
void unknown_tick(struct mesh *mesh);
