/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_gather.h"
#include "coordinator/protocol/oip_json_data.h"
#include "coordinator/protocol/oip_json_request.h"
#include "coordinator/protocol/oip_request.h"
#include "shm/payload.h"
#include "wire/wire.h"

struct json_reading {
    const struct oip_json_ask *ask;
    struct oip_json *json;
    struct oip_request *request;
    struct oip_json_skim skim;
    const char *binary; /* the rest of the body's binary part */
    size_t binary_bytes;
    struct error *error;
};

/* Tags and lengths of a small field, about. */
enum { FIELD_BYTES = 4 };

#define REFUSE(reading, ...) error_set((reading)->error, STATUS_INVALID_ARGUMENT, __VA_ARGS__)

/* ---- the request's memory ---- */

/* As the decoder of messages reports it, which has the same limits. */
static enum status
invalid(struct json_reading *reading)
{
    return error_prefix(reading->error, "request is not a valid ModelInferRequest");
}

/* Bytes of small fields are about to be added. */
static enum status
count_small(struct json_reading *reading, size_t bytes)
{
    struct oip_gather *gather = &reading->request->gather;
    if (bytes > GATHER_BYTES_MAX - gather->used) {
        (void)REFUSE(reading, "names, shapes, id and parameters take more than %d bytes",
                     GATHER_BYTES_MAX);
        return invalid(reading);
    }
    gather->used += bytes;
    return STATUS_OK;
}

/* `count` elements of `bytes` each: at most some times the small fields' text. */
static void *
take(struct json_reading *reading, size_t count, size_t bytes)
{
    return bump_take(&reading->request->scratch, count * bytes);
}

static enum status
keep_bytes(struct json_reading *reading, const char *field, const char *text, size_t bytes,
           char **kept)
{
    if (!wire_text_ok((const unsigned char *)text, bytes)) {
        (void)REFUSE(reading, "%s is not UTF-8, or has a zero byte in it", field);
        return invalid(reading);
    }
    enum status status = count_small(reading, bytes + FIELD_BYTES);
    if (status == STATUS_OK) {
        *kept = take(reading, bytes + 1, 1);
        memcpy(*kept, text, bytes);
        (*kept)[bytes] = '\0';
    }
    return status;
}

static enum status
keep(struct json_reading *reading, const char *field, const json_t *string, char **kept)
{
    return keep_bytes(reading, field, json_string_value(string), json_string_length(string), kept);
}

/* ---- parameters ---- */

static void
set_number(struct json_reading *reading, const char *key, const json_t *value)
{
    struct oip_head *head = &reading->request->head;
    if (strcmp(key, "priority") != 0)
        return;
    struct wire_span span = {json_string_value(value), json_string_length(value)};
    head->numbers[OIP_PRIORITY] =
        json_is_integer(value)
            ? (uint64_t)json_integer_value(value)
            : oip_number_of_text((struct wire_cursor){.spans = &span, .left = span.bytes});
}

static enum status
add_parameter(struct json_reading *reading, const char *key, const json_t *value)
{
    Inference__ModelInferRequest *message = reading->request->message;
    if (message->n_parameters == PARAMETERS_MAX) {
        (void)REFUSE(reading, "more than %d parameters", PARAMETERS_MAX);
        return invalid(reading);
    }
    Inference__ModelInferRequest__ParametersEntry *entry = take(reading, 1, sizeof(*entry));
    Inference__InferParameter *parameter = take(reading, 1, sizeof(*parameter));
    inference__model_infer_request__parameters_entry__init(entry);
    inference__infer_parameter__init(parameter);
    entry->value = parameter;
    message->parameters[message->n_parameters++] = entry;
    set_number(reading, key, value);
    enum status status = keep_bytes(reading, "parameters: key", key, strlen(key), &entry->key);
    if (json_is_boolean(value)) {
        parameter->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
        parameter->bool_param = json_is_true(value);
    } else if (json_is_integer(value)) {
        parameter->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
        parameter->int64_param = json_integer_value(value);
    } else if (json_is_real(value)) {
        parameter->parameter_choice_case =
            INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM;
        parameter->double_param = json_real_value(value);
    } else if (status == STATUS_OK) {
        parameter->parameter_choice_case =
            INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
        status = keep(reading, "parameters: value: string_param", value, &parameter->string_param);
    }
    return status;
}

/* Microseconds, as other servers of this protocol have it; 0: none. */
static enum status
read_timeout(struct json_reading *reading, const json_t *value)
{
    json_int_t timeout_us = json_integer_value(value);
    if (!json_is_integer(value) || timeout_us < 0)
        return REFUSE(reading, "parameter \"timeout\": must be a number of microseconds");
    if (timeout_us > 0 && timeout_us < INT64_MAX / NS_PER_US)
        reading->json->timeout_ns = timeout_us * NS_PER_US;
    return STATUS_OK;
}

/* Reads the request's parameters; those about the form of the answer are not passed to the modelet.
 */
