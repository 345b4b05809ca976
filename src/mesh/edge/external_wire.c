/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/external_wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "wire/wire.h"

/* ---- requests ---- */

static void
put_text(struct bytes *out, uint32_t number, const char *text)
{
    if (text != NULL && text[0] != '\0')
        wire_append_run(out, number, text, strlen(text));
}

void
external_write_id(const char *id, struct bytes *out)
{
    put_text(out, 1, id);
}

void
external_write_model(const struct runner_model *model, struct bytes *out)
{
    put_text(out, 1, model->id);
    put_text(out, 2, model->type);
    put_text(out, 3, model->path);
    put_text(out, 4, model->key);
}

/* ---- sizes ---- */

bool
external_read_size(const struct wire_message *message, uint64_t *size_bytes,
                   uint32_t *max_concurrency)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    *size_bytes = 0;
    *max_concurrency = 0;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.type == WIRE_VARINT && field.number == 1)
            *size_bytes = field.value;
        else if (field.type == WIRE_VARINT && field.number == 2)
            *max_concurrency = (uint32_t)field.value;
    }
    return result == WIRE_END;
}

bool
external_read_piece(const struct wire_message *message, struct external_piece *piece)
{
    enum { ERROR = 1, RESPONSE = 2, PARAMETERS = 4 };
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    *piece = (struct external_piece){.bytes = 0};
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == ERROR)
            piece->error = field.data;
        if (field.number != RESPONSE)
            continue;
        if (piece->has_response)
            return false; /* in two parts */
        piece->has_response = true;
        piece->bytes = field.value;
        piece->offset = message->bytes - cursor.left - field.value;
        piece->is_final = wire_map_is_true(field.data, PARAMETERS, "triton_final_response");
    }
    return result == WIRE_END;
}

/* ---- status ---- */

enum {
    FIELD_STATUS = 1,
    FIELD_CAPACITY = 2,
    FIELD_LOADERS = 3,
    FIELD_TIMEOUT = 4,
    FIELD_DEFAULT = 5,
    FIELD_VERSION = 6,
    FIELD_METHODS = 8,
    FIELD_LIMITS = 9,
    FIELD_ANY = 10,
};

void
external_status_fini(struct external_status *status)
{
    for (uint32_t i = 0; i < status->method_count; i++)
        free(status->methods[i].name);
    free(status->methods);
    *status = (struct external_status){.state = EXTERNAL_STARTING};
}

static enum status
read_step(struct external_method *method, uint64_t number, struct error *error)
{
    if (number == 0 || number > UINT32_MAX >> 3)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "methodInfos: an idInjectionPath has %llu, which is not a field number",
                         (unsigned long long)number);
    if (method->depth == FIELD_PATH_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "methodInfos: an idInjectionPath of more than %d fields", FIELD_PATH_MAX);
    method->path[method->depth++] = (uint32_t)number;
    return STATUS_OK;
}

/* Reads the numbers of a path, packed or single. */
static enum status
read_path(struct external_method *method, struct wire_cursor info, struct error *error)
{
    struct wire_field field;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && wire_next(&info, &field) == WIRE_FIELD) {
        if (field.number != 1)
            continue;
        if (field.type == WIRE_VARINT)
            status = read_step(method, field.value, error);
        uint64_t number;
        while (status == STATUS_OK && field.type == WIRE_BYTES && field.data.left > 0)
            status = wire_varint(&field.data, &number)
                         ? read_step(method, number, error)
                         : error_set(error, STATUS_INVALID_ARGUMENT, "methodInfos: malformed");
    }
    return status;
}

static enum status
read_name(struct external_method *method, struct wire_field *field, struct error *error)
{
    if (field->value > EXTERNAL_METHOD_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "methodInfos: a name of %llu bytes",
                         (unsigned long long)field->value);
    free(method->name);
    method->name = malloc(field->value + 1);
    CHECK(method->name != NULL);
    wire_read(&field->data, method->name, field->value);
    method->name[field->value] = '\0';
    if (wire_text_ok((const unsigned char *)method->name, (size_t)field->value))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "methodInfos: a name that is not UTF-8");
}

