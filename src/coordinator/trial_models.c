/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/trial_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "coordinator/models/catalog.h"
#include "coordinator/models/models.h"
#include "coordinator/workers/pool_member.h"

enum {
    TELL_MS = 2000,
    /* The catalog ends each load by itself: two attempts, and a worker's restart before each. */
    LOAD_TIMES_MAX = 4,
    RESTARTS_MS = 120 * 1000,
};

static void try_next(struct trial_models *models);

static void
fail(struct trial_models *models, const char *why)
{
    char mistake[2 * ERROR_TEXT_MAX + HANDSHAKE_PATH_BYTES];
    snprintf(mistake, sizeof(mistake), "pipeline \"%s\": model \"%s\" (%s): %s",
             catalog_pipeline(models->catalog), models->id, models->path, why);
    models->options.on_failed(models->options.context, mistake);
}

static void
end(struct trial_models *models)
{
    models->is_over = true;
    models->options.on_end(models->options.context);
}

/* ---- one model ---- */

static const struct pipeline *
pipeline_of(const struct trial_models *models)
{
    const struct assembly *assembly = models->options.assembly;
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        if (assembly->pipelines[i]->catalog == models->catalog)
            return assembly->pipelines[i];
    UNREACHABLE();
}

/* Returns the workers of the model's pipeline; NULL: they are gone, as a model has overwritten
 * their region. */
static struct worker_pools *
pools_of(const struct trial_models *models)
{
    const struct pipeline *pipeline = pipeline_of(models);
    struct worker_pools *pools = NULL;
    for (uint32_t i = 0; i < LANES_MAX && pools == NULL; i++)
        pools = pipeline->pools[i];
    return pools;
}

/* Counts the deaths of these workers, whatever lane they were in. */
static uint64_t
deaths(const struct trial_models *models)
{
    const struct worker_pools *pools = pools_of(models);
    uint64_t sum = 0;
    for (uint32_t stage = 0; pools != NULL && stage < pools->stage_count; stage++)
        sum += counter_get(pools->pools[stage].counters, STAGE_RESTARTS);
    return sum;
}

/* Models that crash their worker must not delay the trial of the others by its back-off. */
static void
forget_deaths(const struct trial_models *models)
{
    struct worker_pools *pools = pools_of(models);
    for (uint32_t i = 0; pools != NULL && i < pools->pool_member_count; i++)
        pools->members[i].quick_deaths = 0;
}

/* An unload succeeds also by its worker's death. */
static void
on_unloaded(void *context, const struct error *error, const struct model_facts *facts)
{
    struct trial_models *models = context;
    (void)error;
    (void)facts;
    if (models->is_over)
        return;
    if (models->is_loaded && deaths(models) != models->deaths)
        fail(models, "its worker died after it had loaded it, or while it unloaded it");
    try_next(models);
}

static void
on_loaded(void *context, const struct error *error, const struct model_facts *facts)
{
    struct trial_models *models = context;
    (void)facts;
    if (models->is_over)
        return;
    models->tried++;
    models->is_loaded = error == NULL;
    models->loaded += models->is_loaded;
    models->deaths = deaths(models);
    if (error != NULL)
        fail(models, error->text);
    (void)models_unlist(models->catalog, models->id);
    models_unload(models->options.assembly->registry, models->id, on_unloaded, models);
}

/* ---- the next model ---- */

static struct catalog *
catalog_of(const struct trial_models *models, const char *pipeline)
{
    const struct assembly *assembly = models->options.assembly;
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        if (strcmp(assembly->pipelines[i]->name, pipeline) == 0)
            return models->options.serves[i] ? assembly->pipelines[i]->catalog : NULL;
    return NULL;
}

static void
set_text(char **text, const char *value)
{
    free(*text);
    *text = strdup(value);
    CHECK(*text != NULL);
}

static void
load(struct trial_models *models, const struct model_row *row)
{
    char path[2 * HANDSHAKE_PATH_BYTES];
    bool is_relative = row->in_root && row->path[0] != '/';
    snprintf(path, sizeof(path), "%s%s%s", is_relative ? catalog_root(models->catalog) : "",
             is_relative ? "/" : "", row->path);
    set_text(&models->path, path);
    struct catalog_facts facts;
    models_facts(models->catalog, &facts);
    models->deadline_ns =
        clock_now_ns() + LOAD_TIMES_MAX * facts.load_timeout_ns + RESTARTS_MS * (int64_t)NS_PER_MS;
    const struct model_spec spec = {
        .id = row->id, .path = row->path, .key = row->key, .in_root = row->in_root};
    models_load(models->catalog, &spec, on_loaded, models);
}

/* The row's texts are valid until here. False: its model is being tried. */
static bool
try_row(void *context, const struct model_row *row)
{
    struct trial_models *models = context;
    bool was_tried = models->id != NULL && strcmp(models->id, row->id) == 0;
    struct catalog *catalog = was_tried ? NULL : catalog_of(models, row->pipeline);
    if (catalog == NULL)
        return true;
    models->catalog = catalog;
    forget_deaths(models);
    set_text(&models->id, row->id);
    load(models, row);
    return false;
}

static void
try_next(struct trial_models *models)
{
    const struct model_range range = {.from = models->id != NULL ? models->id : "",
                                      .most = UINT32_MAX};
    models->catalog = NULL;
    (void)models_visit(models->options.assembly->registry, &range, try_row, models);
    if (models->catalog == NULL)
        end(models);
}

void
trial_models_begin(struct trial_models *models, const struct trial_models_options *options)
{
    *models = (struct trial_models){.options = *options, .reported_ns = clock_now_ns()};
    for (uint32_t i = 0; i < options->assembly->pipeline_count; i++) {
        struct catalog_facts facts = {0};
        if (options->serves[i] && options->assembly->pipelines[i]->catalog != NULL)
            models_facts(options->assembly->pipelines[i]->catalog, &facts);
        models->known += facts.known;
    }
    try_next(models);
}

void
trial_models_look(struct trial_models *models)
{
    int64_t now_ns = clock_now_ns();
    if (models->is_over)
        return;
    if (now_ns - models->reported_ns >= TELL_MS * (int64_t)NS_PER_MS) {
        models->reported_ns = now_ns;
        log_plain("shoald: %u of %u models tried; loading \"%s\" of pipeline \"%s\"", models->tried,
                  models->known, models->id, catalog_pipeline(models->catalog));
    }
    if (now_ns < models->deadline_ns)
        return;
    fail(models,
         "neither loaded nor failed, or was not unloaded, as its pipeline has no worker; no "
         "further model of any pipeline was tried");
    end(models);
}

void
trial_models_fini(struct trial_models *models)
{
    free(models->id);
    free(models->path);
}
