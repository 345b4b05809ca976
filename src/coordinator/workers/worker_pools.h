/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker processes of a lane: starts them, learns when they are ready or dead, repairs what the
 * dead left, restarts them with back-off. Only a pidfd reports a death. Pipelines use worker pools
 * through pipeline/lane_workers.h, which says what the functions do. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/pipeline/lane_workers.h"
#include "coordinator/workers/member_models.h"

/*
 * Back-off: a dead worker is replaced at once. The death of a worker that was ready for less than
 * QUICK_DEATH_MS is a quick one; after QUICK_DEATHS_MAX in a row the next start waits, twice as
 * long each time.
 */
enum {
    QUICK_DEATHS_MAX = 3,
    QUICK_DEATH_MS = 1000,
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MAX_MS = 10000
};

/* Returns the value of `pipeline_options.workers`. `models` is kept. */
struct lane_workers worker_pools_lane_workers(const struct member_models *models);

/* Live and ready workers of a stage. */
uint32_t worker_pools_live(const struct worker_pools *pools, uint32_t stage);
struct worker_process worker_pools_process(const struct worker_pools *pools, uint32_t stage,
                                           uint32_t index);

/* ---- its client regions, the regions of local clients (client_region.h) ---- */

void worker_pools_region_end(struct worker_pools *pools);
struct client_region_counts worker_pools_region_count(const struct worker_pools *pools);
