/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void
put_text(struct bytes *out, const char *key, const char *text)
{
    bytes_put_text(out, key);
    oip_json_put_string(out, text, strlen(text));
}

void
oip_json_put_server(struct bytes *out)
{
    put_text(out, "{\"name\":", "shoal");
    put_text(out, ",\"version\":", SHOAL_VERSION);
    bytes_put_text(out, ",\"extensions\":[\"binary_tensor_data\"]}");
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
    put_text(out, "{\"name\":", model);
    bytes_put_text(out, *ready ? ",\"ready\":true}" : ",\"ready\":false}");
    return STATUS_OK;
}

/* The protocol has no "any": the type has no name, and there is one open dimension. */
static void
put_tensor(struct bytes *out, const Inference__ModelMetadataResponse__TensorMetadata *tensor)
{
    put_text(out, "{\"name\":", tensor->name);
    put_text(out, ",\"datatype\":", tensor->datatype);
    bytes_put_text(out, ",\"shape\":[");
    for (size_t i = 0; i < tensor->n_shape; i++) {
        char number[24];
        snprintf(number, sizeof(number), i == 0 ? "%" PRId64 : ",%" PRId64, tensor->shape[i]);
        bytes_put_text(out, number);
    }
    bytes_put_text(out, "]}");
}

static void
put_tensors(struct bytes *out, const char *key,
            Inference__ModelMetadataResponse__TensorMetadata *const *tensors, size_t count)
{
    bytes_put_text(out, key);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            bytes_put_char(out, ',');
        put_tensor(out, tensors[i]);
    }
    bytes_put_char(out, ']');
}

static void
put_model(struct bytes *out, const Inference__ModelMetadataResponse *model)
{
    put_text(out, "{\"name\":", model->name);
    bytes_put_text(out, ",\"versions\":[");
    for (size_t i = 0; i < model->n_versions; i++)
        put_text(out, i == 0 ? "" : ",", model->versions[i]);
    put_text(out, "],\"platform\":", model->platform);
    put_tensors(out, ",\"inputs\":[", model->inputs, model->n_inputs);
    put_tensors(out, ",\"outputs\":[", model->outputs, model->n_outputs);
    bytes_put_char(out, '}');
}

enum status
oip_json_put_model(struct bytes *out, const struct wire_message *response, struct error *error)
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
        return error_set(error, STATUS_INTERNAL, "the response is no ModelMetadataResponse");
    put_model(out, model);
    inference__model_metadata_response__free_unpacked(model, NULL);
    return STATUS_OK;
}
