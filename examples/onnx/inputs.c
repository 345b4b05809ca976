/* SPDX-License-Identifier: Apache-2.0 */
#include "inputs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum { ALIGNMENT = 64, SHAPE_ROOM = SHOAL_RANK_MAX * 21 + 3 };

static const char *const datatype_names[SHOAL_DATATYPE_END] = {
    "any",   "BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
    "INT32", "INT64", "FP16",  "FP32",   "FP64",   "BYTES",  "BF16",
};

/* ---- what an item brings ---- */

static const struct shoal_tensor *
input_find(const struct shoal_item *item, const char *name)
{
    for (uint32_t i = 0; i < item->input_count; i++) {
        if (strcmp(item->inputs[i].name, name) == 0)
            return &item->inputs[i];
    }
    return NULL;
}

static bool
has_shape(const struct shoal_tensor *tensor, const struct shoal_tensor_spec *spec)
{
    if (spec->rank == SHOAL_RANK_ANY)
        return true;
    if (tensor->rank != spec->rank)
        return false;
    for (uint32_t i = 0; i < spec->rank; i++) {
        if (spec->shape[i] != -1 && spec->shape[i] != tensor->shape[i])
            return false;
    }
    return true;
}

/* "[-1,64]" */
static const char *
shape_text(const struct shoal_tensor_spec *spec, char room[SHAPE_ROOM])
{
    size_t length = 0;
    for (uint32_t i = 0; i < spec->rank; i++)
        length += (size_t)snprintf(room + length, SHAPE_ROOM - length, "%c%" PRId64,
                                   i == 0 ? '[' : ',', spec->shape[i]);
    snprintf(room + length, SHAPE_ROOM - length, "]");
    return room;
}

/* True if the model takes the tensor; else fails the item. */
static bool
input_check(const struct shoal_host *host, struct shoal_item *item,
            const struct shoal_tensor *tensor, const struct shoal_tensor_spec *spec)
{
    char room[SHAPE_ROOM];
    if (tensor == NULL)
        host->fail(item, SHOAL_INVALID_ARGUMENT, "there is no input tensor \"%s\"", spec->name);
    else if (tensor->datatype != spec->datatype)
        host->fail(item, SHOAL_INVALID_ARGUMENT, "tensor \"%s\" must be of datatype %s", spec->name,
                   datatype_names[spec->datatype]);
    else if (!has_shape(tensor, spec))
        host->fail(item, SHOAL_INVALID_ARGUMENT, "tensor \"%s\" must have the shape %s", spec->name,
                   shape_text(spec, room));
    else
        return true;
    return false;
}

void
part_init(struct part *part, const struct onnx_model *model, const struct shoal_host *host,
          struct shoal_item *item)
{
    part->item = item;
    part->done = true;
    if (item->input_count != model->input_count) {
        host->fail(item, SHOAL_INVALID_ARGUMENT, "there are %u input tensors; the model takes %u",
                   item->input_count, model->input_count);
        return;
    }
    for (uint32_t i = 0; i < model->input_count; i++) {
        part->inputs[i] = input_find(item, model->inputs[i].name);
        if (!input_check(host, item, part->inputs[i], &model->inputs[i]))
            return;
    }
    part->rows = model->batches ? part->inputs[0]->shape[0] : -1;
    for (uint32_t i = 1; i < model->input_count; i++) {
        if (part->rows != -1 && part->inputs[i]->shape[0] != part->rows)
            part->rows = -1;
    }
    part->done = false;
}

bool
part_fits(const struct part *part, const struct part *other, uint32_t input_count)
{
    if (part->rows == -1 || other->rows == -1)
        return false;
    for (uint32_t i = 0; i < input_count; i++) {
        const struct shoal_tensor *one = part->inputs[i];
        const struct shoal_tensor *two = other->inputs[i];
        for (uint32_t k = 1; k < one->rank; k++) /* both have the rank that the model declares */
            if (one->shape[k] != two->shape[k])
                return false;
    }
    return true;
}

/* ---- what a session takes ---- */

