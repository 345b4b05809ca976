/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane's worker processes, as pipelines use them: a table of functions that workers/ fills
 * (workers/worker_pools.h) and the assembly hands over with the pipeline's options. Nothing in
 * pipeline/ calls workers/ in any other way, so calls by name go in one direction only: from
 * workers/ to here. A worker pools is the worker processes of one lane. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct lane;
struct pipeline;
struct worker_pools;
struct shm_worker;

/* A process; `worker` is its words in the lane's region, NULL: there is none. */
struct worker_process {
    struct shm_worker *worker;
    uint16_t owner;
    int32_t pid; /* 0: none */
};

/* Regions of local clients that a lane's workers serve. */
struct client_region_counts {
    uint32_t served;
    uint32_t ending; /* workers still finish something in them */
};

enum publish_extent {
    PUBLISH_WORKERS,            /* signs of life */
    PUBLISH_WORKERS_AND_STAGES, /* the stages' gauges, too: this lane serves, or none does */
};

struct lane_workers {
    /* Starts a process for each worker of the lane. `*pools` is set before the first start can
     * fail; pipeline_on_start_failed gets failures. */
    void (*create)(const void *context, struct pipeline *pipeline, struct lane *lane,
                   struct worker_pools **pools);
    /* Called when no process is left. */
    void (*destroy)(struct worker_pools *pools);
    /* SIGTERM to all, SIGKILL to those still there after `grace_ns`; then
     * pipeline_on_workers_stopped. */
    void (*stop)(struct worker_pools *pools, int64_t grace_ns);
    /* SIGKILL to all; then, when the last is gone, pipeline_on_workers_stopped. */
    void (*kill)(struct worker_pools *pools);
    /* Returns whether one of its stages is in quarantine. */
    bool (*is_quarantined)(const struct worker_pools *pools);
    struct worker_process (*process)(const struct worker_pools *pools, uint32_t stage,
                                     uint32_t index);
    void (*publish)(struct worker_pools *pools, enum publish_extent extent);
    /* The lane ends or has a successor: each owner of a local client's region is notified when no
     * worker is in it any more. */
    void (*end_client_regions)(struct worker_pools *pools);
    struct client_region_counts (*count_client_regions)(const struct worker_pools *pools);
    const void *context; /* of `create` */
};
