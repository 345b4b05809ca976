/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs any XGBoost model: one call predicts the rows of all items of a batch, which is where
 * batching pays. The features are FP32 [rows, features], NaN for a missing value; the answer is
 * FP32 [rows, outputs], "probabilities" of a classifier or "prediction" of any other model
 * (objective.h), and a classifier's labels on demand. The numbers of features and outputs come from
 * the model.
 *
 * Parameters, all optional:
 *
 *   model    file that XGBoost wrote as JSON or UBJSON, relative to the configuration: the model of
 *            the stage, whose shapes are then declared. Others come by `load`
 *   input    name of the tensor with the features; by default the request's only one
 *   output   name of the answer, if it is not to follow from the model's objective
 *   labels   on: a classifier also answers "label", INT64 [rows], or [rows, outputs] if each output
 *            is a yes or no of its own; off by default
 *   missing  a number that means a missing value, as NaN always does
 */
#include <inttypes.h>
#include <math.h>
#include <shoal/modelet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xgboost/c_api.h>

#include "../model_file.h"
#include "booster_file.h"
#include "objective.h"

enum {
    PATH_BYTES_MAX = 4096,
    ARRAY_TEXT_MAX = 160,
    OPTIONS_TEXT_MAX = 256,
    NAME_ROOM = SHOAL_NAME_BYTES_MAX + 1,
    FEATURES_MAX = 1 << 24 /* a row of 64 MiB, more than a message holds */
};

#define LABEL "label"

struct xgboost_model {
    BoosterHandle booster;
    bool needs_matrix; /* its booster cannot predict from plain memory */
    int64_t features;
    int64_t outputs;
    const struct objective *objective;
    struct shoal_tensor_spec in;     /* [-1, features] */
    struct shoal_tensor_spec out[2]; /* [-1, outputs], then the labels */
    uint32_t out_count;              /* 1: no labels */
};

struct xgboost {
    const struct shoal_host *host;
    struct xgboost_model *own; /* NULL: models come by `load` */
    char input[NAME_ROOM];     /* "": the only one */
    char output[NAME_ROOM];    /* "": as the objective says */
    bool labels;
    char missing[32]; /* as JSON */
    float *rows;      /* concatenated rows of several items */
    size_t rows_bytes;
};

/* ---- predicting ---- */

/* Reports the first line of the library's error; the others are its stack. */
static int
library_error(struct shoal_error *error, int status, const char *doing)
{
    const char *text = XGBGetLastError();
    snprintf(error->text, sizeof error->text, "%.100s: %.*s", doing, (int)strcspn(text, "\n"),
             text);
    return status;
}

static int
predict_matrix(const struct xgboost *self, const struct xgboost_model *model, const char *array,
               const bst_ulong **shape, bst_ulong *rank, const float **outputs)
{
    char options[OPTIONS_TEXT_MAX];
    DMatrixHandle matrix;
    snprintf(options, sizeof options, "{\"missing\":%s,\"nthread\":1}", self->missing);
    if (XGDMatrixCreateFromDense(array, options, &matrix) != 0)
        return -1;
    int result = XGBoosterPredictFromDMatrix(
        model->booster, matrix,
        "{\"type\":0,\"training\":false,\"strict_shape\":true,\"iteration_begin\":0,"
        "\"iteration_end\":0}",
        shape, rank, outputs);
    XGDMatrixFree(matrix); /* the booster owns the outputs */
    return result;
}

static int
predict_dense(const struct xgboost *self, const struct xgboost_model *model, const char *array,
              const bst_ulong **shape, bst_ulong *rank, const float **outputs)
{
    char options[OPTIONS_TEXT_MAX];
    snprintf(options, sizeof options,
             "{\"type\":0,\"training\":false,\"strict_shape\":true,\"missing\":%s,\"cache_id\":0,"
             "\"iteration_begin\":0,\"iteration_end\":0}",
             self->missing);
    return XGBoosterPredictFromDense(model->booster, array, options, NULL, shape, rank, outputs);
}

/* Predicts `row_count` contiguous rows. `*outputs` is valid until the next call. */
static int
predict(const struct xgboost *self, const struct xgboost_model *model, const float *rows,
        size_t row_count, const float **outputs, size_t *output_count, struct shoal_error *error)
{
    char array[ARRAY_TEXT_MAX];
    snprintf(array, sizeof array,
             "{\"data\":[%" PRIuPTR ",true],\"shape\":[%zu,%" PRId64
             "],\"typestr\":\"<f4\",\"version\":3}",
             (uintptr_t)rows, row_count, model->features);
    const bst_ulong *shape;
    bst_ulong rank;
    if ((model->needs_matrix ? predict_matrix : predict_dense)(self, model, array, &shape, &rank,
                                                               outputs) != 0)
        return library_error(error, SHOAL_INTERNAL, "predicting");
    *output_count = 1;
    for (bst_ulong i = 1; i < rank; i++)
        *output_count *= shape[i];
    return SHOAL_OK;
}

