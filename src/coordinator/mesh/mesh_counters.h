/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mesh in the node's counters (counters.def, `MESH_…`). The counts of the runner, the peers and
 * the etcd client are copied periodically; only the nodes of the mesh are walked for that.
 * Histograms are written as things happen.
 */
#pragma once

#include "coordinator/mesh/mesh_store.h"
#include "mesh/edge/runner.h"

struct peers;

/* Loop thread. `peers` NULL: there are no other nodes. `store` need not be open yet. */
void mesh_counters_publish(_Atomic uint64_t *counters, struct mesh_runner *runner,
                           struct peers *peers, const struct mesh_store *store);

/* runner_options.on_measure: under the runner's lock, so there is one writer at a time. */
void mesh_counters_measure(_Atomic uint64_t *counters, enum runner_measure measure, uint64_t value);
