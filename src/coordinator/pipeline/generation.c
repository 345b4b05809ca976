/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/generation.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

struct config_source *
config_source_create(struct config *config)
{
    struct config_source *source = calloc(1, sizeof(*source));
    CHECK(source != NULL);
    source->config = *config;
    source->refs = 1;
    *config = (struct config){0};
    return source;
}

struct config_source *
config_source_ref(struct config_source *source)
{
    source->refs++;
    return source;
}

void
config_source_unref(struct config_source *source)
{
    CHECK(source->refs > 0);
    if (--source->refs > 0)
        return;
    config_free(&source->config);
    free(source);
}

/* ---- counters ---- */

static void
release_stage(struct generation *generation, uint32_t stage, uint32_t worker_count)
{
    for (uint32_t i = 0; i < worker_count; i++)
        counters_release(generation->counters, generation->worker_scopes[stage][i]);
    free(generation->worker_scopes[stage]);
    counters_release(generation->counters, generation->stage_scopes[stage]);
}

/* Claims all scopes of a stage, or none. */
static enum status
claim_stage(struct generation *generation, uint32_t stage, uint32_t pipeline_scope,
            struct error *error)
{
    const struct config_stage *config = &generation->config->stages[stage];
    uint32_t *scope = &generation->stage_scopes[stage];
    enum status status = counters_claim(generation->counters, SCOPE_STAGE, pipeline_scope,
                                        config->name, scope, error);
    if (status != STATUS_OK)
        return status;
    generation->worker_scopes[stage] = calloc(config->worker_count, sizeof(uint32_t));
    CHECK(generation->worker_scopes[stage] != NULL);
    for (uint32_t i = 0; i < config->worker_count; i++) {
        char name[COUNTERS_NAME_BYTES];
        snprintf(name, sizeof(name), "%u", i);
        status = counters_claim(generation->counters, SCOPE_WORKER, *scope, name,
                                &generation->worker_scopes[stage][i], error);
        if (status != STATUS_OK) {
            release_stage(generation, stage, i);
            return status;
        }
    }
    return STATUS_OK;
}

/* ---- the whole ---- */

enum status
generation_create(const struct generation_options *options, struct generation **created,
                  struct error *error)
{
    const struct config_pipeline *config = options->config;
    struct generation *generation = calloc(1, sizeof(*generation));
    CHECK(generation != NULL);
    generation->config = config;
    generation->number = options->number;
    generation->counters = options->counters;
    for (uint32_t stage = 0; stage < config->stage_count; stage++) {
        if (claim_stage(generation, stage, options->pipeline_scope, error) == STATUS_OK)
            continue;
        while (stage-- > 0)
            release_stage(generation, stage, config->stages[stage].worker_count);
        free(generation);
        return error_prefix(error, "pipeline \"%s\"", config->name);
    }
    generation->source = config_source_ref(options->source);
    generation->refs = 1;
    *created = generation;
    return STATUS_OK;
}

struct generation *
generation_ref(struct generation *generation)
{
    generation->refs++;
    return generation;
}

void
generation_unref(struct generation *generation)
{
    if (generation == NULL)
        return;
    CHECK(generation->refs > 0);
    if (--generation->refs > 0)
        return;
    for (uint32_t stage = 0; stage < generation->config->stage_count; stage++)
        release_stage(generation, stage, generation->config->stages[stage].worker_count);
    config_source_unref(generation->source);
    free(generation);
}
