/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs any XGBoost model: the rows of all items of a batch are predicted in one call, which is
 * where batching pays. The features are FP32 [rows, features], NaN where a value is missing; the
 * answer is FP32 [rows, outputs]: probabilities of a classifier, or the one value of a regression.
 *
 * Parameters:
 *   model   file that XGBoost wrote (.ubj or .json), relative to the configuration; required
 *   input   name of the tensor with the features; by default the only one there is
 *   output  name of the answer, "probabilities" by default
 */
#include <errno.h>
#include <inttypes.h>
#include <shoal/modelet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xgboost/c_api.h>

enum { PATH_BYTES_MAX = 4096, ARRAY_TEXT_MAX = 160, NAME_ROOM = SHOAL_NAME_BYTES_MAX + 1 };

static const char predict_options[] =
    "{\"type\":0,\"training\":false,\"strict_shape\":true,\"missing\":NaN,\"cache_id\":0,"
    "\"iteration_begin\":0,\"iteration_end\":0}";

struct xgboost {
    BoosterHandle booster;
    char input[NAME_ROOM]; /* "": the only one */
    char output[NAME_ROOM];
    struct shoal_tensor_spec in;  /* [-1, features] */
    struct shoal_tensor_spec out; /* [-1, outputs] */
    float *rows;                  /* where the rows of several items are put side by side */
    size_t row_room;
};

/* ---- opening ---- */

/* The first line of what the library says: the others are its stack. */
static int
library_error(struct shoal_error *error, int status, const char *doing)
{
    const char *text = XGBGetLastError();
    snprintf(error->text, sizeof error->text, "%.100s: %.*s", doing, (int)strcspn(text, "\n"),
             text);
    return status;
}

static int
params_read(struct xgboost *self, const struct shoal_open *open, const char **model,
            struct shoal_error *error)
{
    for (uint32_t i = 0; i < open->param_count; i++) {
        const struct shoal_param *param = &open->params[i];
        char *name = NULL;
        if (strcmp(param->name, "model") == 0) {
            *model = param->value;
            continue;
        }
        if (strcmp(param->name, "input") == 0)
            name = self->input;
        else if (strcmp(param->name, "output") == 0)
            name = self->output;
        if (name == NULL || strlen(param->value) >= NAME_ROOM) {
            snprintf(error->text, sizeof error->text, "parameter \"%s\": %s", param->name,
                     name != NULL ? "too long" : "unknown; there are model, input and output");
            return SHOAL_INVALID_ARGUMENT;
        }
        memcpy(name, param->value, strlen(param->value) + 1);
    }
    if (*model != NULL)
        return SHOAL_OK;
    snprintf(error->text, sizeof error->text, "parameter \"model\" is missing");
    return SHOAL_INVALID_ARGUMENT;
}

static int
model_read(struct xgboost *self, const struct shoal_host *host, const char *model,
           struct shoal_error *error)
{
    char path[PATH_BYTES_MAX];
    if (host->resolve_path(model, path, sizeof path) != SHOAL_OK) {
        snprintf(error->text, sizeof error->text, "the path of model %.64s… is too long", model);
        return SHOAL_INVALID_ARGUMENT;
    }
    if (access(path, R_OK) != 0) {
        snprintf(error->text, sizeof error->text, "model %.150s: %s", path, strerror(errno));
        return SHOAL_NOT_FOUND;
    }
    if (XGBoosterCreate(NULL, 0, &self->booster) != 0)
        return library_error(error, SHOAL_INTERNAL, "making a model");
    /* A worker has one core, more threads would fight for it: none for reading the model, and none
     * for predicting, whatever the model says. */
    if (XGBoosterSetParam(self->booster, "nthread", "1") != 0)
        return library_error(error, SHOAL_INTERNAL, model);
    if (XGBoosterLoadModel(self->booster, path) != 0)
        return library_error(error, SHOAL_INVALID_ARGUMENT, model);
    if (XGBoosterSetParam(self->booster, "nthread", "1") != 0)
        return library_error(error, SHOAL_INTERNAL, model);
    return SHOAL_OK;
}

/* Predicts `row_count` rows that lie side by side. `*outputs` is valid until the next call. */
static int
predict(const struct xgboost *self, const float *rows, size_t row_count, const float **outputs,
        size_t *output_count, struct shoal_error *error)
{
    char array[ARRAY_TEXT_MAX];
    snprintf(array, sizeof array,
             "{\"data\":[%" PRIuPTR ",true],\"shape\":[%zu,%" PRId64
             "],\"typestr\":\"<f4\",\"version\":3}",
             (uintptr_t)rows, row_count, self->in.shape[1]);
    const bst_ulong *shape;
    bst_ulong rank;
    if (XGBoosterPredictFromDense(self->booster, array, predict_options, NULL, &shape, &rank,
                                  outputs) != 0)
        return library_error(error, SHOAL_INTERNAL, "predicting");
    *output_count = 1;
    for (bst_ulong i = 1; i < rank; i++)
        *output_count *= shape[i];
    return SHOAL_OK;
}