static enum status
read_parameter(struct json_reading *reading, const char *key, const json_t *value)
{
    if (!json_is_boolean(value) && !json_is_number(value) && !json_is_string(value))
        return REFUSE(reading, "parameter \"%s\": must be a string, a number or a boolean", key);
    if (strcmp(key, "binary_data_output") == 0) {
        if (!json_is_boolean(value))
            return REFUSE(reading, "parameter \"%s\": must be true or false", key);
        reading->json->form.binary = json_is_true(value);
        return STATUS_OK;
    }
    if (strcmp(key, "timeout") == 0 && read_timeout(reading, value) != STATUS_OK)
        return reading->error->status;
    return add_parameter(reading, key, value);
}

static enum status
read_parameters(struct json_reading *reading, json_t *parameters)
{
    const char *key;
    json_t *value;
    if (parameters != NULL && !json_is_object(parameters))
        return REFUSE(reading, "\"parameters\" must be an object");
    reading->request->message->parameters =
        take(reading, PARAMETERS_MAX, sizeof(reading->request->message->parameters[0]));
    json_object_foreach(parameters, key, value)
    {
        enum status status = read_parameter(reading, key, value);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* The parameters of a tensor, or NULL: it has none. */
static enum status
own_parameters(struct json_reading *reading, const json_t *tensor, const json_t **parameters)
{
    json_t *own = json_object_get(tensor, "parameters");
    const char *key;
    json_t *value;
    if (own != NULL && !json_is_object(own))
        return REFUSE(reading, "\"parameters\" must be an object");
    json_object_foreach(own, key, value)
    {
        enum status status = oip_check_tensor_parameter(key, reading->error);
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
    enum status status = count_small(reading, rank * sizeof(to->shape[0]));
    if (status != STATUS_OK)
        return status;
    to->n_shape = rank;
    to->shape = take(reading, rank, sizeof(to->shape[0]));
    for (size_t i = 0; i < rank; i++) {
        const json_t *dimension = json_array_get(shape, i);
        if (!json_is_integer(dimension))
            return REFUSE(reading, "dimension %zu is not an integer", i);
        to->shape[i] = json_integer_value(dimension);
    }
    return STATUS_OK;
}

/* Whether oip_validate takes datatype and shape; if not, it reports that for any contents.
 */
static bool
is_sound(const struct oip_json_tensor *tensor)
{
    uint64_t bytes;
    if (tensor->datatype == 0 || tensor->rank > SHOAL_RANK_MAX)
        return false;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < 0)
            return false;
    return tensor_bytes_for(tensor->datatype, tensor->rank, tensor->shape, &bytes);
}

static void
put_raw(struct json_reading *reading, const void *data, size_t bytes, void *owned)
{
    struct oip_json *json = reading->json;
    struct oip_gather *gather = &reading->request->gather;
    uint32_t index = gather->raw_count++;
    gather->raw[index] = (struct oip_range){.span = index, .bytes = bytes};
    json->spans[index] = (struct wire_span){data, bytes};
    json->owned[index] = owned;
    json->elements = (struct wire_message){json->spans, index + 1, json->elements.bytes + bytes};
}

static enum status
too_large(struct json_reading *reading, uint64_t bytes)
{
    return error_set(reading->error, STATUS_OUT_OF_RANGE,
                     "the inputs take more than %" PRIu64 " bytes (message_mib): %" PRIu64
                     " with this one",
                     reading->ask->message_bytes_max, bytes);
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
    put_raw(reading, reading->binary, (size_t)bytes, NULL);
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
    const struct json_run *run = &reading->skim.runs[number];
    if (!is_sound(tensor)) {
        put_raw(reading, "", 0, NULL);
        return STATUS_OK;
    }
    CHECK(tensor_bytes_for(SHOAL_BYTES, tensor->rank, tensor->shape, &tensor->elements));
    uint64_t room;
    uint64_t bytes = 0;
    enum status status = oip_json_data_room(run, tensor, &room, reading->error);
    if (status != STATUS_OK)
        return status;
    /* not known yet for strings */
    uint64_t least = tensor->datatype == SHOAL_BYTES ? 0 : room;
    uint64_t before = reading->json->elements.bytes;
    if (before + least > reading->ask->message_bytes_max)
        return too_large(reading, before + least);
    unsigned char *to = malloc(room > 0 ? room : 1);
    if (to == NULL)
        return error_set(reading->error, STATUS_RESOURCE_EXHAUSTED,
                         "no memory to decode the request");
    status = oip_json_data_read(run, tensor, to, &bytes, reading->error);
    if (status == STATUS_OK && before + bytes > reading->ask->message_bytes_max)
        status = too_large(reading, before + bytes);
    if (status == STATUS_OK)
        put_raw(reading, to, bytes, to);
    else
        free(to);
    return status;
}

static enum status
read_contents(struct json_reading *reading, const json_t *input, struct oip_json_tensor *tensor)
{
    const json_t *parameters = NULL;
    enum status status = own_parameters(reading, input, &parameters);
    if (status != STATUS_OK)
        return status;
    const json_t *size = json_object_get(parameters, "binary_data_size");
    const json_t *data = json_object_get(input, "data");
    if (size != NULL && data != NULL)
        return REFUSE(reading, "has both \"data\" and \"binary_data_size\"");
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
    enum status status = keep(reading, "inputs: datatype", datatype, &to->datatype);
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
    struct oip_request *request = reading->request;
    Inference__ModelInferRequest__InferInputTensor *to = take(reading, 1, sizeof(*to));
    const json_t *name = json_object_get(input, "name");
    if (!json_is_string(name))
        return REFUSE(reading, "input %zu: must be an object with a \"name\"", index);
    inference__model_infer_request__infer_input_tensor__init(to);
    request->message->inputs[index] = to;
    request->gather.contents[index].bytes = 0;
    enum status status = keep(reading, "inputs: name", name, &to->name);
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
    struct oip_request *request = reading->request;
    size_t count = request->message->n_inputs = json_array_size(inputs);
    request->gather.input_count = (uint32_t)count;
    request->message->inputs = take(reading, count, sizeof(request->message->inputs[0]));
    request->inputs = take(reading, count, sizeof(request->inputs[0]));
    for (size_t i = 0; i < count; i++) {
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
    const json_t *parameters;
    const json_t *name = json_object_get(output, "name");
    if (!json_is_string(name))
        return REFUSE(reading, "requested output %zu: must be an object with a \"name\"", index);
    enum status status = own_parameters(reading, output, &parameters);
    const json_t *binary = json_object_get(parameters, "binary_data");
    if (status == STATUS_OK && binary != NULL && !json_is_boolean(binary))
        status = REFUSE(reading, "\"binary_data\" must be true or false");
    if (status != STATUS_OK)
        return error_prefix(reading->error, "requested output \"%.128s\"", json_string_value(name));
    reading->json->outputs[index] = (struct oip_json_form){
        .binary = binary != NULL ? json_is_true(binary) : reading->json->form.binary,
        .base64 = is_base64(parameters),
    };
    Inference__ModelInferRequest__InferRequestedOutputTensor *to = take(reading, 1, sizeof(*to));
    inference__model_infer_request__infer_requested_output_tensor__init(to);
    reading->request->message->outputs[index] = to;
    return keep(reading, "outputs: name", name, &to->name);
}

static enum status
read_outputs(struct json_reading *reading, const json_t *outputs)
{
    if (outputs != NULL && !json_is_array(outputs))
        return REFUSE(reading, "\"outputs\" must be an array");
    if (json_array_size(outputs) > SHOAL_TENSORS_MAX)
        return REFUSE(reading, "more than %d outputs", SHOAL_TENSORS_MAX);
    Inference__ModelInferRequest *message = reading->request->message;
    size_t count = message->n_outputs = json_array_size(outputs);
    message->outputs = take(reading, count, sizeof(message->outputs[0]));
    for (size_t i = 0; i < count; i++) {
        enum status status = read_output(reading, i, json_array_get(outputs, i));
        if (status != STATUS_OK)
            return status;
    }
    reading->json->output_count = (uint32_t)count;
    return STATUS_OK;
}

/* ---- the request ---- */

/* The name from the URL is checked where it becomes an id: metadata may name another. */
static enum status
read_url(struct json_reading *reading)
{
    const struct oip_json_ask *ask = reading->ask;
    struct oip_request *request = reading->request;
    size_t bytes = strlen(ask->model);
    enum status status = count_small(reading, bytes);
    if (status != STATUS_OK)
        return status;
    char *name = request->message->model_name = take(reading, bytes + 1, 1);
    memcpy(name, ask->model, bytes + 1);
    request->name = (struct wire_span){name, bytes};
    request->head =
        (struct oip_head){.is_read = true, .name = {.spans = &request->name, .left = bytes}};
    return keep_bytes(reading, "model_version", ask->version, strlen(ask->version),
                      &request->message->model_version);
}

static enum status
read_request(struct json_reading *reading, const json_t *request)
{
    const json_t *id = json_object_get(request, "id");
    if (!json_is_object(request))
        return REFUSE(reading, "the body must be a JSON object");
    if (id != NULL && !json_is_string(id))
        return REFUSE(reading, "\"id\" must be a string");
    enum status status = read_url(reading);
    if (status == STATUS_OK && id != NULL)
        status = keep(reading, "id", id, &reading->request->message->id);
    if (status == STATUS_OK)
        status = read_parameters(reading, json_object_get(request, "parameters"));
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
    enum status status = oip_json_skim(&reading->skim, ask->body, ask->json_bytes, reading->error);
    if (status != STATUS_OK)
        return status;
    if (reading->skim.small.used == 0)
        return REFUSE(reading, "the body is empty: it must be a JSON object");
    json_error_t why;
    json_t *request = json_loadb(reading->skim.small.data, reading->skim.small.used,
                                 JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (request == NULL)
        return REFUSE(reading, "the body is not valid JSON: %s", why.text);
    status = read_request(reading, request);
    json_decref(request);
    return status;
}

static void
request_begin(struct oip_request *request)
{
    oip_request_begin(request);
    request->gather.used = 0;
    request->gather.input_count = 0;
    request->gather.raw_count = 0;
    request->message = bump_take(&request->scratch, sizeof(*request->message));
    inference__model_infer_request__init(request->message);
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
    request_begin(request);
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
