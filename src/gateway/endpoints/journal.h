/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records for the dashboard: the last placements of a pool with the scores that decided them, and
 * how long endpoints take. Memory is taken when it is created.
 */
#pragma once

#include <stdint.h>

#include "base/json.h"
#include "gateway/config/endpoint_file.h"
#include "gateway/endpoints/latency.h"
#include "gateway/endpoints/pool.h"

enum { PLACEMENTS_MAX = 64, SHOWN_MAX = 256 };

struct placement {
    uint64_t number; /* from 1 on */
    int64_t at_ns;
    char names[GATEWAY_REASONS_MAX][ENDPOINT_NAME_BYTES]; /* of the reasons' endpoints */
    struct gateway_choice choice;
};

struct endpoint_latency {
    struct latency_window first; /* to the first token */
    struct latency_window token; /* from one to the next */
};

struct pool_journal {
    uint64_t count; /* placements ever */
    struct placement placements[PLACEMENTS_MAX];
    struct endpoint_latency latencies[]; /* by endpoint */
};

struct pool_journal *journal_create(uint32_t endpoints_max);
void journal_add(struct endpoint_pool *pool, const struct gateway_choice *choice);
