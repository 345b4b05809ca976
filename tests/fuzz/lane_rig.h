/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real lane for fuzzers that are its workers: SLOTS slots and STAGES stages (region_steps.h), two
 * workers' places at the first and one at the last. Made once, and put back for each input.
 */
#pragma once

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/pipeline/audit.h"
#include "coordinator/pipeline/generation.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "region_steps.h"

enum { MESSAGE_BYTES_MAX = 32 << 10, ARENA_BYTES = 512 << 10 };
#define DESERT_BYTES ((size_t)1 << 30)

static struct loop *loop;
static struct config_stage stages[STAGES];
static struct config_pipeline pipeline_config = {.slot_count = SLOTS, .stage_count = STAGES};
static struct generation generation = {.config = &pipeline_config};
static _Atomic uint64_t counters[1 << 14];
static struct pipeline pipeline = {.name = "m", .generation = &generation};
static struct lane lane;
static char *pristine; /* the region as it was made */

/* Moves the region to where nothing lies for a gigabyte on either side: sanitizers do not watch
 * memory that was mapped. */
static void
isolate(struct region *region)
{
    size_t bytes = region->layout.region_bytes;
    char *desert =
        mmap(NULL, 2 * DESERT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(desert != MAP_FAILED);
    char *base =
        mremap(region->base, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, desert + DESERT_BYTES);
    CHECK(base == desert + DESERT_BYTES);
    region->slots.first = base + (region->slots.first - region->base);
    region->blocks.first = base + (region->blocks.first - region->base);
    region->header = (struct region_header *)(void *)base;
    region->base = base;
}

static void
rig_start(const char *name, uint64_t stream_bytes)
{
    log_init(name, LOG_ERROR);
    struct error error = ERROR_NONE;
    struct region_plan plan = {
        .slot_count = SLOTS, .stage_count = STAGES, .worker_counts = {2, 1}, .pieces = 1};
    CHECK(plan_arena(&plan, MESSAGE_BYTES_MAX, ARENA_BYTES, &error) == STATUS_OK);
    CHECK(region_create(&lane.region, &plan, 1, &error) == STATUS_OK);
    isolate(&lane.region);
    CHECK(loop_create(&loop, &error) == STATUS_OK);
    CHECK((pristine = malloc(lane.region.layout.region_bytes)) != NULL);
    memcpy(pristine, lane.region.base, lane.region.layout.region_bytes);
    for (uint32_t i = 0; i < STAGES; i++)
        stages[i].worker_count = plan.worker_counts[i];
    pipeline_config.stages = stages;
    pipeline_config.stream_bytes = stream_bytes;
    pipeline.counters = counters;
    pipeline.wait_queue = wait_queue_create(&pipeline);
    pipeline.options.loop = loop;
    CHECK(pthread_mutex_init(&lane.pieces_lock, NULL) == 0);
    lane.pipeline = &pipeline;
    lane.generation = &generation;
    lane.info = (struct oip_model_info){.name = "m", .version = "1"};
    CHECK((lane.requests = calloc(SLOTS, sizeof(*lane.requests))) != NULL);
    for (uint32_t i = 0; i < SLOTS; i++) {
        lane.requests[i].lane = &lane;
        lane.requests[i].oip = oip_request_create();
    }
}

static void
rig_begin(void)
{
    memcpy(lane.region.base, pristine, lane.region.layout.region_bytes);
    for (uint32_t i = 0; i < SLOTS; i++)
        atomic_store(&lane.requests[i].use, 0);
    lane.audit = audit_create(SLOTS, lane.region.blocks.count);
    lane.owner_next = OWNER_COORDINATOR + 1;
    atomic_store(&lane.dead_stages, 0);
    atomic_store(&lane.piece_in_hand, 0);
    atomic_store(&lane.corrupt_reported, false);
    atomic_store(&lane.refs, 1);
    atomic_store(&lane.state, LANE_SERVING);
}
