/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of Triton's extensions. Responses are printed by their descriptors: members have the
 * names of the fields, and are there whether or not they have their default value.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "coordinator/protocol/triton.h"
#include "inference/open_inference.pb-c.h"

/* ---- requests ---- */

static enum status
wrong_member(const char *key, const char *must, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%s\" must be %s", key, must);
}

static enum status
read_config(struct triton_request *request, const json_t *value, struct error *error)
{
    if (!json_is_string(value))
        return wrong_member("config", "a string: the configuration as JSON", error);
    size_t bytes = json_string_length(value);
    if (bytes > TRITON_CONFIG_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"config\" has %zu bytes: at most %d", bytes,
                         TRITON_CONFIG_BYTES_MAX);
    memcpy(request->config, json_string_value(value), bytes + 1);
    request->has_config = true;
    return STATUS_OK;
}

static enum status
read_parameters(struct triton_request *request, json_t *parameters, struct error *error)
{
    const char *key;
    json_t *value;
    if (parameters != NULL && !json_is_object(parameters))
        return wrong_member("parameters", "an object", error);
    json_object_foreach(parameters, key, value)
    {
        bool harmless = request->method == TRITON_UNLOAD && strcmp(key, "unload_dependents") == 0;
        size_t bytes =
            strlen(key) < sizeof(request->parameter) ? strlen(key) : sizeof(request->parameter) - 1;
        if (harmless)
            continue;
        if (request->method == TRITON_LOAD && strcmp(key, "config") == 0) {
            if (read_config(request, value, error) != STATUS_OK)
                return error->status;
            continue;
        }
        memcpy(request->parameter, key, bytes);
        request->parameter[bytes] = '\0';
    }
    return STATUS_OK;
}

/* A number of bytes; none is 0. */
static enum status
read_bytes(const json_t *object, const char *key, uint64_t *bytes, struct error *error)
{
    const json_t *value = json_object_get(object, key);
    if (value != NULL && (!json_is_integer(value) || json_integer_value(value) < 0))
        return wrong_member(key, "a number of bytes", error);
    *bytes = (uint64_t)json_integer_value(value);
    return STATUS_OK;
}

static enum status
read_region(struct triton_request *request, const json_t *object, struct error *error)
{
    const json_t *key = json_object_get(object, "key");
    if (!json_is_string(key) || json_string_length(key) >= sizeof(request->key))
        return wrong_member("key", "the name of shared memory", error);
    memcpy(request->key, json_string_value(key), json_string_length(key) + 1);
    enum status status = read_bytes(object, "offset", &request->offset, error);
    return status == STATUS_OK ? read_bytes(object, "byte_size", &request->bytes, error) : status;
}

static enum status
read_object(struct triton_request *request, const json_t *object, struct error *error)
{
    const json_t *ready = json_object_get(object, "ready");
    if (!json_is_object(object))
        return error_set(error, STATUS_INVALID_ARGUMENT, "the body must be a JSON object");
    if (request->method == TRITON_SHARED_REGISTER)
        return read_region(request, object, error);
    if (ready != NULL && !json_is_boolean(ready))
        return wrong_member("ready", "true or false", error);
    request->ready = json_is_true(ready);
    return read_parameters(request, json_object_get(object, "parameters"), error);
}

enum status
triton_read_json(struct triton_request *request, const void *body, size_t bytes,
                 struct error *error)
{
    json_error_t why;
    if (bytes == 0)
        return STATUS_OK;
    if (bytes > TRITON_REQUEST_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the request has more than %d bytes",
                         TRITON_REQUEST_BYTES_MAX);
    json_t *object = json_loadb(body, bytes, JSON_REJECT_DUPLICATES, &why);
    if (object == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the body is not valid JSON: %s",
                         why.text);
    enum status status = read_object(request, object, error);
    json_decref(object);
    return status;
}

/* ---- responses, by their descriptors ---- */

static void put_message(struct json *json, const ProtobufCMessage *message);

/* One value of a field. */
static void
put_value(struct json *json, const ProtobufCFieldDescriptor *field, const void *value)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: json_put_string(json, *(char *const *)value); break;
    case PROTOBUF_C_TYPE_MESSAGE: put_message(json, *(ProtobufCMessage *const *)value); break;
    case PROTOBUF_C_TYPE_UINT64: json_put_uint(json, *(const uint64_t *)value); break;
    case PROTOBUF_C_TYPE_INT64: json_put_int(json, *(const int64_t *)value); break;
    case PROTOBUF_C_TYPE_INT32: json_put_int(json, *(const int32_t *)value); break;
    case PROTOBUF_C_TYPE_BOOL: json_put_bool(json, *(const protobuf_c_boolean *)value); break;
    case PROTOBUF_C_TYPE_ENUM:
        json_put_string(
            json,
            protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)value)->name);
        break;
    default: UNREACHABLE(); /* our messages have no others */
    }
}

