/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When this node's record is written: every node hears of each write, so figures that have hardly
 * moved stay unsaid; those that matter travel on replies as well. Pure; rules N1 to N4 in the .c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"

/* The content of the record, written or to be written. */
struct publish {
    struct mesh_figures figures;
    uint32_t loaders;
    bool draining;
};

/* `age_ms`: since it was written. */
bool publish_is_due(const struct publish *said, const struct publish *now, int64_t age_ms);
