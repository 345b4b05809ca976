/* SPDX-License-Identifier: Apache-2.0 */
/* Moves models to other nodes: rules D2, D3, E6 and H3. */
#pragma once

#include "mesh/core/state.h"

/* D3: returns a withdrawing entry to LOADED if it is needed again; false: it goes on leaving. */
bool migrate_stays(struct mesh *mesh, struct core_entry *entry);
/* D2, D3: moves the entries in `order` to other nodes; those that are loaded there leave. Returns
 * true if some are still waited for. */
bool migrate_in_order(struct mesh *mesh);
/* H3: moves or removes models that may not be here. */
void migrate_tick(struct mesh *mesh);
/* E6: an evicted entry whose place is gone from the record is offered to another node. */
void migrate_evicted(struct mesh *mesh, struct core_entry *entry);
