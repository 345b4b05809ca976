/* SPDX-License-Identifier: Apache-2.0 */
/* The external runtime of a node, from its configuration: with the files of its models fetched, and
 * its built-in adapter. */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/telemetry/meters.h"
#include "mesh/edge/external.h"

struct storage;

struct mesh_external_options {
    const struct config *config; /* with `mesh: runtime` */
    struct storage *storage;     /* NULL: models are not fetched */
    struct rpc_queue *const *queues;
    uint32_t queue_count;
    uint32_t pool;
    struct meters *meters; /* NULL: none */
};

enum status mesh_external_open(const struct mesh_external_options *options,
                               struct external **external, struct error *error) WARN_UNUSED;