/* Reads an entry of the map. */
static enum status
read_method(struct external_status *status, struct wire_cursor entry, struct error *error)
{
    if (status->method_count == EXTERNAL_METHODS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "methodInfos: more than %d methods",
                         EXTERNAL_METHODS_MAX);
    if (status->methods == NULL) {
        status->methods = calloc(EXTERNAL_METHODS_MAX, sizeof(*status->methods));
        CHECK(status->methods != NULL);
    }
    struct external_method *method = &status->methods[status->method_count++];
    struct wire_field field;
    enum status outcome = STATUS_OK;
    while (outcome == STATUS_OK && wire_next(&entry, &field) == WIRE_FIELD) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == 1)
            outcome = read_name(method, &field, error);
        else if (field.number == 2)
            outcome = read_path(method, field.data, error);
    }
    if (outcome == STATUS_OK && method->name == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "methodInfos: a method without a name");
    return outcome;
}

static enum status
read_number(struct external_status *status, const struct wire_field *field, struct error *error)
{
    uint32_t narrow = field->value > UINT32_MAX ? UINT32_MAX : (uint32_t)field->value;
    switch (field->number) {
    case FIELD_STATUS:
        if (field->value > EXTERNAL_FAILING)
            return error_set(error, STATUS_INVALID_ARGUMENT, "status %llu is unknown",
                             (unsigned long long)field->value);
        status->state = (enum external_state)field->value;
        break;
    case FIELD_CAPACITY: status->capacity_bytes = field->value; break;
    case FIELD_LOADERS: status->loaders = narrow; break;
    case FIELD_TIMEOUT: status->load_timeout_ms = narrow; break;
    case FIELD_DEFAULT: status->default_bytes = field->value; break;
    case FIELD_LIMITS: status->limits_concurrency = field->value != 0; break;
    case FIELD_ANY: status->allows_any = field->value != 0; break;
    default: break;
    }
    return STATUS_OK;
}

static void
read_version(struct external_status *status, struct wire_field *field)
{
    size_t bytes = field->value < EXTERNAL_VERSION_BYTES_MAX ? (size_t)field->value
                                                             : EXTERNAL_VERSION_BYTES_MAX;
    wire_read(&field->data, status->version, bytes);
    status->version[bytes] = '\0';
}

enum status
external_status_read(const struct wire_message *message, struct external_status *status,
                     struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    *status = (struct external_status){.state = EXTERNAL_STARTING};
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        enum status outcome = STATUS_OK;
        if (field.type == WIRE_VARINT)
            outcome = read_number(status, &field, error);
        else if (field.type == WIRE_BYTES && field.number == FIELD_METHODS)
            outcome = read_method(status, field.data, error);
        else if (field.type == WIRE_BYTES && field.number == FIELD_VERSION)
            read_version(status, &field);
        if (outcome != STATUS_OK)
            return outcome;
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "malformed, or cut short");
    return STATUS_OK;
}

bool
external_read_server_ready(const struct wire_message *message)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    bool is_ready = false;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD)
        if (field.type == WIRE_VARINT && field.number == 1)
            is_ready = field.value != 0;
    return is_ready && result != WIRE_MALFORMED;
}

enum status
external_status_check(const struct external_status *status, struct error *error)
{
    unsigned long long capacity = status->capacity_bytes;
    unsigned long long usual = status->default_bytes;
    if (status->loaders == 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "maxLoadingConcurrency is 0: must be at least 1");
    if (status->load_timeout_ms < 100)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "modelLoadingTimeoutMs is %u: must be at least 100",
                         status->load_timeout_ms);
    if (usual == 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "defaultModelSizeInBytes is 0: must be the typical size of a model");
    if (capacity / 2 < usual)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "capacityInBytes is %llu: must be at least twice "
                         "defaultModelSizeInBytes, which is %llu",
                         capacity, usual);
    return STATUS_OK;
}

bool
external_status_permits(const struct external_status *status, const char *method,
                        const struct external_method **found)
{
    static const char own[] = "/mmesh.ModelRuntime/";
    *found = NULL;
    if (strncmp(method, own, sizeof(own) - 1) == 0)
        return false;
    for (uint32_t i = 0; i < status->method_count; i++)
        if (strcmp(status->methods[i].name, method + 1) == 0) {
            *found = &status->methods[i];
            return true;
        }
    return status->method_count == 0 || status->allows_any;
}
