/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when this node's record is written: every node receives each write, so minor changes of
 * the figures are not written; important ones also travel on replies. Pure; rules N1 to N4 are in
 * the .c file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"

/* The record's content, as written or to be written. */
struct publish {
    struct mesh_figures figures;
    struct mesh_figures pools[MESH_POOLS_MAX]; /* of a node with several (K6) */
    uint32_t pool_count;                       /* always the same; 0: it has one pool */
    uint32_t loaders;
    bool draining;
};

/* `age_ms`: since the last write. */
bool publish_is_due(const struct publish *said, const struct publish *now, int64_t age_ms);
