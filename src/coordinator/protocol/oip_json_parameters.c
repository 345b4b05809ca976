/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and the id of a request. */
#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "coordinator/protocol/oip_json_request.h"
#include "coordinator/protocol/oip_request.h"

static enum status
keep_string(struct json_reading *reading, const char *field, const json_t *string, char **kept)
{
    return oip_json_keep(reading, field, json_string_value(string), json_string_length(string),
                         kept);
}

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

/* Reads the value of a string, a number or a boolean. */
enum status
oip_json_read_value(struct json_reading *reading, const json_t *value,
                    Inference__InferParameter *to)
{
    if (json_is_boolean(value)) {
        to->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
        to->bool_param = json_is_true(value);
    } else if (json_is_integer(value)) {
        to->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
        to->int64_param = json_integer_value(value);
    } else if (json_is_real(value)) {
        to->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM;
        to->double_param = json_real_value(value);
    } else {
        to->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
        return keep_string(reading, "parameters: value: string_param", value, &to->string_param);
    }
    return STATUS_OK;
}

static enum status
add_parameter(struct json_reading *reading, const char *key, const json_t *value)
{
    struct oip_request *request = reading->request;
    if (request->message->n_parameters == PARAMETERS_MAX) {
        (void)REFUSE(reading, "more than %d parameters", PARAMETERS_MAX);
        return oip_json_invalid(reading);
    }
    Inference__ModelInferRequest__ParametersEntry *entry = oip_add_parameter(request);
    set_number(reading, key, value);
    if (oip_json_read_value(reading, value, oip_parameter_value(request, entry)) != STATUS_OK)
        return reading->error->status;
    return oip_json_keep(reading, "parameters: key", key, strlen(key), &entry->key);
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
    if (strcmp(key, "triton_enable_empty_final_response") == 0)
        reading->json->wants_end = json_is_true(value);
    if (strcmp(key, "timeout") == 0 && read_timeout(reading, value) != STATUS_OK)
        return reading->error->status;
    return add_parameter(reading, key, value);
}

enum status
oip_json_read_parameter(struct json_reading *reading, const struct json_run *key,
                        const struct json_run *value)
{
    size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    bool is_scalar = value->bytes < SKIM_BYTES_MAX && strchr("[{", value->text[0]) == NULL;
    json_t *name =
        key->bytes < SKIM_BYTES_MAX ? json_loadb(key->text, key->bytes, flags, NULL) : NULL;
    json_t *scalar = is_scalar ? json_loadb(value->text, value->bytes, flags, NULL) : NULL;
    const char *text = json_string_value(name);
    enum status status;
    if (text == NULL || strlen(text) != json_string_length(name))
        status = REFUSE(reading, "the body is not valid JSON: a key");
    else if (scalar == NULL)
        status = REFUSE(reading,
                        "\"%.100s\" is no input of model \"%s\"; a parameter must be a string of "
                        "at most %d bytes, a number or a boolean",
                        text, reading->ask->members_of->name, SKIM_BYTES_MAX);
    else
        status = read_parameter(reading, text, scalar);
    json_decref(name);
    json_decref(scalar);
    return status;
}

enum status
oip_json_read_parameters(struct json_reading *reading, json_t *parameters)
{
    const char *key;
    json_t *value;
    if (parameters != NULL && !json_is_object(parameters))
        return REFUSE(reading, "\"parameters\" must be an object");
    json_object_foreach(parameters, key, value)
    {
        enum status status = read_parameter(reading, key, value);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status
oip_json_keep_id(struct json_reading *reading, const json_t *id)
{
    struct oip_request *request = reading->request;
    enum status status = keep_string(reading, "id", id, &request->message->id);
    if (status != STATUS_OK)
        return status;
    request->id = (struct wire_span){request->message->id, json_string_length(id)};
    request->head.id = (struct wire_cursor){.spans = &request->id, .left = request->id.bytes};
    return STATUS_OK;
}

enum status
oip_json_read_id(struct json_reading *reading, const struct json_run *value)
{
    json_t *id = value->bytes < SKIM_BYTES_MAX
                     ? json_loadb(value->text, value->bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL)
                     : NULL;
    enum status status = json_is_string(id) ? oip_json_keep_id(reading, id)
                                            : REFUSE(reading, "\"id\" must be a string");
    json_decref(id);
    return status;
}
