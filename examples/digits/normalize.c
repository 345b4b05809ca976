/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first stage: converts pixels from 0 to 16, as FP32 or UINT8, to FP32 from 0 to 1. A request
 * has one or more images: tensor "image" of shape [n, 64]. A stage can declare only one datatype
 * for a tensor, to which callers are then held: FP32 unless the parameter `datatype` is UINT8.
 */
#include <shoal/modelet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PIXELS = 64 };
#define PIXEL_MAX 16.0f

/* Static, because there is one instance per worker process. */
static struct shoal_tensor_spec image_in = {"image", SHOAL_FP32, 2, {-1, PIXELS}};
static const struct shoal_tensor_spec image_out = {"image", SHOAL_FP32, 2, {-1, PIXELS}};

static int
normalize_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    (void)instance;
    for (uint32_t i = 0; i < open->param_count; i++) {
        const struct shoal_param *param = &open->params[i];
        if (strcmp(param->name, "datatype") != 0) {
            snprintf(error->text, sizeof error->text,
                     "unknown parameter \"%s\"; the only one is \"datatype\"", param->name);
            return SHOAL_INVALID_ARGUMENT;
        }
        if (strcmp(param->value, "FP32") != 0 && strcmp(param->value, "UINT8") != 0) {
            snprintf(error->text, sizeof error->text,
                     "parameter \"datatype\" is \"%s\", not FP32 or UINT8", param->value);
            return SHOAL_INVALID_ARGUMENT;
        }
        image_in.datatype = strcmp(param->value, "UINT8") == 0 ? SHOAL_UINT8 : SHOAL_FP32;
    }
    return SHOAL_OK;
}

static int
normalize_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)error;
    io->inputs = &image_in;
    io->input_count = 1;
    io->outputs = &image_out;
    io->output_count = 1;
    return SHOAL_OK;
}

/* Divides a row by the largest pixel value. False: a pixel is out of range (as a NaN is). Checks
 * without leaving the loop, so that the compiler can vectorize it. */

static bool
normalize_floats(const float *restrict row, float *restrict out)
{
    int wrong = 0;
    for (size_t i = 0; i < PIXELS; i++) {
        wrong |= !(row[i] >= 0.0f) | !(row[i] <= PIXEL_MAX);
        out[i] = row[i] / PIXEL_MAX;
    }
    return !wrong;
}

static bool
normalize_bytes(const uint8_t *restrict row, float *restrict out)
{
    int wrong = 0;
    for (size_t i = 0; i < PIXELS; i++) {
        wrong |= row[i] > (uint8_t)PIXEL_MAX;
        out[i] = (float)row[i] / PIXEL_MAX;
    }
    return !wrong;
}

/* Returns the first pixel out of range in the row that begins at pixel `at`. */
static size_t
wrong_pixel(const struct shoal_tensor *image, size_t at)
{
    const float *floats = image->data;
    const uint8_t *bytes = image->data;
    for (size_t i = 0; i < PIXELS; i++) {
        float pixel = image->datatype == SHOAL_UINT8 ? (float)bytes[at + i] : floats[at + i];
        if (!(pixel >= 0.0f && pixel <= PIXEL_MAX))
            return i;
    }
    return PIXELS;
}

static const char *
normalize_mistake(const struct shoal_item *item)
{
    if (item->input_count != 1 || strcmp(item->inputs[0].name, "image") != 0)
        return "there must be one input tensor, \"image\"";
    const struct shoal_tensor *image = &item->inputs[0];
    if (image->datatype != SHOAL_FP32 && image->datatype != SHOAL_UINT8)
        return "tensor \"image\" must be of datatype FP32 or UINT8";
    if (image->rank != 2 || image->shape[1] != PIXELS)
        return "tensor \"image\" must have the shape [n, 64]";
    return NULL;
}

static int32_t
normalize_item(const struct shoal_host *host, struct shoal_item *item)
{
    const char *mistake = normalize_mistake(item);
    if (mistake != NULL)
        return host->fail(item, SHOAL_INVALID_ARGUMENT, "%s", mistake);
    const struct shoal_tensor *image = &item->inputs[0];
    float *out = host->output(item, "image", SHOAL_FP32, 2, image->shape);
    if (out == NULL)
        return item->status;
    size_t row_count = shoal_tensor_elements(image) / PIXELS;
    for (size_t row = 0; row < row_count; row++) {
        size_t at = row * PIXELS;
        bool right = image->datatype == SHOAL_UINT8
                         ? normalize_bytes((const uint8_t *)image->data + at, out + at)
                         : normalize_floats((const float *)image->data + at, out + at);
        if (!right)
            return host->fail(item, SHOAL_INVALID_ARGUMENT,
                              "tensor \"image\": pixel %zu of row %zu is not in 0..16",
                              wrong_pixel(image, at), row);
    }
    return SHOAL_OK;
}

static int
normalize_run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = normalize_item(batch->host, batch->items[i]);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,   .abilities = SHOAL_RUNS_BATCHES, .name = "normalize",  .version = "1",
    .open = normalize_open, .describe = normalize_describe,  .run = normalize_run,
};
