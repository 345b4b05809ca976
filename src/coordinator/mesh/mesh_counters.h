/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mesh in the node's counters (counters.def, `MESH_…`). What the driver, the peers and the
 * client of etcd count for themselves is copied every now and then, from what they keep: nothing is
 * walked but the nodes of the mesh. Histograms are written as things happen.
 */
#pragma once

#include "mesh/edge/driver.h"

struct etcd;
struct peers;

/* Loop thread. NULL: there are no other nodes, or it is not in etcd. */
void mesh_counters_publish(_Atomic uint64_t *counters, struct driver *driver, struct peers *peers,
                           const struct etcd *etcd);

/* driver_options.on_measure: under the driver's lock, so there is one writer at a time. */
void mesh_counters_measure(_Atomic uint64_t *counters, enum driver_measure measure, uint64_t value);
