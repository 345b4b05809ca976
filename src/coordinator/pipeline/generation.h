/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A generation of a pipeline: what one lane and its workers are made from. Each reload makes a new
 * one; the lane that serves and the one that drains may be of different generations. It keeps the
 * file's configuration alive for as long as any lane was made from it.
 *
 * Loop thread; front threads only read, through a lane that they have a reference on.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "shm/counters.h"

/* A configuration that several generations share. */
struct config_source {
    struct config config;
    uint32_t refs;
};

/* Takes over `config`, which is empty after that. One reference is the caller's. */
struct config_source *config_source_create(struct config *config);
struct config_source *config_source_ref(struct config_source *source);
void config_source_unref(struct config_source *source);

struct generation {
    struct config_source *source;
    const struct config_pipeline *config;
    uint64_t number; /* of the pipeline's; the first is 1 */
    struct counters *counters;
    uint32_t stage_scopes[STAGES_MAX];   /* of a stage's name: generations share them */
    uint32_t *worker_scopes[STAGES_MAX]; /* one per seat, this generation's alone */
    uint32_t refs;
};

/*
 * Claims what it needs of the counters, under the pipeline's scope. RESOURCE_EXHAUSTED: the file of
 * counters has no room left for stages or workers that were not there at the start.
 */
enum status generation_create(struct config_source *source, const struct config_pipeline *config,
                              uint64_t number, struct counters *counters, uint32_t pipeline_scope,
                              struct generation **generation, struct error *error) WARN_UNUSED;
struct generation *generation_ref(struct generation *generation);
/* The last one frees it. NULL is left alone. */
void generation_unref(struct generation *generation);
