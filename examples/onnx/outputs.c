/* SPDX-License-Identifier: Apache-2.0 */
#include "outputs.h"

#include <stdio.h>
#include <string.h>

#include "text.h"

/* An output as computed. */
struct result {
    const struct shoal_tensor_spec *spec;
    struct shoal_tensor tensor; /* over all parts */
    struct text text;           /* SHOAL_BYTES */
};

/* ---- lending ---- */

static bool
is_input(const struct onnx_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (strcmp(model->inputs[i].name, name) == 0)
            return true;
    }
    return false;
}

/* True if the shape of an output is known before the run, except its rows. An output that is also
 * an input is never computed, so nothing would be written to its place. */
static bool
is_known(const struct onnx_model *model, const struct shoal_tensor_spec *spec)
{
    if (spec->datatype == SHOAL_BYTES || spec->rank == SHOAL_RANK_ANY ||
        is_input(model, spec->name))
        return false;
    for (uint32_t i = 0; i < spec->rank; i++) {
        if (spec->shape[i] == -1 && !(i == 0 && model->batches))
            return false;
    }
    return true;
}

static size_t
bytes_of(uint32_t datatype, uint32_t rank, const int64_t *shape)
{
    size_t bytes = shoal_datatype_bytes(datatype);
    for (uint32_t i = 0; i < rank; i++)
        bytes *= (size_t)shape[i];
    return bytes;
}

bool
outputs_lend(const struct engine *engine, const struct onnx_model *model, struct part *part,
             OrtValue **values)
{
    if (model->shapes_seen != SHAPES_AS_SAID || (model->batches && part->rows == -1))
        return true;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const struct shoal_tensor_spec *spec = &model->outputs[i];
        int64_t shape[SHOAL_RANK_MAX];
        if (!is_known(model, spec))
            continue;
        memcpy(shape, spec->shape, sizeof shape);
        if (model->batches)
            shape[0] = part->rows;
        void *room =
            engine->host->output(part->item, spec->name, spec->datatype, spec->rank, shape);
        if (room == NULL)
            return false;
        struct shoal_error error;
        OrtStatus *status = engine->api->CreateTensorWithDataAsOrtValue(
            engine->memory, room, bytes_of(spec->datatype, spec->rank, shape), shape, spec->rank,
            model_element(spec->datatype), &values[i]);
        if (engine_status(engine, status, &error) != SHOAL_OK) {
            engine->host->fail(part->item, SHOAL_INTERNAL, "%s", error.text);
            return false;
        }
    }
    return true;
}

/* ---- giving ---- */

static int
shape_read(const struct engine *engine, const OrtValue *value, struct shoal_tensor *tensor,
           struct shoal_error *error)
{
    OrtTensorTypeAndShapeInfo *info;
    size_t rank = 0;
    OrtStatus *status = engine->api->GetTensorTypeAndShape(value, &info);
    if (status != NULL)
        return engine_status(engine, status, error);
    status = engine->api->GetDimensionsCount(info, &rank);
    if (status == NULL && rank <= SHOAL_RANK_MAX)
        status = engine->api->GetDimensions(info, tensor->shape, rank);
    engine->api->ReleaseTensorTypeAndShapeInfo(info);
    tensor->rank = (uint32_t)rank;
    if (status != NULL || rank <= SHOAL_RANK_MAX)
        return engine_status(engine, status, error);
    snprintf(error->text, sizeof error->text, "output \"%s\" has more than 8 dimensions",
             tensor->name);
    return SHOAL_INTERNAL;
}

static int
result_read(const struct engine *engine, OrtValue *value, struct result *result,
            struct shoal_error *error)
{
    struct shoal_tensor *tensor = &result->tensor;
    int status = shape_read(engine, value, tensor, error);
    if (status != SHOAL_OK)
        return status;
    if (tensor->datatype == SHOAL_BYTES)
        return text_read(engine, value, shoal_tensor_elements(tensor), &result->text, error);
    tensor->bytes = bytes_of(tensor->datatype, tensor->rank, tensor->shape);
    return engine_status(engine, engine->api->GetTensorMutableData(value, &tensor->data), error);
}

/* Notes what a run has shown of the shapes. Rows are those of the inputs. */
static bool
is_as_said(const struct onnx_model *model, const struct result *result, int64_t rows)
{
    const struct shoal_tensor_spec *spec = result->spec;
    if (!is_known(model, spec))
        return true;
    if (result->tensor.rank != spec->rank)
        return false;
    for (uint32_t i = 0; i < spec->rank; i++) {
        int64_t said = i == 0 && model->batches ? rows : spec->shape[i];
        if (result->tensor.shape[i] != said)
            return false;
    }
    return true;
}