/* ---- models ---- */

static void
model_destroy(struct xgboost_model *model)
{
    if (model == NULL)
        return;
    if (model->booster != NULL)
        XGBoosterFree(model->booster);
    free(model);
}

/* XGBoost recognizes its formats by the first two bytes, so white space between them, which other
 * programs write, is removed in a copy: `*copied`, to be freed. */
static int
file_begin(const struct model_file *file, const char *path, const char **begin, char **copied,
           struct shoal_error *error)
{
    const char *bytes = file->bytes;
    size_t space = strspn(bytes + 1, " \t\r\n"); /* terminates: the file was found to continue */
    *copied = NULL;
    *begin = bytes;
    if (space == 0)
        return SHOAL_OK;
    *begin = *copied = malloc(file->size - space);
    if (*copied == NULL)
        return model_refuse(error, path, SHOAL_RESOURCE_EXHAUSTED, "no memory for a copy");
    (*copied)[0] = bytes[0];
    memcpy(*copied + 1, bytes + 1 + space, file->size - space - 1);
    return SHOAL_OK;
}

/* Uses one thread to read the model and to predict, in spite of the model's own settings: a worker
 * has one core. */
static int
booster_read(const struct xgboost_model *model, const char *begin, size_t size)
{
    const char *predicted_as = model->objective->predicted_as;
    if (XGBoosterSetParam(model->booster, "nthread", "1") != 0 ||
        XGBoosterLoadModelFromBuffer(model->booster, begin, size) != 0 ||
        XGBoosterSetParam(model->booster, "nthread", "1") != 0)
        return -1;
    return predicted_as != NULL ? XGBoosterSetParam(model->booster, "objective", predicted_as) : 0;
}

static int
booster_load(struct xgboost_model *model, const char *path, const char *begin, size_t size,
             struct shoal_error *error)
{
    char room[160];
    if (XGBoosterCreate(NULL, 0, &model->booster) != 0)
        return library_error(error, SHOAL_INTERNAL, "making a model");
    if (booster_read(model, begin, size) == 0)
        return SHOAL_OK;
    library_error(error, SHOAL_INVALID_ARGUMENT, "XGBoost says");
    snprintf(room, sizeof room, "%.*s", (int)sizeof room - 1, error->text);
    return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, room);
}

/* Libraries before 3.1 silently load a base score that is a vector, such as "[5E-1]", and predict
 * with another one. */
static int
base_score_check(const struct booster_file *found, const char *path, struct shoal_error *error)
{
    char room[160];
    char writer[32] = "a newer XGBoost";
    int major;
    int minor;
    int patch;
    XGBoostVersion(&major, &minor, &patch);
    if (!found->has_vector_base_score || major > 3 || (major == 3 && minor >= 1))
        return SHOAL_OK;
    if (found->version_major > 0)
        snprintf(writer, sizeof writer, "XGBoost %d.%d", found->version_major,
                 found->version_minor);
    snprintf(room, sizeof room,
             "written by %s, this library is %d.%d: save it with an older version or upgrade "
             "libxgboost",
             writer, major, minor);
    return model_refuse(error, path, SHOAL_FAILED_PRECONDITION, room);
}

static int
model_parse(struct xgboost_model *model, const char *path, const struct model_file *file,
            struct shoal_error *error)
{
    char room[160];
    const char *begin;
    char *copied;
    struct booster_file found = booster_file_check(file->bytes, file->size, room, sizeof room);
    if (found.form == BOOSTER_NONE)
        return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, room);
    int status = base_score_check(&found, path, error);
    if (status == SHOAL_OK)
        status = file_begin(file, path, &begin, &copied, error);
    if (status != SHOAL_OK)
        return status;
    size_t space = strspn((const char *)file->bytes + 1, " \t\r\n");
    model->objective = objective_of(found.objective);
    status = booster_load(model, path, begin, file->size - space, error);
    free(copied);
    return status;
}

/* Reads the number of features from the model and finds the number of outputs by a first
 * prediction, which also does the work that XGBoost defers until then. Linear boosters refuse the
 * first way of prediction. */