static size_t
value_bytes(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32: return sizeof(int32_t);
    case PROTOBUF_C_TYPE_INT64: return sizeof(int64_t);
    default: return sizeof(void *);
    }
}

static void
put_field(struct json *json, const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const char *at = (const char *)message + field->offset;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t count =
            *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
        const char *values = *(const char *const *)(const void *)at;
        json_field_open(json, field->name, '[');
        for (size_t i = 0; i < count; i++)
            put_value(json, field, values + i * value_bytes(field));
        json_close(json, ']');
        return;
    }
    bool is_absent = field->type == PROTOBUF_C_TYPE_MESSAGE &&
                     *(ProtobufCMessage *const *)(const void *)at == NULL;
    if (is_absent)
        return;
    json_name(json, field->name);
    put_value(json, field, at);
}

static void
put_message(struct json *json, const ProtobufCMessage *message)
{
    json_open(json, '{');
    for (unsigned i = 0; i < message->descriptor->n_fields; i++)
        put_field(json, message, &message->descriptor->fields[i]);
    json_close(json, '}');
}

static ProtobufCMessage *
unpack(const ProtobufCMessageDescriptor *type, const struct wire_message *response,
       struct error *error)
{
    struct wire_cursor cursor = wire_begin(response);
    unsigned char *packed = malloc(response->bytes + 1);
    ProtobufCMessage *message = NULL;
    if (packed != NULL) {
        wire_read(&cursor, packed, response->bytes);
        message = protobuf_c_message_unpack(type, NULL, response->bytes, packed);
        free(packed);
    }
    if (message == NULL)
        error_set(error, STATUS_INTERNAL, "the response is no %s", type->short_name);
    return message;
}

static void
put_index(struct json *json, const Inference__RepositoryIndexResponse *index)
{
    json_open(json, '[');
    for (size_t i = 0; i < index->n_models; i++)
        put_message(json, &index->models[i]->base);
    json_close(json, ']');
}

/* Regions without the names by which they are found in the message. */
static void
put_regions(struct json *json, const Inference__SystemSharedMemoryStatusResponse *response)
{
    json_open(json, '[');
    for (size_t i = 0; i < response->n_regions; i++)
        if (response->regions[i]->value != NULL)
            put_message(json, &response->regions[i]->value->base);
    json_close(json, ']');
}

static void
put_config(struct json *json, const Inference__ModelConfigResponse *response)
{
    if (response->config != NULL)
        put_message(json, &response->config->base);
    else
        put_message(json, &response->base);
}

enum status
triton_write_json(enum triton_method method, const struct wire_message *response,
                  struct bytes *json, struct error *error)
{
    static const ProtobufCMessageDescriptor *const types[TRITON_METHOD_COUNT] = {
        [TRITON_STATISTICS] = &inference__model_statistics_response__descriptor,
        [TRITON_CONFIG] = &inference__model_config_response__descriptor,
        [TRITON_INDEX] = &inference__repository_index_response__descriptor,
        [TRITON_SHARED_STATUS] = &inference__system_shared_memory_status_response__descriptor,
        [TRITON_CUDA_STATUS] = &inference__system_shared_memory_status_response__descriptor,
    };
    struct json text = json_begin(json, JSON_STYLE_ANY);
    if (types[method] == NULL) {
        bytes_put_text(json, "{}");
        return STATUS_OK;
    }
    ProtobufCMessage *message = unpack(types[method], response, error);
    if (message == NULL)
        return error->status;
    const void *typed = message;
    switch (method) {
    case TRITON_INDEX: put_index(&text, typed); break;
    case TRITON_CONFIG: put_config(&text, typed); break;
    case TRITON_SHARED_STATUS:
    case TRITON_CUDA_STATUS: put_regions(&text, typed); break; /* the latter has none */
    default: put_message(&text, message);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return STATUS_OK;
}

enum status
triton_write_names(const struct wire_message *response, uint32_t limit, struct bytes *json,
                   struct error *error)
{
    ProtobufCMessage *message =
        unpack(&inference__repository_index_response__descriptor, response, error);
    if (message == NULL)
        return error->status;
    const Inference__RepositoryIndexResponse *index = (const void *)message;
    size_t count = index->n_models < limit ? index->n_models : limit;
    struct json text = json_begin(json, JSON_STYLE_ANY);
    json_open(&text, '{');
    json_field_open(&text, "models", '[');
    for (size_t i = 0; i < count; i++)
        json_put_string(&text, index->models[i]->name);
    json_close(&text, ']');
    if (count > 0 && count < index->n_models)
        json_field_string(&text, "next", index->models[count - 1]->name);
    json_close(&text, '}');
    protobuf_c_message_free_unpacked(message, NULL);
    return STATUS_OK;
}
