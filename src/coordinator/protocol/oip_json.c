/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_json_data.h"
#include "coordinator/protocol/oip_json_request.h"
#include "coordinator/protocol/oip_request.h"
#include "shm/payload.h"
#include "wire/wire.h"

/* ---- the request's memory ---- */

static enum status
keep_string(struct json_reading *reading, const char *field, const json_t *string, char **kept)
{
    return oip_json_keep(reading, field, json_string_value(string), json_string_length(string),
                         kept);
}

/* ---- own parameters of tensors ---- */

/* Reads one of a tensor's own parameters, if it is about shared memory. */
static enum status
read_own(struct json_reading *reading, enum oip_side side, const char *key, const json_t *value)
{
    Inference__InferParameter parameter = INFERENCE__INFER_PARAMETER__INIT;
    enum oip_own own;
    enum status status = oip_own_parameter(key, &own, reading->error);
    if (status != STATUS_OK || own == OIP_OWN_NONE)
        return status;
    if (!json_is_number(value) && !json_is_string(value))
        return REFUSE(reading, "parameter \"%s\": must be a string or a number", key);
    status = oip_json_read_value(reading, value, &parameter);
    return status == STATUS_OK
               ? oip_put_own(reading->request, side, own, &parameter, reading->error)
               : status;
}

/* The parameters of the tensor that was added last, or NULL: it has none. */
static enum status
own_parameters(struct json_reading *reading, enum oip_side side, const json_t *tensor,
               const json_t **parameters)
{
    json_t *own = json_object_get(tensor, "parameters");
    const char *key;
    json_t *value;
    if (own != NULL && !json_is_object(own))
        return REFUSE(reading, "\"parameters\" must be an object");
    json_object_foreach(own, key, value)
    {
        enum status status = read_own(reading, side, key, value);
        if (status != STATUS_OK)
            return status;
    }
    *parameters = own;
    return STATUS_OK;
}

/* `content_type`: "base64"; any other value has no meaning. */
static bool
is_base64(const json_t *parameters)
{
    const char *type = json_string_value(json_object_get(parameters, "content_type"));
    return type != NULL && strcmp(type, "base64") == 0;
}

/* ---- inputs ---- */

static enum status
read_shape(struct json_reading *reading, const json_t *shape,
           Inference__ModelInferRequest__InferInputTensor *to)
{
    if (!json_is_array(shape))
        return REFUSE(reading, "\"shape\" must be an array");
    size_t rank = json_array_size(shape);
    size_t bytes = rank * sizeof(to->shape[0]);
    if (oip_count_small(reading->request, bytes, reading->error) != STATUS_OK)
        return oip_json_invalid(reading);
    to->n_shape = rank;
    to->shape = bump_take(&reading->request->scratch, bytes);
    for (size_t i = 0; i < rank; i++) {
        const json_t *dimension = json_array_get(shape, i);
        if (!json_is_integer(dimension))
            return REFUSE(reading, "dimension %zu is not an integer", i);
        to->shape[i] = json_integer_value(dimension);
    }
    return STATUS_OK;
}

static enum status
read_binary(struct json_reading *reading, const json_t *size)
{
    json_int_t bytes = json_integer_value(size);
    if (!json_is_integer(size) || bytes < 0)
        return REFUSE(reading, "\"binary_data_size\" must be a number of bytes");
    if ((uint64_t)bytes > reading->binary_bytes)
        return REFUSE(reading,
                      "\"binary_data_size\" is %" JSON_INTEGER_FORMAT
                      ", but only %zu bytes are left after the JSON",
                      bytes, reading->binary_bytes);
    oip_json_put_raw(reading, reading->binary, (size_t)bytes, NULL);
    reading->binary += bytes;
    reading->binary_bytes -= (size_t)bytes;
    return STATUS_OK;
}

static enum status
read_data(struct json_reading *reading, const json_t *data, struct oip_json_tensor *tensor)
{
    /* the skim has replaced an array by its number */
    json_int_t number = json_integer_value(json_array_get(data, 0));
    if (json_array_size(data) != 1 || number < 0 || number >= reading->skim.run_count)
        return REFUSE(reading, "\"data\" must be an array");
    return oip_json_put_run(reading, &reading->skim.runs[number], tensor);
}

static enum status
read_contents(struct json_reading *reading, const json_t *input, struct oip_json_tensor *tensor)
{
    const json_t *parameters = NULL;
    enum status status = own_parameters(reading, OIP_INPUT, input, &parameters);
    if (status != STATUS_OK)
        return status;
    size_t index = reading->request->message->n_inputs - 1;
    bool is_shared = oip_shared_of(reading->request, OIP_INPUT, index) != NULL;
    const json_t *size = json_object_get(parameters, "binary_data_size");
    const json_t *data = json_object_get(input, "data");
    if (size != NULL && data != NULL)
        return REFUSE(reading, "has both \"data\" and \"binary_data_size\"");
    if (is_shared && (size != NULL || data != NULL))
        return REFUSE(reading, "has \"%s\", and is in shared memory: one or the other",
                      data != NULL ? "data" : "binary_data_size");
    if (is_shared)
        return STATUS_OK;
    if (size != NULL)
        return read_binary(reading, size);
    if (data == NULL)
        return REFUSE(reading, "has neither \"data\" nor \"binary_data_size\"");
    tensor->base64 = is_base64(parameters);
    return read_data(reading, data, tensor);
}

