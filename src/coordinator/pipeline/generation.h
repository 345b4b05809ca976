/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A generation of a pipeline: the configuration that one lane and its workers are made from. Each
 * reload makes a new one, so a serving and a draining lane may have different generations. It keeps
 * the file's configuration alive while a lane made from it exists.
 *
 * Loop thread; front threads only read, through a lane that they have a reference to.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "ipc/counters.h"

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
    uint64_t number; /* within the pipeline; the first is 1 */
    struct counters *counters;
    uint32_t stage_scopes[STAGES_MAX];   /* per stage name; shared by generations */
    uint32_t *worker_scopes[STAGES_MAX]; /* one per place; this generation's only */
    uint32_t refs;
};

struct generation_options {
    struct config_source *source;
    const struct config_pipeline *config; /* within `source` */
    uint64_t number;
    struct counters *counters;
    uint32_t pipeline_scope;
};

/*
 * Claims its scopes in the counters under the pipeline's scope. RESOURCE_EXHAUSTED: the counters
 * file has no room left for stages or workers added since the start.
 */
enum status generation_create(const struct generation_options *options,
                              struct generation **generation, struct error *error) WARN_UNUSED;
struct generation *generation_ref(struct generation *generation);
/* Frees it with the last reference. NULL is ignored. */
void generation_unref(struct generation *generation);