static int
model_measure(const struct xgboost *self, struct xgboost_model *model, const char *path,
              struct shoal_error *error)
{
    bst_ulong features = 0;
    if (XGBoosterGetNumFeature(model->booster, &features) != 0)
        return library_error(error, SHOAL_INTERNAL, "asking for the number of features");
    if (features < 1 || features > FEATURES_MAX)
        return model_refuse(error, path, SHOAL_INVALID_ARGUMENT,
                            "it has no features, or more than 16777216");
    float *row = calloc(features, sizeof *row);
    if (row == NULL)
        return model_refuse(error, path, SHOAL_RESOURCE_EXHAUSTED, "no memory for a row");
    const float *outputs;
    size_t output_count = 0;
    model->features = (int64_t)features;
    int status = predict(self, model, row, 1, &outputs, &output_count, error);
    if (status != SHOAL_OK) {
        model->needs_matrix = true;
        status = predict(self, model, row, 1, &outputs, &output_count, error);
    }
    free(row);
    model->outputs = (int64_t)output_count;
    return status;
}

static void
model_specs(const struct xgboost *self, struct xgboost_model *model)
{
    const struct objective *objective = model->objective;
    const char *output = self->output[0] != '\0' ? self->output : objective->output;
    int64_t labels = objective_label_count(objective, model->outputs);
    model->in = (struct shoal_tensor_spec){
        self->input[0] != '\0' ? self->input : "features", SHOAL_FP32, 2, {-1, model->features}};
    model->out[0] = (struct shoal_tensor_spec){output, SHOAL_FP32, 2, {-1, model->outputs}};
    model->out[1] =
        (struct shoal_tensor_spec){LABEL, SHOAL_INT64, labels > 1 ? 2 : 1, {-1, labels}};
    bool has_labels = self->labels && objective->classes != OBJECTIVE_NONE;
    model->out_count = has_labels && strcmp(output, LABEL) != 0 ? 2 : 1;
}

static int
model_create(const struct xgboost *self, const struct shoal_host *host,
             const struct shoal_model *spec, struct xgboost_model **created,
             struct shoal_error *error)
{
    static const char *const endings[] = {".json", ".ubj", NULL};
    char path[MODEL_PATH_ROOM];
    struct model_file file;
    struct xgboost_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return model_refuse(error, spec->path, SHOAL_RESOURCE_EXHAUSTED, "no memory");
    int status = model_file_open(host, spec, endings, path, &file, error);
    if (status == SHOAL_OK)
        status = model_parse(model, path, &file, error);
    model_file_close(&file);
    if (status == SHOAL_OK)
        status = model_measure(self, model, path, error);
    if (status != SHOAL_OK) {
        model_destroy(model);
        return status;
    }
    model_specs(self, model);
    *created = model;
    return SHOAL_OK;
}

static int
xgboost_load(void *instance, const struct shoal_model *spec, void **model,
             struct shoal_error *error)
{
    const struct xgboost *self = instance;
    struct xgboost_model *created;
    int status = model_create(self, self->host, spec, &created, error);
    if (status == SHOAL_OK)
        *model = created;
    return status;
}

static void
xgboost_unload(void *instance, void *model)
{
    (void)instance;
    model_destroy(model);
}

/* ---- opening ---- */

static int
missing_read(struct xgboost *self, const char *value, struct shoal_error *error)
{
    char *end;
    float missing = strtof(value, &end);
    if (end == value || *end != '\0' || isinf(missing)) {
        snprintf(error->text, sizeof error->text, "parameter \"missing\" is \"%.64s\", no number",
                 value);
        return SHOAL_INVALID_ARGUMENT;
    }
    if (!isnan(missing))
        snprintf(self->missing, sizeof self->missing, "%.9g", (double)missing);
    return SHOAL_OK;
}

static int
labels_read(struct xgboost *self, const char *value, struct shoal_error *error)
{
    self->labels = strcmp(value, "on") == 0;
    if (self->labels || strcmp(value, "off") == 0)
        return SHOAL_OK;
    snprintf(error->text, sizeof error->text, "parameter \"labels\" is \"%.64s\": on or off",
             value);
    return SHOAL_INVALID_ARGUMENT;
}

static int
name_read(const struct shoal_param *param, char name[NAME_ROOM], struct shoal_error *error)
{
    if (strlen(param->value) < NAME_ROOM) {
        memcpy(name, param->value, strlen(param->value) + 1);
        return SHOAL_OK;
    }
    snprintf(error->text, sizeof error->text, "parameter \"%.100s\": too long", param->name);
    return SHOAL_INVALID_ARGUMENT;
}