static enum status
read_named_input(struct json_reading *reading, const json_t *input,
                 Inference__ModelInferRequest__InferInputTensor *to)
{
    const json_t *datatype = json_object_get(input, "datatype");
    if (!json_is_string(datatype))
        return REFUSE(reading, "\"datatype\" must be a string");
    enum status status = keep_string(reading, "inputs: datatype", datatype, &to->datatype);
    if (status == STATUS_OK)
        status = read_shape(reading, json_object_get(input, "shape"), to);
    if (status != STATUS_OK)
        return status;
    struct oip_json_tensor tensor = {
        .datatype = oip_datatype_from_name(to->datatype),
        .rank = (uint32_t)to->n_shape,
        .shape = to->shape,
    };
    return read_contents(reading, input, &tensor);
}

static enum status
read_input(struct json_reading *reading, size_t index, const json_t *input)
{
    const json_t *name = json_object_get(input, "name");
    if (!json_is_string(name))
        return REFUSE(reading, "input %zu: must be an object with a \"name\"", index);
    Inference__ModelInferRequest__InferInputTensor *to = oip_add_input(reading->request);
    enum status status = keep_string(reading, "inputs: name", name, &to->name);
    if (status == STATUS_OK && read_named_input(reading, input, to) != STATUS_OK)
        return error_prefix(reading->error, "tensor \"%.128s\"", json_string_value(name));
    return status;
}

static enum status
read_inputs(struct json_reading *reading, const json_t *inputs)
{
    if (!json_is_array(inputs))
        return REFUSE(reading, "\"inputs\" is missing, or not an array");
    if (json_array_size(inputs) > SHOAL_TENSORS_MAX)
        return REFUSE(reading, "more than %d inputs", SHOAL_TENSORS_MAX);
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        enum status status = read_input(reading, i, json_array_get(inputs, i));
        if (status != STATUS_OK)
            return status;
    }
    if (reading->binary_bytes > 0)
        return REFUSE(reading, "%zu bytes after the JSON belong to no input",
                      reading->binary_bytes);
    return STATUS_OK;
}

/* ---- outputs ---- */

static enum status
read_output(struct json_reading *reading, size_t index, const json_t *output)
{
    const json_t *parameters = NULL;
    const json_t *name = json_object_get(output, "name");
    if (!json_is_string(name))
        return REFUSE(reading, "requested output %zu: must be an object with a \"name\"", index);
    Inference__ModelInferRequest__InferRequestedOutputTensor *to = oip_add_output(reading->request);
    enum status status = own_parameters(reading, OIP_OUTPUT, output, &parameters);
    const json_t *binary = json_object_get(parameters, "binary_data");
    if (status == STATUS_OK && binary != NULL && !json_is_boolean(binary))
        status = REFUSE(reading, "\"binary_data\" must be true or false");
    if (status != STATUS_OK)
        return error_prefix(reading->error, "requested output \"%.128s\"", json_string_value(name));
    reading->json->outputs[index] = (struct oip_json_form){
        .binary = binary != NULL ? json_is_true(binary) : reading->json->form.binary,
        .base64 = is_base64(parameters),
        .is_shared = oip_shared_of(reading->request, OIP_OUTPUT, index) != NULL,
    };
    struct oip_json_form *form = &reading->json->outputs[index];
    if (form->base64 || form->is_shared)
        form->name = strdup(json_string_value(name));
    return keep_string(reading, "outputs: name", name, &to->name);
}

