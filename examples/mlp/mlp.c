/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs multi-layer perceptrons: dense layers over OpenBLAS, with weights used where the file is
 * mapped (network.h is the format).
 *
 * A stage may have one model of its own, named by the parameter `model`, a file relative to the
 * configuration; `describe` then declares its tensors. Other models come by `load`, and items are
 * checked against their model.
 *
 * The rows of all items of a batch go through each layer together; those of a single item are used
 * and answered in place. Working memory is allocated once, in `open`: rows are processed in pieces
 * that fit into it, of 32 to 1024 rows.
 */
#include <inttypes.h>
#include <shoal/modelet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model_file.h"
#include "forward.h"

enum {
    PATH_BYTES_MAX = 4096,
    PIECE_ROWS_MAX = 1024,
    AREA_FLOATS = 32 * NETWORK_WIDTH_MAX, /* 8 MiB; untouched pages take no memory */
    AREA_COUNT = 4
};

struct mlp_model {
    struct model_file file;
    struct network network;
    struct shoal_tensor_spec in;
    struct shoal_tensor_spec out;
};

/* An item to run: its input and output rows, and how many are done. */
struct part {
    const float *in;
    float *out;
    size_t rows;
    size_t done;
};

struct mlp {
    const struct shoal_host *host;
    struct mlp_model *own; /* NULL: models come by `load` */
    struct part *parts;    /* one per item of a batch */
    float *memory;         /* rows in each area below */
    float *hidden[2];
    float *gathered; /* concatenated input rows of several items */
    float *answers;  /* their output rows */
};

/* ---- models ---- */

static void
model_destroy(struct mlp_model *model)
{
    if (model == NULL)
        return;
    model_file_close(&model->file);
    free(model);
}

static int
model_create(const struct shoal_host *host, const struct shoal_model *spec,
             struct mlp_model **created, struct shoal_error *error)
{
    static const char *const endings[] = {".mlp", NULL};
    char path[MODEL_PATH_ROOM];
    char room[200];
    struct mlp_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return model_refuse(error, spec->path, SHOAL_RESOURCE_EXHAUSTED, "no memory");
    int status = model_file_open(host, spec, endings, path, &model->file, error);
    if (status == SHOAL_OK) {
        const char *mistake =
            network_read(model->file.bytes, model->file.size, &model->network, room, sizeof room);
        if (mistake != NULL)
            status = model_refuse(error, path, SHOAL_INVALID_ARGUMENT, mistake);
    }
    if (status != SHOAL_OK) {
        model_destroy(model);
        return status;
    }
    const struct network *network = &model->network;
    model->in =
        (struct shoal_tensor_spec){network->input_name, SHOAL_FP32, 2, {-1, network->input_width}};
    model->out = (struct shoal_tensor_spec){
        network->output_name, SHOAL_FP32, 2, {-1, network->output_width}};
    *created = model;
    return SHOAL_OK;
}

static int
mlp_load(void *instance, const struct shoal_model *spec, void **model, struct shoal_error *error)
{
    const struct mlp *self = instance;
    struct mlp_model *created;
    int status = model_create(self->host, spec, &created, error);
    if (status == SHOAL_OK)
        *model = created;
    return status;
}

static void
mlp_unload(void *instance, void *model)
{
    (void)instance;
    model_destroy(model);
}

/* ---- opening ---- */

static int
own_model_open(struct mlp *self, const struct shoal_open *open, struct shoal_error *error)
{
    char path[PATH_BYTES_MAX];
    const char *model = NULL;
    for (uint32_t i = 0; i < open->param_count; i++) {
        if (strcmp(open->params[i].name, "model") != 0) {
            snprintf(error->text, sizeof error->text,
                     "parameter \"%.100s\" is unknown; the only one is \"model\"",
                     open->params[i].name);
            return SHOAL_INVALID_ARGUMENT;
        }
        model = open->params[i].value;
    }
    if (model == NULL)
        return SHOAL_OK;
    if (open->host->resolve_path(model, path, sizeof path) != SHOAL_OK)
        return model_refuse(error, model, SHOAL_INVALID_ARGUMENT, "the path is too long");
    const struct shoal_model spec = {.struct_size = sizeof spec, .path = path};
    return model_create(NULL, &spec, &self->own, error);
}

static int
memory_take(struct mlp *self, uint32_t batch_size, struct shoal_error *error)
{
    self->parts = calloc(batch_size > 1 ? batch_size : 1, sizeof *self->parts);
    self->memory = aligned_alloc(NETWORK_ALIGNMENT, sizeof(float) * AREA_FLOATS * AREA_COUNT);
    if (self->parts == NULL || self->memory == NULL) {
        snprintf(error->text, sizeof error->text, "no memory for batches of %u items", batch_size);
        return SHOAL_RESOURCE_EXHAUSTED;
    }
    self->hidden[0] = self->memory;
    self->hidden[1] = self->memory + AREA_FLOATS;
    self->gathered = self->memory + (size_t)2 * AREA_FLOATS;
    self->answers = self->memory + (size_t)3 * AREA_FLOATS;
    return SHOAL_OK;
}

static void
mlp_close(void *instance)
{
    struct mlp *self = instance;
    model_destroy(self->own);
    free(self->parts);
    free(self->memory);
    free(self);
}