static int
param_read(struct xgboost *self, const struct shoal_param *param, const char **model,
           struct shoal_error *error)
{
    if (strcmp(param->name, "model") == 0) {
        *model = param->value;
        return SHOAL_OK;
    }
    if (strcmp(param->name, "missing") == 0)
        return missing_read(self, param->value, error);
    if (strcmp(param->name, "labels") == 0)
        return labels_read(self, param->value, error);
    if (strcmp(param->name, "input") == 0)
        return name_read(param, self->input, error);
    if (strcmp(param->name, "output") == 0)
        return name_read(param, self->output, error);
    snprintf(error->text, sizeof error->text,
             "parameter \"%.100s\": unknown; the parameters are model, input, output, labels and "
             "missing",
             param->name);
    return SHOAL_INVALID_ARGUMENT;
}

static int
params_read(struct xgboost *self, const struct shoal_open *open, const char **model,
            struct shoal_error *error)
{
    int status = SHOAL_OK;
    for (uint32_t i = 0; i < open->param_count && status == SHOAL_OK; i++)
        status = param_read(self, &open->params[i], model, error);
    return status;
}

static int
rows_reserve(struct xgboost *self, size_t bytes, struct shoal_error *error)
{
    if (bytes <= self->rows_bytes)
        return SHOAL_OK;
    float *rows = realloc(self->rows, bytes);
    if (rows == NULL) {
        snprintf(error->text, sizeof error->text, "no memory for a batch of %zu bytes", bytes);
        return SHOAL_RESOURCE_EXHAUSTED;
    }
    self->rows = rows;
    self->rows_bytes = bytes;
    return SHOAL_OK;
}

static int
own_model_open(struct xgboost *self, const struct shoal_open *open, const char *name,
               struct shoal_error *error)
{
    char path[PATH_BYTES_MAX];
    if (open->host->resolve_path(name, path, sizeof path) != SHOAL_OK)
        return model_refuse(error, name, SHOAL_INVALID_ARGUMENT, "the path is too long");
    const struct shoal_model spec = {.struct_size = sizeof spec, .path = path};
    int status = model_create(self, NULL, &spec, &self->own, error);
    if (status != SHOAL_OK)
        return status;
    size_t row_bytes = (size_t)self->own->features * sizeof(float);
    return rows_reserve(self, row_bytes * (open->batch_size > 1 ? open->batch_size : 1), error);
}

static void
xgboost_close(void *instance)
{
    struct xgboost *self = instance;
    model_destroy(self->own);
    free(self->rows);
    free(self);
}

static int
xgboost_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    const char *model = NULL;
    struct xgboost *self = calloc(1, sizeof *self);
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    self->host = open->host;
    snprintf(self->missing, sizeof self->missing, "NaN");
    int status = params_read(self, open, &model, error);
    if (status == SHOAL_OK && model != NULL)
        status = own_model_open(self, open, model, error);
    if (status != SHOAL_OK) {
        xgboost_close(self);
        return status;
    }
    *instance = self;
    return SHOAL_OK;
}

static int
xgboost_describe_model(void *instance, void *loaded, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)error;
    const struct xgboost_model *model = loaded;
    io->platform = "xgboost";
    if (model == NULL)
        return SHOAL_OK;
    io->inputs = &model->in;
    io->outputs = model->out;
    io->input_count = 1;
    io->output_count = model->out_count;
    return SHOAL_OK;
}

static int
xgboost_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    struct xgboost *self = instance;
    return xgboost_describe_model(self, self->own, io, error);
}

/* ---- running ---- */

/* Finds the tensor with the features; NULL: none. */
static const struct shoal_tensor *
features_find(const struct xgboost *self, const struct shoal_item *item)
{
    if (self->input[0] == '\0')
        return item->input_count == 1 ? item->inputs : NULL;
    for (uint32_t i = 0; i < item->input_count; i++) {
        if (strcmp(item->inputs[i].name, self->input) == 0)
            return &item->inputs[i];
    }
    return NULL;
}

