/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers of KServe's v1 protocol: {"predictions": …} is the only output, nested as its shape,
 * or an array of objects with a row of each output. And those of Triton's generate extension.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/json.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_json_request.h"

enum {
    LENGTH_BYTES = sizeof(uint32_t),
    EMPTY_ARRAYS_MAX = 65536, /* of a tensor without elements */
};

struct prediction_output {
    struct json_output output;
    char name[SHOAL_NAME_BYTES_MAX + 1];
    uint32_t datatype;
    size_t element_bytes;    /* 0: BYTES */
    struct wire_cursor rest; /* of the contents, not yet written */
};

static enum status
impossible(struct error *error)
{
    return error_set(error, STATUS_INTERNAL, "the response is not a ModelInferResponse");
}

/* Returns whether the shape fits the contents: nothing else limits how often it makes us write. */
static bool
is_sound(const struct prediction_output *one)
{
    uint64_t elements = 1;
    uint64_t arrays = 1;
    for (uint32_t i = 0; i < one->output.rank; i++) {
        int64_t dimension = one->output.shape[i];
        if (dimension < 0 || __builtin_mul_overflow(elements, (uint64_t)dimension, &elements))
            return false;
        arrays = elements > 0 ? elements : arrays;
    }
    if (elements == 0)
        return one->rest.left == 0 && arrays <= EMPTY_ARRAYS_MAX;
    return one->element_bytes == 0 ? elements <= one->rest.left / LENGTH_BYTES
                                   : elements == one->rest.left / one->element_bytes;
}

static enum status
open_output(struct prediction_output *one, struct wire_cursor described, struct wire_cursor raw,
            struct error *error)
{
    enum status status = oip_json_read_output(&one->output, described, error);
    if (status != STATUS_OK)
        return status;
    if (one->output.name.left > SHOAL_NAME_BYTES_MAX)
        return impossible(error);
    uint64_t bytes = one->output.name.left;
    wire_read(&one->output.name, one->name, bytes);
    one->name[bytes] = '\0';
    one->datatype = oip_datatype_from_name(one->output.datatype);
    if (one->datatype == 0)
        return impossible(error);
    one->element_bytes = one->datatype == SHOAL_BYTES ? 0 : shoal_datatype_bytes(one->datatype);
    one->rest = raw;
    return is_sound(one) ? STATUS_OK : impossible(error);
}

/* Takes the next `count` elements. Lengths within BYTES may change meanwhile, as a worker can
 * write them: their writer judges them again. */
static struct wire_cursor
take_elements(struct prediction_output *one, uint64_t count)
{
    struct wire_cursor taken = one->rest;
    uint64_t before = one->rest.left;
    uint32_t length;
    if (one->element_bytes > 0) {
        wire_skip(&one->rest, count * one->element_bytes);
        count = 0;
    }
    for (; count > 0 && one->rest.left >= LENGTH_BYTES; count--) {
        wire_read(&one->rest, &length, LENGTH_BYTES);
        wire_skip(&one->rest, length < one->rest.left ? length : one->rest.left);
    }
    taken.left = before - one->rest.left;
    return taken;
}

/* The elements as an array; or one of them, without brackets. */
static enum status
put_vector(struct bytes *out, struct prediction_output *one, uint64_t count, struct error *error)
{
    const struct oip_json_tensor tensor = {.datatype = one->datatype};
    struct wire_cursor taken = take_elements(one, count);
    enum status status = oip_json_data_write(out, taken, &tensor, error);
    return status == STATUS_OK ? status : error_prefix(error, "output \"%s\"", one->name);
}

static enum status
put_scalar(struct bytes *out, struct prediction_output *one, struct error *error)
{
    struct bytes vector = {0};
    enum status status = put_vector(&vector, one, 1, error);
    if (status == STATUS_OK && (vector.failed || vector.used < 3))
        status = impossible(error);
    if (status == STATUS_OK)
        bytes_put(out, vector.data + 1, vector.used - 2);
    bytes_fini(&vector);
    return status;
}

/* The next part of the tensor that has the shape from dimension `depth` on. */
static enum status
put_nested(struct bytes *out, struct prediction_output *one, uint32_t depth, struct error *error)
{
    const struct json_output *output = &one->output;
    if (depth == output->rank)
        return put_scalar(out, one, error);
    uint64_t count = (uint64_t)output->shape[depth];
    if (depth + 1 == output->rank)
        return put_vector(out, one, count, error);
    enum status status = STATUS_OK;
    bytes_put_char(out, '[');
    for (uint64_t i = 0; status == STATUS_OK && !out->failed && i < count; i++) {
        if (i > 0)
            bytes_put_char(out, ',');
        status = put_nested(out, one, depth + 1, error);
    }
    bytes_put_char(out, ']');
    return status;
}

static enum status
put_objects(struct bytes *out, struct prediction_output *outputs, uint32_t count,
            struct error *error)
{
    for (uint32_t i = 0; i < count; i++)
        if (outputs[i].output.rank == 0 || outputs[i].output.shape[0] != outputs[0].output.shape[0])
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "output \"%s\" has no row for each of \"%s\": call the model by "
                             "/v2/models/NAME/infer",
                             outputs[i].name, outputs[0].name);
    int64_t rows = count == 0 ? 0 : outputs[0].output.shape[0];
    struct json json = json_begin(out, JSON_STYLE_SHORT);
    enum status status = STATUS_OK;
    json_open(&json, '[');
    for (int64_t row = 0; status == STATUS_OK && !out->failed && row < rows; row++) {
        json_open(&json, '{');
        for (uint32_t i = 0; status == STATUS_OK && i < count; i++) {
            json_name(&json, outputs[i].name);
            status = put_nested(out, &outputs[i], 1, error);
        }
        json_close(&json, '}');
    }
    json_close(&json, ']');
    return status;
}

/* ---- Triton's generate ---- */

static enum status
put_member(struct json *json, struct prediction_output *one, struct error *error)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < one->output.rank; i++)
        count *= (uint64_t)one->output.shape[i]; /* is_sound saw that it fits */
    json_name(json, one->name);
    return count == 1 ? put_scalar(json->out, one, error)
                      : put_vector(json->out, one, count, error);
}

enum status
oip_json_write_members(struct json *json, const struct json_answer_parts *parts,
                       struct error *error)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; status == STATUS_OK && i < parts->output_count; i++) {
        struct prediction_output one = {0};
        status = open_output(&one, parts->outputs[i], parts->raws[i], error);
        if (status == STATUS_OK)
            status = put_member(json, &one, error);
    }
    return status;
}

/* ---- KServe's v1 ---- */

enum status
oip_json_write_rows(struct bytes *out, const struct json_answer_parts *parts, struct error *error)
{
    struct prediction_output *outputs = calloc(SHOAL_TENSORS_MAX, sizeof(*outputs));
    CHECK(outputs != NULL && parts->output_count <= SHOAL_TENSORS_MAX);
    enum status status = STATUS_OK;
    for (uint32_t i = 0; status == STATUS_OK && i < parts->output_count; i++)
        status = open_output(&outputs[i], parts->outputs[i], parts->raws[i], error);
    bytes_put_text(out, "{\"predictions\":");
    if (status == STATUS_OK && parts->output_count == 1)
        status = put_nested(out, &outputs[0], 0, error);
    else if (status == STATUS_OK)
        status = put_objects(out, outputs, parts->output_count, error);
    bytes_put_char(out, '}');
    free(outputs);
    if (status == STATUS_OK && out->failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to write the answer");
    return status;
}