static int
rows_reserve(struct xgboost *self, size_t row_count, struct shoal_error *error)
{
    size_t row_bytes = (size_t)self->in.shape[1] * sizeof(float);
    if (row_count <= self->row_room)
        return SHOAL_OK;
    float *rows = realloc(self->rows, row_count * row_bytes);
    if (rows == NULL) {
        snprintf(error->text, sizeof error->text, "no memory for a batch of %zu rows", row_count);
        return SHOAL_RESOURCE_EXHAUSTED;
    }
    self->rows = rows;
    self->row_room = row_count;
    return SHOAL_OK;
}

/* How many features the model takes it says itself; how many outputs it has is seen by asking it
 * once, which also does the work that it puts off until the first call. */
static int
model_measure(struct xgboost *self, uint32_t batch_size, struct shoal_error *error)
{
    bst_ulong features = 0;
    if (XGBoosterGetNumFeature(self->booster, &features) != 0)
        return library_error(error, SHOAL_INTERNAL, "asking for the number of features");
    self->in = (struct shoal_tensor_spec){
        self->input[0] != '\0' ? self->input : "features", SHOAL_FP32, 2, {-1, (int64_t)features}};
    int status = rows_reserve(self, batch_size > 1 ? batch_size : 1, error);
    if (status != SHOAL_OK)
        return status;
    for (bst_ulong i = 0; i < features; i++)
        self->rows[i] = 0.0f;
    const float *outputs;
    size_t output_count;
    status = predict(self, self->rows, 1, &outputs, &output_count, error);
    self->out =
        (struct shoal_tensor_spec){self->output, SHOAL_FP32, 2, {-1, (int64_t)output_count}};
    return status;
}

static void
xgboost_close(void *instance)
{
    struct xgboost *self = instance;
    if (self->booster != NULL)
        XGBoosterFree(self->booster);
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
    snprintf(self->output, sizeof self->output, "probabilities");
    int status = params_read(self, open, &model, error);
    if (status == SHOAL_OK)
        status = model_read(self, open->host, model, error);
    if (status == SHOAL_OK)
        status = model_measure(self, open->batch_size, error);
    if (status != SHOAL_OK) {
        xgboost_close(self);
        return status;
    }
    *instance = self;
    return SHOAL_OK;
}

static int
xgboost_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    (void)error;
    struct xgboost *self = instance;
    io->inputs = &self->in;
    io->input_count = 1;
    io->outputs = &self->out;
    io->output_count = 1;
    io->platform = "xgboost";
    return SHOAL_OK;
}

/* ---- running ---- */

/* The tensor with the features; NULL if there is none. */
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

/* Sets the item's status: SHOAL_OK, or what is wrong with its features. */
static void
item_check(const struct xgboost *self, const struct shoal_host *host, struct shoal_item *item)
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
    else if (features->rank != 2 || features->shape[1] != self->in.shape[1])
        host->fail(item, SHOAL_INVALID_ARGUMENT,
                   "tensor \"%s\" must have the shape [n, %" PRId64 "], as the model was trained",
                   features->name, self->in.shape[1]);
    else
        item->status = SHOAL_OK;
}

/* The rows of all good items side by side. Those of a single item are used where they lie. */
static int
rows_gather(struct xgboost *self, const struct shoal_batch *batch, const float **rows,
            size_t *row_count, struct shoal_error *error)
{
    size_t row_bytes = (size_t)self->in.shape[1] * sizeof(float);
    size_t good_count = 0;
    *row_count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        item_check(self, batch->host, batch->items[i]);
        if (batch->items[i]->status != SHOAL_OK)
            continue;
        const struct shoal_tensor *features = features_find(self, batch->items[i]);
        *rows = features->data;
        *row_count += (size_t)features->shape[0];
        good_count++;
    }
    if (good_count <= 1)
        return SHOAL_OK;
    int status = rows_reserve(self, *row_count, error);
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

/* Gives each good item its part of the answer. */
static void
rows_scatter(const struct xgboost *self, const struct shoal_batch *batch, const float *outputs)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        if (item->status != SHOAL_OK)
            continue;
        int64_t shape[2] = {features_find(self, item)->shape[0], self->out.shape[1]};
        size_t count = (size_t)(shape[0] * shape[1]);
        float *answer = batch->host->output(item, self->output, SHOAL_FP32, 2, shape);
        if (answer != NULL && count > 0)
            memcpy(answer, outputs, count * sizeof *answer);
        outputs += count;
    }
}

static int
xgboost_run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)model;
    struct xgboost *self = instance;
    const float *rows = NULL;
    const float *outputs = self->rows; /* no rows at all leave it here, where none is read */
    size_t row_count;
    size_t output_count;
    int status = rows_gather(self, batch, &rows, &row_count, batch->error);
    if (status == SHOAL_OK && row_count > 0)
        status = predict(self, rows, row_count, &outputs, &output_count, batch->error);
    if (status == SHOAL_OK)
        rows_scatter(self, batch, outputs);
    return status;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES,
    .name = "xgboost",    .version = "1",
    .open = xgboost_open, .describe = xgboost_describe,
    .run = xgboost_run,   .close = xgboost_close,
};