/* Sets the item's status: SHOAL_OK, or the fault in its features. */
static void
item_check(const struct xgboost *self, const struct xgboost_model *model,
           const struct shoal_host *host, struct shoal_item *item)
{
    const struct shoal_tensor *features = features_find(self, item);
    if (features == NULL && self->input[0] == '\0')
        host->fail(item, SHOAL_INVALID_ARGUMENT, "there are %u input tensors; 1 is expected",
                   item->input_count);
    else if (features == NULL)
        host->fail(item, SHOAL_INVALID_ARGUMENT, "there is no input tensor \"%s\"", self->input);
    else if (features->datatype != SHOAL_FP32)
        host->fail(item, SHOAL_INVALID_ARGUMENT, "tensor \"%s\" must be of datatype FP32",
                   features->name);
    else if (features->rank != 2 || features->shape[1] != model->features)
        host->fail(item, SHOAL_INVALID_ARGUMENT,
                   "tensor \"%s\" must have the shape [n, %" PRId64 "], as the model was trained",
                   features->name, model->features);
    else
        item->status = SHOAL_OK;
}

/* Concatenates the rows of all good items. Those of a single item are used in place. */
static int
rows_gather(struct xgboost *self, const struct xgboost_model *model,
            const struct shoal_batch *batch, const float **rows, size_t *row_count,
            struct shoal_error *error)
{
    size_t row_bytes = (size_t)model->features * sizeof(float);
    size_t good_count = 0;
    *row_count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        item_check(self, model, batch->host, batch->items[i]);
        if (batch->items[i]->status != SHOAL_OK)
            continue;
        const struct shoal_tensor *features = features_find(self, batch->items[i]);
        *rows = features->data;
        *row_count += (size_t)features->shape[0];
        good_count++;
    }
    if (good_count <= 1)
        return SHOAL_OK;
    /* Grows for more rows than items and for loaded models, whose width is known only here: `load`
     * may run at the same time. */
    int status = rows_reserve(self, *row_count * row_bytes, error);
    if (status != SHOAL_OK)
        return status;
    char *end = (char *)self->rows;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->items[i]->status != SHOAL_OK)
            continue;
        const struct shoal_tensor *features = features_find(self, batch->items[i]);
        memcpy(end, features->data, (size_t)features->shape[0] * row_bytes);
        end += (size_t)features->shape[0] * row_bytes;
    }
    *rows = self->rows;
    return SHOAL_OK;
}

static void
labels_put(const struct xgboost_model *model, const struct shoal_host *host,
           struct shoal_item *item, const float *outputs, int64_t row_count)
{
    const struct shoal_tensor_spec *spec = &model->out[1];
    int64_t shape[2] = {row_count, spec->shape[1]};
    int64_t *labels = host->output(item, LABEL, SHOAL_INT64, spec->rank, shape);
    if (labels != NULL)
        objective_label(model->objective, outputs, row_count, model->outputs, labels);
}

/* Gives each good item its part of the answer. */
static void
rows_scatter(const struct xgboost *self, const struct xgboost_model *model,
             const struct shoal_batch *batch, const float *outputs)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        if (item->status != SHOAL_OK)
            continue;
        int64_t shape[2] = {features_find(self, item)->shape[0], model->outputs};
        size_t count = (size_t)(shape[0] * shape[1]);
        float *answer = batch->host->output(item, model->out[0].name, SHOAL_FP32, 2, shape);
        if (answer != NULL && count > 0)
            memcpy(answer, outputs, count * sizeof *answer);
        if (answer != NULL && model->out_count > 1)
            labels_put(model, batch->host, item, outputs, shape[0]);
        outputs += count;
    }
}

static int
xgboost_run(void *instance, void *loaded, struct shoal_batch *batch)
{
    struct xgboost *self = instance;
    const struct xgboost_model *model = loaded != NULL ? loaded : self->own;
    const float *rows = NULL;
    const float *outputs = self->rows; /* stays here if there are no rows, where nothing is read */
    size_t row_count;
    size_t output_count;
    if (model == NULL) {
        snprintf(batch->error->text, sizeof batch->error->text,
                 "there is no model: give the stage a `model`, or the parameter \"model\"");
        return SHOAL_FAILED_PRECONDITION;
    }
    int status = rows_gather(self, model, batch, &rows, &row_count, batch->error);
    if (status == SHOAL_OK && row_count > 0)
        status = predict(self, model, rows, row_count, &outputs, &output_count, batch->error);
    if (status == SHOAL_OK)
        rows_scatter(self, model, batch, outputs);
    return status;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,
    .abilities = SHOAL_RUNS_BATCHES | SHOAL_RUN_DURING_LOAD,
    .name = "xgboost",
    .version = "1",
    .open = xgboost_open,
    .describe = xgboost_describe,
    .load = xgboost_load,
    .unload = xgboost_unload,
    .run = xgboost_run,
    .close = xgboost_close,
    .describe_model = xgboost_describe_model,
};