static int
mlp_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    struct mlp *self = calloc(1, sizeof *self);
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    self->host = open->host;
    forward_prepare();
    int status = own_model_open(self, open, error);
    if (status == SHOAL_OK)
        status = memory_take(self, open->batch_size, error);
    if (status != SHOAL_OK) {
        mlp_close(self);
        return status;
    }
    *instance = self;
    return SHOAL_OK;
}

static int
mlp_describe_model(void *instance, void *loaded, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)error;
    const struct mlp_model *model = loaded;
    io->platform = "mlp";
    if (model == NULL)
        return SHOAL_OK;
    io->inputs = &model->in;
    io->outputs = &model->out;
    io->input_count = io->output_count = 1;
    return SHOAL_OK;
}

static int
mlp_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    struct mlp *self = instance;
    return mlp_describe_model(self, self->own, io, error);
}

/* ---- running ---- */

/* Sets the item's status; with SHOAL_OK fills `part`. */
static void
item_prepare(const struct network *network, const struct shoal_host *host, struct shoal_item *item,
             struct part *part)
{
    const struct shoal_tensor *in = item->inputs;
    if (item->input_count != 1 || strcmp(in->name, network->input_name) != 0) {
        host->fail(item, SHOAL_INVALID_ARGUMENT, "there must be one input tensor, \"%s\"",
                   network->input_name);
        return;
    }
    if (in->datatype != SHOAL_FP32 || in->rank != 2 || in->shape[1] != network->input_width) {
        host->fail(item, SHOAL_INVALID_ARGUMENT,
                   "tensor \"%s\" must be of datatype FP32 and have the shape [n, %" PRIu32 "]",
                   in->name, network->input_width);
        return;
    }
    int64_t shape[2] = {in->shape[0], network->output_width};
    float *out = host->output(item, network->output_name, SHOAL_FP32, 2, shape);
    if (out == NULL)
        return;
    item->status = SHOAL_OK;
    *part = (struct part){in->data, out, (size_t)in->shape[0], 0};
}

/* Runs rows of several parts together. Returns how many parts it has finished. */
static size_t
piece_gather(struct mlp *self, const struct network *network, struct part *parts, size_t part_count,
             size_t rows_max)
{
    size_t in_width = network->input_width;
    size_t out_width = network->output_width;
    size_t rows = 0;
    for (size_t i = 0; i < part_count && rows < rows_max; i++) {
        size_t left = parts[i].rows - parts[i].done;
        size_t taken = left < rows_max - rows ? left : rows_max - rows;
        memcpy(self->gathered + rows * in_width, parts[i].in + parts[i].done * in_width,
               taken * in_width * sizeof(float));
        rows += taken;
    }
    forward(network, self->gathered, self->answers, rows, self->hidden);
    size_t finished = 0;
    for (size_t row = 0; row < rows;) {
        struct part *part = &parts[finished];
        size_t left = part->rows - part->done;
        size_t taken = left < rows - row ? left : rows - row;
        memcpy(part->out + part->done * out_width, self->answers + row * out_width,
               taken * out_width * sizeof(float));
        row += taken;
        part->done += taken;
        finished += part->done == part->rows;
    }
    return finished;
}

static void
parts_run(struct mlp *self, const struct network *network, struct part *parts, size_t part_count)
{
    uint32_t widest = network->width_max;
    widest = widest > network->input_width ? widest : network->input_width;
    widest = widest > network->output_width ? widest : network->output_width;
    size_t rows_max = AREA_FLOATS / widest;
    rows_max = rows_max < PIECE_ROWS_MAX ? rows_max : PIECE_ROWS_MAX;
    while (part_count > 0) {
        size_t left = parts->rows - parts->done;
        size_t finished;
        if (left < rows_max && part_count > 1) {
            finished = piece_gather(self, network, parts, part_count, rows_max);
        } else {
            size_t rows = left < rows_max ? left : rows_max;
            forward(network, parts->in + parts->done * network->input_width,
                    parts->out + parts->done * network->output_width, rows, self->hidden);
            parts->done += rows;
            finished = parts->done == parts->rows;
        }
        parts += finished;
        part_count -= finished;
    }
}

static int
mlp_run(void *instance, void *loaded, struct shoal_batch *batch)
{
    struct mlp *self = instance;
    const struct mlp_model *model = loaded != NULL ? loaded : self->own;
    size_t part_count = 0;
    if (model == NULL) {
        snprintf(batch->error->text, sizeof batch->error->text,
                 "there is no model: give the stage a `model`, or the parameter \"model\"");
        return SHOAL_FAILED_PRECONDITION;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct part *part = &self->parts[part_count];
        *part = (struct part){0};
        item_prepare(&model->network, batch->host, batch->items[i], part);
        part_count += part->rows > 0;
    }
    parts_run(self, &model->network, self->parts, part_count);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,
    .abilities = SHOAL_RUNS_BATCHES | SHOAL_RUN_DURING_LOAD,
    .name = "mlp",
    .version = "1",
    .open = mlp_open,
    .describe = mlp_describe,
    .load = mlp_load,
    .unload = mlp_unload,
    .run = mlp_run,
    .close = mlp_close,
    .describe_model = mlp_describe_model,
};
