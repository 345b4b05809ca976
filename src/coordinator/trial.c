/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/assembly.h"
#include "coordinator/limits.h"
#include "coordinator/models/directories.h"
#include "coordinator/trial_models.h"
#include "coordinator/workers/pool_member.h"
#include "coordinator/workers/spawn.h"

enum { LOOK_MS = 20, MISTAKES_MAX = 1000 };

struct trial {
    void (*say)(const char *mistake);
    uint32_t mistakes;
    char *reported[MISTAKES_MAX]; /* a worker that is started again fails again */
    struct assembly assembly;
    struct loop *loop;
    struct loop_timer *timer;
    uint32_t *worker_counts; /* as configured, of all stages in their order */
    bool serves[CONFIG_PIPELINES_MAX];
    bool failed[CONFIG_PIPELINES_MAX];
    uint32_t stopped_count;
    uint32_t model_mistakes;
    bool loads_models; /* of folders */
    bool tries_models; /* now */
    bool stops;
    struct trial_models models;
};

static void
add_mistake(struct trial *trial, const char *text)
{
    for (uint32_t i = 0; i < trial->mistakes; i++)
        if (strcmp(trial->reported[i], text) == 0)
            return;
    if (trial->mistakes == MISTAKES_MAX)
        return;
    trial->reported[trial->mistakes] = strdup(text);
    CHECK(trial->reported[trial->mistakes] != NULL);
    trial->mistakes++;
    trial->say(text);
}

/* ---- events ---- */

static void
on_serving(void *context, struct pipeline *pipeline)
{
    struct trial *trial = context;
    trial->serves[pipeline->index] = true;
}

static void
on_not_serving(void *context, struct pipeline *pipeline)
{
    (void)context;
    (void)pipeline;
}

static void
on_start_failed(void *context, struct pipeline *pipeline, const struct error *error)
{
    struct trial *trial = context;
    if (trial->stops)
        return;
    trial->failed[pipeline->index] = true;
    add_mistake(trial, error->text);
}

static void
on_stopped(void *context, struct pipeline *pipeline)
{
    struct trial *trial = context;
    (void)pipeline;
    trial->stopped_count++;
    if (trial->stopped_count == trial->assembly.pipeline_count)
        loop_stop(trial->loop);
}

/* ---- until every stage is judged ---- */

/* Each of its workers is ready or has failed: a stage that fails does not hide another one. */
static bool
is_judged(const struct trial *trial, uint32_t index)
{
    const struct worker_pools *pools = trial->assembly.pipelines[index]->pools[0];
    if (trial->serves[index])
        return true;
    if (!trial->failed[index] || pools == NULL)
        return trial->failed[index];
    for (uint32_t i = 0; i < pools->pool_member_count; i++)
        if (pools->members[i].state != MEMBER_READY && pools->members[i].quick_deaths == 0)
            return false;
    return true;
}

/* One worker was started in the place of several. */
static void
check_workers_max(struct trial *trial)
{
    const uint32_t *wanted = trial->worker_counts;
    for (uint32_t i = 0; i < trial->assembly.pipeline_count; i++) {
        const struct pipeline *pipeline = trial->assembly.pipelines[i];
        const struct worker_pools *pools = pipeline->pools[0];
        for (uint32_t j = 0; j < pipeline->options.config->stage_count; j++, wanted++) {
            uint32_t most = pools == NULL ? 0 : pools->pools[j].workers_max;
            char text[512];
            snprintf(text, sizeof(text),
                     "pipeline \"%s\": stage \"%s\": %u workers, but its modelet's workers_max "
                     "is %u",
                     pipeline->name, pipeline->options.config->stages[j].name, *wanted, most);
            if (most != 0 && *wanted > most)
                add_mistake(trial, text);
        }
    }
}

static void
stop(struct trial *trial)
{
    trial->stops = true;
    if (trial->assembly.pipeline_count == 0)
        loop_stop(trial->loop);
    assembly_stop(&trial->assembly);
}

static bool
are_judged(const struct trial *trial)
{
    for (uint32_t i = 0; i < trial->assembly.pipeline_count; i++)
        if (!is_judged(trial, i))
            return false;
    return true;
}

/* Each model is tried once, so none is reported twice. */
static void
on_model_failed(void *context, const char *mistake)
{
    struct trial *trial = context;
    trial->model_mistakes++;
    trial->say(mistake);
}

static void
on_models_end(void *context)
{
    stop(context);
}

static void
try_models(struct trial *trial)
{
    const struct trial_models_options options = {.assembly = &trial->assembly,
                                                 .serves = trial->serves,
                                                 .on_failed = on_model_failed,
                                                 .on_end = on_models_end,
                                                 .context = trial};
    trial->tries_models = true;
    trial_models_begin(&trial->models, &options);
}

