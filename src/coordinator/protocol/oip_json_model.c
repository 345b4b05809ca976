/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_json.h"
#include "coordinator/protocol/oip_json_data.h"
#include "coordinator/protocol/oip_request.h"
#include "wire/wire.h"

enum { FIELD_NAME = 1, FIELD_VERSION = 2, FIELD_READY = 1 };

/* ---- requests ---- */

static void
put_field(struct bytes *out, uint32_t number, const char *text)
{
    if (text[0] != '\0')
        wire_append_run(out, number, text, strlen(text));
}

void
oip_json_put_named(struct bytes *out, const char *model, const char *version)
{
    put_field(out, FIELD_NAME, model);
    put_field(out, FIELD_VERSION, version);
}

/* ---- answers ---- */

static struct json
begin(struct bytes *out, const char *name)
{
    struct json json = json_begin(out, JSON_STYLE_SHORT);
    json_open(&json, '{');
    json_field_string(&json, "name", name);
    return json;
}

void
oip_json_put_server(struct bytes *out, const char *name)
{
    struct json json = begin(out, name);
    json_field_string(&json, "version", SHOAL_VERSION);
    json_field_open(&json, "extensions", '[');
    json_put_string(&json, "binary_tensor_data");
    json_close(&json, ']');
    json_close(&json, '}');
}

enum status
oip_json_put_model_ready(struct bytes *out, const char *model, const struct wire_message *response,
                         bool *ready, struct error *error)
{
    struct wire_cursor cursor = wire_begin(response);
    struct wire_field field;
    enum wire_result result;
    *ready = false;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD)
        if (field.number == FIELD_READY && field.type == WIRE_VARINT)
            *ready = field.value != 0;
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INTERNAL, "the response is no ModelReadyResponse");
    struct json json = begin(out, model);
    json_field_bool(&json, "ready", *ready);
    json_close(&json, '}');
    return STATUS_OK;
}

/* The protocol has no "any": the type has no name, and there is one open dimension. */
static void
put_tensors(struct json *json, const char *name,
            Inference__ModelMetadataResponse__TensorMetadata *const *tensors, size_t count)
{
    json_field_open(json, name, '[');
    for (size_t i = 0; i < count; i++) {
        json_open(json, '{');
        json_field_string(json, "name", tensors[i]->name);
        json_field_string(json, "datatype", tensors[i]->datatype);
        json_field_open(json, "shape", '[');
        for (size_t k = 0; k < tensors[i]->n_shape; k++)
            json_put_int(json, tensors[i]->shape[k]);
        json_close(json, ']');
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void
put_model(struct bytes *out, const Inference__ModelMetadataResponse *model)
{
    struct json json = begin(out, model->name);
    json_field_open(&json, "versions", '[');
    for (size_t i = 0; i < model->n_versions; i++)
        json_put_string(&json, model->versions[i]);
    json_close(&json, ']');
    json_field_string(&json, "platform", model->platform);
    put_tensors(&json, "inputs", model->inputs, model->n_inputs);
    put_tensors(&json, "outputs", model->outputs, model->n_outputs);
    json_close(&json, '}');
}

/* Returns the response, to be freed; NULL: it is no such response. */
static Inference__ModelMetadataResponse *
unpack(const struct wire_message *response, struct error *error)
{
    struct wire_cursor cursor = wire_begin(response);
    unsigned char *packed = malloc(response->bytes + 1); /* it may be none */
    Inference__ModelMetadataResponse *model = NULL;
    if (packed != NULL) {
        wire_read(&cursor, packed, response->bytes);
        model = inference__model_metadata_response__unpack(NULL, response->bytes, packed);
        free(packed);
    }
    if (model == NULL)
        error_set(error, STATUS_INTERNAL, "the response is no ModelMetadataResponse");
    return model;
}

enum status
oip_json_put_model(struct bytes *out, const struct wire_message *response, struct error *error)
{
    Inference__ModelMetadataResponse *model = unpack(response, error);
    if (model == NULL)
        return error->status;
    put_model(out, model);
    inference__model_metadata_response__free_unpacked(model, NULL);
    return STATUS_OK;
}

/* An input that cannot be described so is of any type, which v1 refuses. */
static struct handshake_tensor
read_input(const Inference__ModelMetadataResponse__TensorMetadata *input)
{
    struct handshake_tensor tensor = {.datatype = oip_datatype_from_name(input->datatype)};
    bool fits = input->n_shape <= SHOAL_RANK_MAX && strlen(input->name) < sizeof(tensor.name) &&
                tensor.datatype < SHOAL_DATATYPE_END;
    snprintf(tensor.name, sizeof(tensor.name), "%s", input->name);
    if (!fits) {
        tensor.datatype = SHOAL_DATATYPE_ANY;
        return tensor;
    }
    tensor.rank = (uint32_t)input->n_shape;
    for (size_t i = 0; i < input->n_shape; i++)
        tensor.shape[i] = input->shape[i];
    return tensor;
}

enum status
oip_read_schema(const struct wire_message *response, struct oip_schema **read, struct error *error)
{
    Inference__ModelMetadataResponse *model = unpack(response, error);
    if (model == NULL)
        return error->status;
    struct oip_schema *schema = calloc(1, sizeof(*schema));
    CHECK(schema != NULL);
    snprintf(schema->name, sizeof(schema->name), "%s", model->name);
    schema->info.name = schema->name;
    schema->info.inputs = schema->inputs;
    for (size_t i = 0; i < model->n_inputs && i < SHOAL_TENSORS_MAX; i++)
        schema->inputs[schema->info.input_count++] = read_input(model->inputs[i]);
    inference__model_metadata_response__free_unpacked(model, NULL);
    *read = schema;
    return STATUS_OK;
}