static enum status
read_outputs(struct json_reading *reading, const json_t *outputs)
{
    if (outputs != NULL && !json_is_array(outputs))
        return REFUSE(reading, "\"outputs\" must be an array");
    if (json_array_size(outputs) > SHOAL_TENSORS_MAX)
        return REFUSE(reading, "more than %d outputs", SHOAL_TENSORS_MAX);
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        reading->json->output_count = (uint32_t)i + 1;
        enum status status = read_output(reading, i, json_array_get(outputs, i));
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* ---- the request ---- */

/* The name from the URL, which is shorter than the limits, is checked where it becomes an id:
 * metadata may name another. */
static enum status
read_url(struct json_reading *reading)
{
    const struct oip_json_ask *ask = reading->ask;
    struct oip_request *request = reading->request;
    size_t bytes = strlen(ask->model);
    request->message->model_name = bump_take(&request->scratch, bytes + 1);
    memcpy(request->message->model_name, ask->model, bytes + 1);
    request->name = (struct wire_span){request->message->model_name, bytes};
    request->head =
        (struct oip_head){.is_read = true, .name = {.spans = &request->name, .left = bytes}};
    char **version = &request->message->model_version;
    enum status status =
        oip_json_keep(reading, "model_version", ask->version, strlen(ask->version), version);
    if (status == STATUS_OK) {
        request->version = (struct wire_span){*version, strlen(*version)};
        request->head.version =
            (struct wire_cursor){.spans = &request->version, .left = request->version.bytes};
    }
    return status;
}

static enum status
read_request(struct json_reading *reading, const json_t *request)
{
    const json_t *id = json_object_get(request, "id");
    if (!json_is_object(request))
        return REFUSE(reading, "the body must be a JSON object");
    if (reading->json->rows)
        return json_is_array(json_object_get(request, "instances"))
                   ? oip_json_read_rows(reading)
                   : REFUSE(reading, "\"instances\" is missing, or not an array");
    if (id != NULL && !json_is_string(id))
        return REFUSE(reading, "\"id\" must be a string");
    enum status status = id != NULL ? oip_json_keep_id(reading, id) : STATUS_OK;
    if (status == STATUS_OK)
        status = oip_json_read_parameters(reading, json_object_get(request, "parameters"));
    if (status == STATUS_OK)
        status = read_inputs(reading, json_object_get(request, "inputs"));
    if (status == STATUS_OK)
        status = read_outputs(reading, json_object_get(request, "outputs"));
    return status;
}

static enum status
read_all(struct json_reading *reading)
{
    const struct oip_json_ask *ask = reading->ask;
    const struct json_run text = {ask->body, ask->json_bytes};
    if (reading->json->members) {
        enum status status = read_url(reading);
        return status == STATUS_OK ? oip_json_read_members(reading) : status;
    }
    enum skim_form form = reading->json->rows ? SKIM_INSTANCES : SKIM_INPUTS;
    enum status status = oip_json_skim(&reading->skim, form, &text, reading->error);
    if (status != STATUS_OK)
        return status;
    if (reading->skim.small.used == 0)
        return REFUSE(reading, "the body is empty: it must be a JSON object");
    json_error_t why;
    json_t *request = json_loadb(reading->skim.small.data, reading->skim.small.used,
                                 JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (request == NULL)
        return REFUSE(reading, "the body is not valid JSON: %s", why.text);
    status = read_url(reading);
    if (status == STATUS_OK)
        status = read_request(reading, request);
    json_decref(request);
    return status;
}

enum status
oip_json_read(const struct oip_json_ask *ask, struct oip_json **read, struct error *error)
{
    CHECK(ask->json_bytes <= ask->body_bytes);
    struct oip_json *json = calloc(1, sizeof(*json));
    struct oip_request *request = oip_request_create();
    CHECK(json != NULL && request != NULL);
    json->timeout_ns = TIME_NEVER_NS;
    json->request = request;
    json->rows = ask->rows_of != NULL;
    json->members = ask->members_of != NULL;
    oip_request_begin(request);
    struct json_reading reading = {
        .ask = ask,
        .json = json,
        .request = request,
        .binary = ask->body + ask->json_bytes,
        .binary_bytes = ask->body_bytes - ask->json_bytes,
        .error = error,
    };
    enum status status = read_all(&reading);
    oip_json_skim_fini(&reading.skim);
    if (status == STATUS_OK)
        *read = json;
    else
        oip_json_destroy(json);
    return status;
}

void
oip_json_forget_elements(struct oip_json *json)
{
    for (size_t i = 0; i < json->elements.span_count; i++)
        free(json->owned[i]);
    json->elements = (struct wire_message){0};
}

void
oip_json_destroy(struct oip_json *json)
{
    if (json == NULL)
        return;
    oip_json_forget_elements(json);
    oip_request_destroy(json->request);
    for (uint32_t i = 0; i < json->output_count; i++)
        free(json->outputs[i].name);
    free(json);
}

struct oip_request *
oip_json_take_request(struct oip_json *json)
{
    struct oip_request *request = json->request;
    CHECK(request != NULL);
    json->request = NULL;
    return request;
}

const struct wire_message *
oip_json_elements(const struct oip_json *json)
{
    return &json->elements;
}

int64_t
oip_json_timeout_ns(const struct oip_json *json)
{
    return json->timeout_ns;
}

bool
oip_json_wants_end(const struct oip_json *json)
{
    return json->wants_end;
}

bool
oip_json_is_text(const struct oip_json *json)
{
    bool is_text = !json->form.binary;
    for (uint32_t i = 0; i < json->output_count; i++)
        is_text = is_text && !json->outputs[i].binary;
    return is_text;
}
