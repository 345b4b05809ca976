/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs any ONNX model with ONNX Runtime. Inputs and outputs are read from the model. Models come by
 * `load`; a stage may have one of its own, named by the parameter `model`, which `describe` then
 * declares. The variable SHOAL_ONNXRUNTIME_DIR says where the library is, if it is not the system's
 * (library.h).
 *
 * Parameters, all optional:
 *
 *   model          an ONNX file, or a folder with exactly one, relative to the configuration
 *   batch          auto: items are concatenated if the model's first dimension is open; or never
 *   intra_threads  threads that share the work of one operator, 1 by default: a worker has one core
 *   inter_threads  threads that run operators side by side, 1 by default
 *   optimization   of the graph: none, basic, extended or all, which is the default
 *   prepacking     on: weights are laid out anew, which is faster and takes memory in each worker;
 *                  off: weights in files of their own are used where they are mapped, shared by
 *                  all workers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

enum { THREADS_MAX = 1024 };

struct onnx {
    struct engine engine;
    struct runner runner;
    struct onnx_model *own; /* NULL: models come by `load` */
};

/* ---- opening ---- */

static int
param_refuse(struct shoal_error *error, const struct shoal_param *param, const char *what)
{
    snprintf(error->text, sizeof error->text, "parameter \"%.64s\" is \"%.64s\": %.100s",
             param->name, param->value, what);
    return SHOAL_INVALID_ARGUMENT;
}

static int
threads_read(const struct shoal_param *param, int *threads, struct shoal_error *error)
{
    char *end;
    long number = strtol(param->value, &end, 10);
    if (end == param->value || *end != '\0' || number < 1 || number > THREADS_MAX)
        return param_refuse(error, param, "there can be 1 to 1024 threads");
    *threads = (int)number;
    return SHOAL_OK;
}

/* Reads one of two words. */
static int
word_read(const struct shoal_param *param, const char *yes, const char *no, bool *is_yes,
          struct shoal_error *error)
{
    char room[64];
    *is_yes = strcmp(param->value, yes) == 0;
    if (*is_yes || strcmp(param->value, no) == 0)
        return SHOAL_OK;
    snprintf(room, sizeof room, "it may be %s or %s", yes, no);
    return param_refuse(error, param, room);
}

static int
optimization_read(const struct shoal_param *param, GraphOptimizationLevel *level,
                  struct shoal_error *error)
{
    static const struct {
        const char *name;
        GraphOptimizationLevel level;
    } levels[] = {{"none", ORT_DISABLE_ALL},
                  {"basic", ORT_ENABLE_BASIC},
                  {"extended", ORT_ENABLE_EXTENDED},
                  {"all", ORT_ENABLE_ALL}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(param->value, levels[i].name) == 0) {
            *level = levels[i].level;
            return SHOAL_OK;
        }
    }
    return param_refuse(error, param, "it may be none, basic, extended or all");
}

static int
param_read(const struct shoal_param *param, struct engine_options *options, const char **model,
           struct shoal_error *error)
{
    if (strcmp(param->name, "model") == 0) {
        *model = param->value;
        return SHOAL_OK;
    }
    if (strcmp(param->name, "batch") == 0)
        return word_read(param, "auto", "never", &options->batches, error);
    if (strcmp(param->name, "prepacking") == 0)
        return word_read(param, "on", "off", &options->prepacking, error);
    if (strcmp(param->name, "intra_threads") == 0)
        return threads_read(param, &options->intra_threads, error);
    if (strcmp(param->name, "inter_threads") == 0)
        return threads_read(param, &options->inter_threads, error);
    if (strcmp(param->name, "optimization") == 0)
        return optimization_read(param, &options->optimization, error);
    return param_refuse(error, param,
                        "the parameters are model, batch, intra_threads, inter_threads, "
                        "optimization and prepacking");
}

static int
own_model_open(struct onnx *self, const struct shoal_host *host, const char *name,
               struct shoal_error *error)
{
    char path[MODEL_PATH_ROOM];
    if (name == NULL)
        return SHOAL_OK;
    if (host->resolve_path(name, path, sizeof path) != SHOAL_OK)
        return model_refuse(error, name, SHOAL_INVALID_ARGUMENT, "the path is too long");
    const struct shoal_model spec = {.struct_size = sizeof spec, .path = path};
    return model_create(&self->engine, NULL, &spec, &self->own, error);
}

static void
onnx_close(void *instance)
{
    struct onnx *self = instance;
    model_destroy(&self->engine, self->own);
    runner_close(&self->runner);
    engine_close(&self->engine);
    free(self);
}

static int
onnx_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    struct engine_options options = {1, 1, ORT_ENABLE_ALL, true, true};
    const char *model = NULL;
    int status = SHOAL_OK;
    for (uint32_t i = 0; i < open->param_count && status == SHOAL_OK; i++)
        status = param_read(&open->params[i], &options, &model, error);
    if (status != SHOAL_OK)
        return status;
    struct onnx *self = calloc(1, sizeof *self);
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    status = engine_open(&self->engine, &options, open->host, error);
    if (status == SHOAL_OK)
        status = runner_open(&self->runner, &self->engine, open->batch_size, error);
    if (status == SHOAL_OK)
        status = own_model_open(self, open->host, model, error);
    if (status != SHOAL_OK) {
        onnx_close(self);
        return status;
    }
    *instance = self;
    return SHOAL_OK;
}

/* ---- models ---- */

static void
io_of(const struct onnx_model *model, struct shoal_io *io)
{
    io->platform = "onnxruntime";
    if (model == NULL)
        return;
    io->inputs = model->inputs;
    io->outputs = model->outputs;
    io->input_count = model->input_count;
    io->output_count = model->output_count;
}

static int
onnx_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    (void)error;
    struct onnx *self = instance;
    io_of(self->own, io);
    return SHOAL_OK;
}

static int
onnx_describe_model(void *instance, void *model, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)error;
    io_of(model, io);
    return SHOAL_OK;
}

static int
onnx_load(void *instance, const struct shoal_model *spec, void **model, struct shoal_error *error)
{
    struct onnx *self = instance;
    struct onnx_model *created;
    int status = model_create(&self->engine, self->engine.host, spec, &created, error);
    if (status == SHOAL_OK)
        *model = created;
    return status;
}

static void
onnx_unload(void *instance, void *model)
{
    struct onnx *self = instance;
    model_destroy(&self->engine, model);
}

static uint64_t
onnx_predict_size(void *instance, const struct shoal_model *spec)
{
    struct onnx *self = instance;
    return model_predict(&self->engine, spec->path);
}

static int
onnx_run(void *instance, void *loaded, struct shoal_batch *batch)
{
    struct onnx *self = instance;
    struct onnx_model *model = loaded != NULL ? loaded : self->own;
    if (model == NULL) {
        snprintf(batch->error->text, sizeof batch->error->text,
                 "there is no model: give the stage a `model`, or the parameter \"model\"");
        return SHOAL_FAILED_PRECONDITION;
    }
    runner_run(&self->runner, model, batch);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,
    .abilities = SHOAL_RUNS_BATCHES | SHOAL_RUN_DURING_LOAD,
    .name = "onnx",
    .version = "1",
    .open = onnx_open,
    .describe = onnx_describe,
    .load = onnx_load,
    .unload = onnx_unload,
    .predict_size = onnx_predict_size,
    .run = onnx_run,
    .close = onnx_close,
    .describe_model = onnx_describe_model,
};