/* Workers that do not get ready are killed at `start_timeout_ms`, so that this ends. */
static void
on_look(void *context)
{
    struct trial *trial = context;
    assembly_publish(&trial->assembly);
    if (trial->tries_models) {
        trial_models_look(&trial->models);
    } else if (are_judged(trial)) {
        check_workers_max(trial);
        if (trial->loads_models)
            try_models(trial);
        else
            stop(trial);
    }
    if (!trial->stops)
        loop_timer_set(trial->timer, LOOK_MS * (int64_t)NS_PER_MS);
}

/* ---- the run ---- */

/* And no model before it is tried. */
static void
take_one_worker(struct trial *trial, struct config *config)
{
    uint32_t count = 0;
    trial->worker_counts = calloc(CONFIG_PIPELINES_MAX * (size_t)STAGES_MAX, sizeof(uint32_t));
    CHECK(trial->worker_counts != NULL);
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        struct config_pipeline *pipeline = &config->pipelines[i];
        for (uint32_t j = 0; j < pipeline->stage_count; j++) {
            trial->worker_counts[count++] = pipeline->stages[j].worker_count;
            pipeline->stages[j].worker_count = 1;
        }
        free(pipeline->models.preload);
        pipeline->models.preload = strdup("no");
        CHECK(pipeline->models.preload != NULL);
    }
}

/* Entries of a root that cannot be models are logged, as by a node. */
static enum status
run(struct trial *trial, struct error *error)
{
    struct model_directories *directories = NULL;
    enum status status =
        model_directories_create(trial->loop, NULL, trial->assembly.pipelines,
                                 trial->assembly.pipeline_count, &directories, error);
    if (trial->loads_models && status == STATUS_OK)
        trial->model_mistakes = model_directories_refused(directories);
    log_set_level(LOG_NOTHING); /* what fails from here on is reported as a mistake, once */
    if (status == STATUS_OK)
        status = assembly_start(&trial->assembly, error);
    if (status == STATUS_OK)
        loop_timer_set(trial->timer, LOOK_MS * (int64_t)NS_PER_MS);
    else
        stop(trial);
    loop_run(trial->loop);
    loop_run_posted(trial->loop);
    model_directories_destroy(directories);
    return status;
}

static enum status
run_with_source(struct trial *trial, const struct node_options *options,
                struct config_source *source, const char *counters_path, struct error *error)
{
    struct assembly_options assembly = {
        .source = source,
        .counters_path = counters_path,
        .worker_program = options->worker_program,
        .loop = trial->loop,
        .pin = false,
        .log_level = LOG_WARN,
        .events = {on_serving, on_not_serving, on_start_failed, on_stopped, trial},
    };
    enum status status = assembly_init(&trial->assembly, &assembly, error);
    if (status == STATUS_OK)
        status = run(trial, error);
    assembly_end_gathering(&trial->assembly);
    assembly_fini(&trial->assembly);
    return status;
}

uint32_t
trial_run(const struct node_options *options, struct config *config,
          void (*say)(const char *mistake), uint32_t *models)
{
    struct trial trial = {.say = say, .loads_models = options->loads_models};
    struct error error = ERROR_NONE;
    char folder[HANDSHAKE_PATH_BYTES];
    char counters_path[HANDSHAKE_PATH_BYTES + 16];
    const char *place = getenv("TMPDIR");
    if (limits_allow(config, &error) != STATUS_OK) {
        say(error.text);
        return 1;
    }
    snprintf(folder, sizeof(folder), "%s/shoald-check.XXXXXX",
             place != NULL && place[0] != '\0' ? place : "/tmp");
    log_set_level(LOG_WARN);
    take_one_worker(&trial, config);
    struct config_source *source = config_source_create(config);
    enum status status = STATUS_OK;
    if (mkdtemp(folder) == NULL)
        status = error_set_errno(&error, "%s", folder);
    if (status == STATUS_OK)
        status = loop_create(&trial.loop, &error);
    if (status == STATUS_OK) {
        trial.timer = loop_timer_create(loop_base(trial.loop), on_look, &trial);
        snprintf(counters_path, sizeof(counters_path), "%s/counters", folder);
        status = run_with_source(&trial, options, source, counters_path, &error);
        loop_timer_destroy(trial.timer);
        spawn_end_orphans();
        loop_destroy(trial.loop);
        (void)unlink(counters_path);
    }
    (void)rmdir(folder);
    if (status != STATUS_OK)
        add_mistake(&trial, error.text);
    config_source_unref(source);
    free(trial.worker_counts);
    for (uint32_t i = 0; i < trial.mistakes; i++)
        free(trial.reported[i]);
    *models = trial.models.loaded;
    trial_models_fini(&trial.models);
    return trial.mistakes + trial.model_mistakes;
}