/* Copies the part's share of an output: `rows` rows from row `first` on; rows -1: all of it. */
static bool
result_give(const struct engine *engine, const struct result *result, struct part *part,
            int64_t first, int64_t rows)
{
    const struct shoal_tensor *whole = &result->tensor;
    int64_t shape[SHOAL_RANK_MAX];
    size_t row_elements = 1;
    memcpy(shape, whole->shape, sizeof shape);
    if (rows != -1)
        shape[0] = rows;
    for (uint32_t i = rows != -1 ? 1 : 0; i < whole->rank; i++)
        row_elements *= (size_t)shape[i];
    size_t begin = (size_t)first * row_elements;
    size_t count = rows != -1 ? (size_t)rows * row_elements : row_elements;
    if (whole->datatype == SHOAL_BYTES) {
        void *room =
            engine->host->output_bytes(part->item, whole->name, SHOAL_BYTES, whole->rank, shape,
                                       text_framed_bytes(&result->text, begin, count));
        if (room != NULL)
            text_frame(&result->text, begin, count, room);
        return room != NULL;
    }
    size_t element = shoal_datatype_bytes(whole->datatype);
    void *room = engine->host->output(part->item, whole->name, whole->datatype, whole->rank, shape);
    if (room != NULL && count > 0)
        memcpy(room, (const char *)whole->data + begin * element, count * element);
    return room != NULL;
}

static void
part_give(const struct engine *engine, const struct result *results, size_t result_count,
          struct part *part, int64_t first, int64_t rows)
{
    for (size_t i = 0; i < result_count; i++) {
        if (!result_give(engine, &results[i], part, first, rows))
            return;
    }
    part->item->status = SHOAL_OK;
}

static bool
has_rows(const struct result *results, size_t result_count, int64_t rows)
{
    for (size_t i = 0; i < result_count; i++) {
        if (results[i].tensor.rank == 0 || results[i].tensor.shape[0] != rows)
            return false;
    }
    return true;
}

/* Collects the computed outputs that were not lent. Returns their number; on failure, those to
 * free. */
static size_t
results_read(const struct engine *engine, const struct onnx_model *model, OrtValue *const *values,
             const bool *lent, struct result *results, int *status, struct shoal_error *error)
{
    size_t count = 0;
    *status = SHOAL_OK;
    for (uint32_t i = 0; i < model->output_count && *status == SHOAL_OK; i++) {
        const struct shoal_tensor_spec *spec = &model->outputs[i];
        if (lent[i])
            continue;
        results[count] = (struct result){
            .spec = spec, .tensor = {.name = spec->name, .datatype = spec->datatype}};
        *status = result_read(engine, values[i], &results[count], error);
        count += *status == SHOAL_OK;
    }
    return count;
}

static void
shapes_judge(struct onnx_model *model, const struct result *results, size_t result_count,
             int64_t rows)
{
    if (model->shapes_seen != SHAPES_UNSEEN || (model->batches && rows == -1))
        return;
    model->shapes_seen = SHAPES_AS_SAID;
    for (size_t i = 0; i < result_count; i++) {
        if (!is_as_said(model, &results[i], rows))
            model->shapes_seen = SHAPES_DIFFERENT;
    }
}

static void
results_give(const struct engine *engine, const struct result *results, size_t result_count,
             struct part *const *parts, size_t part_count)
{
    int64_t first = 0;
    if (part_count == 1) {
        part_give(engine, results, result_count, parts[0], 0, -1);
        return;
    }
    for (size_t i = 0; i < part_count; i++) {
        part_give(engine, results, result_count, parts[i], first, parts[i]->rows);
        first += parts[i]->rows;
    }
}

bool
outputs_give(const struct engine *engine, struct onnx_model *model, struct part *const *parts,
             size_t part_count, OrtValue *const *values, const bool *lent)
{
    struct result results[SHOAL_TENSORS_MAX];
    struct shoal_error error = {{0}};
    int status;
    int64_t rows = 0;
    for (size_t i = 0; i < part_count; i++)
        rows += parts[i]->rows;
    size_t count = results_read(engine, model, values, lent, results, &status, &error);
    bool given = part_count == 1 || status != SHOAL_OK || has_rows(results, count, rows);
    if (status != SHOAL_OK) {
        for (size_t i = 0; i < part_count; i++)
            engine->host->fail(parts[i]->item, status, "%s", error.text);
    } else if (given) {
        shapes_judge(model, results, count, rows);
        results_give(engine, results, count, parts, part_count);
    }
    for (size_t i = 0; i < count; i++)
        text_free(&results[i].text);
    return given;
}
