/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One gateway core and its virtual servers and clients on virtual time. A seed decides everything.
 * Servers die, hang, decline, answer late, are removed and added; clients leave. An invariant that
 * breaks prints `broken: NAME` and ends the process.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gateway/core/gateway_core.h"

struct world_totals {
    uint64_t requests, answered, refused, cancelled, broken, retried, ejected, returned, faults;
    uint64_t scrapes;
    uint64_t objectives_missed; /* answers of routes that missed theirs */
    uint64_t refused_by[GATEWAY_REFUSAL_COUNT];
};

/* Runs one seed: faults, then convergence, then idleness. Returns the hash of its trace. */
uint64_t world_run(uint64_t seed, struct world_totals *totals);