/* Computes the shape of all parts together. */
static void
shape_join(struct part *const *parts, size_t part_count, uint32_t input, int64_t *shape)
{
    memcpy(shape, parts[0]->inputs[input]->shape, sizeof parts[0]->inputs[input]->shape);
    for (size_t i = 1; i < part_count; i++)
        shape[0] += parts[i]->inputs[input]->shape[0];
}

static int
value_of_text(const struct engine *engine, struct part *const *parts, size_t part_count,
              uint32_t input, OrtValue **value, struct shoal_error *error)
{
    int64_t shape[SHOAL_RANK_MAX];
    shape_join(parts, part_count, input, shape);
    int status = engine_status(
        engine,
        engine->api->CreateTensorAsOrtValue(engine->allocator, shape, parts[0]->inputs[input]->rank,
                                            ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, value),
        error);
    size_t first = 0;
    for (size_t i = 0; i < part_count && status == SHOAL_OK; i++) {
        status = text_put(engine, parts[i]->inputs[input], *value, first, error);
        first += shoal_tensor_elements(parts[i]->inputs[input]);
    }
    return status;
}

static int
value_of_numbers(const struct engine *engine, struct part *const *parts, size_t part_count,
                 uint32_t input, char *room, OrtValue **value, struct shoal_error *error)
{
    static char nothing[ALIGNMENT]; /* the data of a tensor without elements */
    int64_t shape[SHOAL_RANK_MAX];
    const struct shoal_tensor *tensor = parts[0]->inputs[input];
    void *data = tensor->data != NULL ? tensor->data : nothing;
    size_t bytes = tensor->bytes;
    shape_join(parts, part_count, input, shape);
    if (part_count > 1) {
        bytes = 0;
        data = room;
        for (size_t i = 0; i < part_count; i++) {
            const struct shoal_tensor *one = parts[i]->inputs[input];
            if (one->bytes > 0)
                memcpy(room + bytes, one->data, one->bytes);
            bytes += one->bytes;
        }
    }
    OrtStatus *status = engine->api->CreateTensorWithDataAsOrtValue(
        engine->memory, data, bytes, shape, tensor->rank, model_element(tensor->datatype), value);
    return engine_status(engine, status, error);
}

/* Returns the bytes of a concatenated input, up to where the next may begin. */
static size_t
joined_bytes(struct part *const *parts, size_t part_count, uint32_t input)
{
    size_t bytes = 0;
    for (size_t i = 0; i < part_count; i++)
        bytes += parts[i]->inputs[input]->bytes;
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int
reserve(struct gathered *gathered, size_t bytes, struct shoal_error *error)
{
    if (bytes <= gathered->size)
        return SHOAL_OK;
    free(gathered->bytes);
    gathered->bytes = aligned_alloc(ALIGNMENT, bytes);
    gathered->size = gathered->bytes != NULL ? bytes : 0;
    if (gathered->bytes != NULL)
        return SHOAL_OK;
    snprintf(error->text, sizeof error->text, "no memory for a batch of %zu bytes", bytes);
    return SHOAL_RESOURCE_EXHAUSTED;
}

int
inputs_make(const struct engine *engine, const struct onnx_model *model, struct gathered *gathered,
            struct part *const *parts, size_t part_count, OrtValue **values,
            struct shoal_error *error)
{
    int status = SHOAL_OK;
    size_t offset = 0;
    for (uint32_t i = 0; i < model->input_count && part_count > 1; i++)
        if (model->inputs[i].datatype != SHOAL_BYTES)
            offset += joined_bytes(parts, part_count, i);
    if (part_count > 1)
        status = reserve(gathered, offset, error);
    offset = 0;
    for (uint32_t i = 0; i < model->input_count && status == SHOAL_OK; i++) {
        if (model->inputs[i].datatype == SHOAL_BYTES) {
            status = value_of_text(engine, parts, part_count, i, &values[i], error);
            continue;
        }
        char *room = part_count > 1 ? gathered->bytes + offset : NULL;
        status = value_of_numbers(engine, parts, part_count, i, room, &values[i], error);
        if (part_count > 1)
            offset += joined_bytes(parts, part_count, i);
    }
    return status;
}
