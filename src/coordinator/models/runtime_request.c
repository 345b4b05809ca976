/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/runtime_request.h"

#include <jansson.h>
#include <string.h>

#include "wire/wire.h"

/* The fields of all requests of mmesh.ModelRuntime. Other fields are skipped. */
enum { FIELD_ID = 1, FIELD_PATH = 3, FIELD_KEY = 4 };

static bool
read_text(struct wire_field *field, char *text, size_t room, uint64_t *bytes)
{
    *bytes = field->value;
    text[0] = '\0';
    if (field->value >= room)
        return true;
    wire_read(&field->data, text, field->value);
    text[field->value] = '\0';
    return wire_text_ok((const unsigned char *)text, (size_t)field->value);
}

static bool
read_field(struct wire_field *field, struct runtime_request *request)
{
    if (field->type != WIRE_BYTES)
        return true;
    switch (field->number) {
    case FIELD_ID: return read_text(field, request->id, sizeof(request->id), &request->id_bytes);
    case FIELD_PATH:
        return read_text(field, request->path, sizeof(request->path), &request->path_bytes);
    case FIELD_KEY:
        return read_text(field, request->key, sizeof(request->key), &request->key_bytes);
    default: return true;
    }
}

enum status
runtime_request_read(const struct wire_message *message, struct runtime_request *request,
                     struct error *error)
{
    request->id[0] = request->path[0] = request->key[0] = request->type[0] = '\0';
    request->id_bytes = request->path_bytes = request->key_bytes = 0;
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD)
        if (!read_field(&field, request))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "field %u of the request is not UTF-8 text without a zero byte",
                             field.number);
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "request is not a valid message of mmesh.ModelRuntime");
    return STATUS_OK;
}

static enum status
check_length(const char *name, uint64_t bytes, size_t room, struct error *error)
{
    if (bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is missing", name);
    if (bytes >= room)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has %llu bytes: must be at most %zu",
                         name, (unsigned long long)bytes, room - 1);
    return STATUS_OK;
}

/* KServe's adapters accept a plain text for the type as well. One that is longer than an entry of
 * `types` can be matches none. */
static enum status
take_type(const json_t *key, char taken[CONFIG_NAME_BYTES_MAX + 1], struct error *error)
{
    const json_t *type = json_object_get(key, "model_type");
    if (json_is_object(type))
        type = json_object_get(type, "name");
    if (type == NULL || json_is_null(type))
        return STATUS_OK;
    if (!json_is_string(type))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "modelKey: \"model_type\" must be an object whose \"name\" is a string");
    size_t bytes = json_string_length(type);
    if (bytes > CONFIG_NAME_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "modelKey: a \"model_type\" of %zu bytes: must be at most %d", bytes,
                         CONFIG_NAME_BYTES_MAX);
    memcpy(taken, json_string_value(type), bytes + 1);
    return STATUS_OK;
}

static enum status
check_key(struct runtime_request *request, struct error *error)
{
    if (request->key_bytes == 0)
        return STATUS_OK;
    if (request->key_bytes >= sizeof(request->key))
        return check_length("modelKey", request->key_bytes, sizeof(request->key), error);
    json_error_t why;
    json_t *key = json_loadb(request->key, (size_t)request->key_bytes, 0, &why);
    enum status status;
    if (key == NULL)
        status = error_set(error, STATUS_INVALID_ARGUMENT, "modelKey is not JSON: line %d, %d: %s",
                           why.line, why.column, why.text);
    else if (!json_is_object(key))
        status = error_set(error, STATUS_INVALID_ARGUMENT, "modelKey is not a JSON object");
    else
        status = take_type(key, request->type, error);
    json_decref(key);
    return status;
}

enum status
runtime_request_check(struct runtime_request *request, struct error *error)
{
    enum status status = check_length("modelId", request->id_bytes, sizeof(request->id), error);
    if (status == STATUS_OK)
        status = check_length("modelPath", request->path_bytes, sizeof(request->path), error);
    return status == STATUS_OK ? check_key(request, error) : status;
}

void
runtime_key_type(const char *text, char type[CONFIG_NAME_BYTES_MAX + 1])
{
    struct error error = ERROR_NONE;
    size_t bytes = strlen(text);
    type[0] = '\0';
    if (bytes == 0 || bytes >= HANDSHAKE_KEY_BYTES)
        return;
    json_t *key = json_loadb(text, bytes, 0, NULL);
    if (json_is_object(key))
        (void)take_type(key, type,
                        &error); /* the pipeline that is to load it reports the mistake */
    json_decref(key);
}
