/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_loads.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/config/config_types.h"
#include "coordinator/mesh/mesh_types.h"
#include "coordinator/models/runtime_answer.h"
#include "coordinator/models/runtime_request.h"
#include "coordinator/pipeline/pipeline.h"

/* A load, unload or size that the runner waits for. */
struct loads_wait {
    struct mesh_loads *loads;
    struct runner_load *load;
};

/* ---- which pipeline ---- */

static bool
take_text(const char *given, char *text, size_t room, uint64_t *bytes)
{
    *bytes = given == NULL ? 0 : strlen(given);
    memcpy(text, given == NULL ? "" : given, *bytes < room ? *bytes + 1 : 0);
    return *bytes < room;
}

static struct catalog *
refuse(const char *type, const char *why, struct error *error)
{
    error_set(error, STATUS_INVALID_ARGUMENT, "models of type \"%s\" are loaded by %s", type, why);
    return NULL;
}

/* Beside an external runtime a pipeline loads what it names, even if it is the only one. */
static struct catalog *
catalog_of_type(const struct mesh_loads *loads, const char *type, struct error *error)
{
    if (loads->shared != NULL && !config_types_has_pipeline(loads->shared, type))
        return refuse(type,
                      "no runtime of this node: no pipeline has it in its `types`, nor `mesh` in "
                      "its `runtime_types`",
                      error);
    struct catalog *catalog = models_catalog_for(loads->pipelines, loads->pipeline_count, type);
    return catalog != NULL
               ? catalog
               : refuse(type, "no pipeline of this node: none has it in its `types`", error);
}

/* The key's type counts, as in mmesh.ModelRuntime; the mesh's own if the key has none. */
static struct catalog *
find_catalog(const struct mesh_loads *loads, const struct runner_model *model, struct error *error)
{
    struct runtime_request *request = calloc(1, sizeof(*request));
    CHECK(request != NULL);
    struct catalog *catalog = NULL;
    (void)take_text(model->id, request->id, sizeof(request->id), &request->id_bytes);
    (void)take_text(model->path, request->path, sizeof(request->path), &request->path_bytes);
    (void)take_text(model->key, request->key, sizeof(request->key), &request->key_bytes);
    if (runtime_request_check(request, error) == STATUS_OK) {
        if (request->type[0] == '\0' && model->type != NULL)
            mesh_types_name(model->type, request->type);
        catalog = catalog_of_type(loads, request->type, error);
    }
    free(request);
    return catalog;
}

/* ---- requests of the runner ---- */

static void
end(struct loads_wait *wait, const struct runner_load_end *end)
{
    runner_load_ended(wait->loads->runner, wait->load, end);
    free(wait);
}

static struct loads_wait *
wait_begin(struct mesh_loads *loads, struct runner_load *load)
{
    struct loads_wait *wait = malloc(sizeof(*wait));
    CHECK(wait != NULL);
    *wait = (struct loads_wait){loads, load};
    return wait;
}

/* When a failure is reported, no worker has anything left of the model (models.h), so there is
 * nothing to unload, as if the load had not been attempted. A time-out is recognized by its text,
 * which is all that other nodes see. No concurrency is reported: pipelines refuse excess calls
 * themselves. */
static void
on_loaded(void *context, const struct error *error, const struct model_facts *facts)
{
    struct runner_load_end reported = {.end = MESH_LOAD_OK};
    struct error reason = error != NULL ? *error : ERROR_NONE;
    if (reason.status == STATUS_DEADLINE_EXCEEDED)
        (void)error_prefix(&reason, "%s", status_name(reason.status));
    if (error != NULL)
        reported = (struct runner_load_end){.end = MESH_LOAD_NOT_ATTEMPTED, .reason = reason.text};
    else
        reported.size_bytes = facts->bytes > 0 ? facts->bytes : 1;
    end(context, &reported);
}

/* Orders a load from the pipeline that takes the model. */
static void
order(struct mesh_loads *loads, struct runner_load *load, const struct runner_model *model,
      void (*begin)(struct catalog *catalog, const struct model_spec *spec, model_done *done,
                    void *context),
      model_done *done)
{
    struct loads_wait *wait = wait_begin(loads, load);
    struct error error = ERROR_NONE;
    struct catalog *catalog = find_catalog(loads, model, &error);
    struct model_spec spec = {
        .id = model->id, .path = model->path, .key = model->key != NULL ? model->key : ""};
    if (catalog != NULL)
        begin(catalog, &spec, done, wait);
    else
        done(wait, &error, NULL);
}

static void
load(void *context, struct runner_load *load, const struct runner_model *model)
{
    order(context, load, model, models_load, on_loaded);
}

static void
on_unloaded(void *context, const struct error *error, const struct model_facts *facts)
{
    (void)error, (void)facts;
    end(context, &(struct runner_load_end){.end = MESH_LOAD_OK});
}

/* The default replaces a size that cannot be predicted. */
static void
on_predicted(void *context, const struct error *error, const struct model_facts *facts)
{
    uint64_t bytes = error == NULL ? facts->bytes : 0;
    end(context, &(struct runner_load_end){.end = MESH_LOAD_OK, .size_bytes = bytes});
}

static void
size(void *context, struct runner_load *load, const struct runner_model *model)
{
    order(context, load, model, models_predict, on_predicted);
}

/* ---- uses ---- */

struct harvest {
    struct mesh_runner *runner;
    int64_t now_ns;
    int64_t mesh_ms;
};

static void
on_used(void *context, const char *id, uint32_t count, int64_t used_ns)
{
    const struct harvest *harvest = context;
    struct mesh_used use = {
        .model = id,
        .count = count,
        .used_ms = harvest->mesh_ms - (harvest->now_ns - used_ns) / NS_PER_MS,
    };
    runner_used(harvest->runner, &use);
}

static void
harvest(void *context, struct mesh_runner *runner)
{
    struct mesh_loads *loads = context;
    struct harvest harvest = {runner, clock_now_ns(), runner_mesh_ms(runner)};
    models_harvest(loads->registry, on_used, &harvest);
}

/* Unreported uses of the model would be lost with it. */
static void
unload(void *context, struct runner_load *load, const struct runner_model *model)
{
    struct mesh_loads *loads = context;
    harvest(loads, loads->runner);
    models_unload(loads->registry, model->id, on_unloaded, wait_begin(loads, load));
}

static void
admit(void *context, const char *model, enum runner_admission admission)
{
    const struct mesh_loads *loads = context;
    registry_admit(loads->registry, model, admission == RUNNER_OPEN ? MODEL_OPEN : MODEL_CLOSED);
}

/* ---- for the runner ---- */

struct runner_runtime
mesh_loads_for_runner(struct mesh_loads *loads)
{
    return (struct runner_runtime){loads, size, load, unload, harvest, admit};
}

void
mesh_loads_announce(const struct mesh_loads *loads)
{
    uint32_t pool = 0;
    for (uint32_t i = 0; i < loads->pipeline_count; i++) {
        if (loads->pipelines[i]->catalog == NULL)
            continue;
        struct runtime_figures figures = runtime_figures(&loads->pipelines[i], 1);
        const struct mesh_capacity capacity = {
            .capacity_bytes = figures.capacity_bytes,
            .default_bytes = figures.default_bytes,
            .loaders = figures.load_concurrency,
            .load_timeout_ms = figures.load_timeout_ms,
            .pool = pool++,
        };
        runner_runtime_ready(loads->runner, &capacity);
    }
}
