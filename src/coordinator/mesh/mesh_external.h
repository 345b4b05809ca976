/* SPDX-License-Identifier: Apache-2.0 */
/* The external runtime of a node, from its configuration: with the files of its models fetched, and
 * its built-in adapter. */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/telemetry/meters.h"
#include "mesh/edge/external.h"

struct storage;

struct mesh_external_options {
    const struct config *config; /* with `runtime` or `images` in `mesh` */
    struct storage *storage;     /* NULL: models are not fetched */
    const char *repository;      /* for servers that the node runs */
    struct rpc_queue *const *queues;
    uint32_t queue_count;
    uint32_t pool;
    struct meters *meters;            /* NULL: none */
    void (*on_change)(void *context); /* as in external_options */
    void *context;
};

struct external *mesh_external_open(const struct mesh_external_options *options);
