/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/triton.h"

#define SERVICE "/inference.GRPCInferenceService/"

const char *const triton_paths[TRITON_METHOD_COUNT] = {
    [TRITON_STATISTICS] = SERVICE "ModelStatistics",
    [TRITON_CONFIG] = SERVICE "ModelConfig",
    [TRITON_INDEX] = SERVICE "RepositoryIndex",
    [TRITON_LOAD] = SERVICE "RepositoryModelLoad",
    [TRITON_UNLOAD] = SERVICE "RepositoryModelUnload",
    [TRITON_SHARED_STATUS] = SERVICE "SystemSharedMemoryStatus",
    [TRITON_SHARED_REGISTER] = SERVICE "SystemSharedMemoryRegister",
    [TRITON_SHARED_UNREGISTER] = SERVICE "SystemSharedMemoryUnregister",
    [TRITON_CUDA_STATUS] = SERVICE "CudaSharedMemoryStatus",
    [TRITON_CUDA_REGISTER] = SERVICE "CudaSharedMemoryRegister",
    [TRITON_CUDA_UNREGISTER] = SERVICE "CudaSharedMemoryUnregister",
};

enum triton_method
triton_method_of(const char *path)
{
    enum triton_method method = 0;
    while (strcmp(triton_paths[method], path) != 0) {
        method++;
        CHECK(method < TRITON_METHOD_COUNT);
    }
    return method;
}

/* ---- where a field goes ---- */

enum triton_member {
    MEMBER_NONE,
    MEMBER_NAME,
    MEMBER_VERSION,
    MEMBER_READY,
    MEMBER_PARAMETER, /* an entry of a map */
    MEMBER_KEY,
    MEMBER_OFFSET,
    MEMBER_BYTES,
};

enum { FIELDS = 5, PARAMETER_STRING = 3 };

/* The members by field number. */
static const enum triton_member fields[TRITON_METHOD_COUNT][FIELDS] = {
    [TRITON_STATISTICS] = {MEMBER_NONE, MEMBER_NAME, MEMBER_VERSION},
    [TRITON_CONFIG] = {MEMBER_NONE, MEMBER_NAME, MEMBER_VERSION},
    [TRITON_INDEX] = {MEMBER_NONE, MEMBER_NONE, MEMBER_READY},
    [TRITON_LOAD] = {MEMBER_NONE, MEMBER_NONE, MEMBER_NAME, MEMBER_PARAMETER},
    [TRITON_UNLOAD] = {MEMBER_NONE, MEMBER_NONE, MEMBER_NAME, MEMBER_PARAMETER},
    [TRITON_SHARED_STATUS] = {MEMBER_NONE, MEMBER_NAME},
    [TRITON_SHARED_REGISTER] = {MEMBER_NONE, MEMBER_NAME, MEMBER_KEY, MEMBER_OFFSET, MEMBER_BYTES},
    [TRITON_SHARED_UNREGISTER] = {MEMBER_NONE, MEMBER_NAME},
    [TRITON_CUDA_STATUS] = {MEMBER_NONE, MEMBER_NAME},
    [TRITON_CUDA_REGISTER] = {MEMBER_NONE, MEMBER_NAME},
    [TRITON_CUDA_UNREGISTER] = {MEMBER_NONE, MEMBER_NAME},
};

/* `to` has room for a name. */
static enum status
keep_text(char *to, struct wire_cursor text, struct error *error)
{
    if (text.left > SHOAL_NAME_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a name, version or key has at most %d bytes, not %llu",
                         SHOAL_NAME_BYTES_MAX, (unsigned long long)text.left);
    size_t bytes = (size_t)text.left;
    wire_read(&text, to, bytes);
    to[bytes] = '\0';
    if (!wire_text_ok((const unsigned char *)to, bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a name, version or key must be UTF-8 without a zero byte");
    return STATUS_OK;
}

static enum status
keep_config(struct triton_request *request, struct wire_cursor text, struct error *error)
{
    size_t bytes = (size_t)text.left;
    if (bytes > TRITON_CONFIG_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"config\" has %zu bytes: at most %d", bytes,
                         TRITON_CONFIG_BYTES_MAX);
    wire_read(&text, request->config, bytes);
    request->config[bytes] = '\0';
    request->has_config = true;
    return wire_text_ok((const unsigned char *)request->config, bytes)
               ? STATUS_OK
               : error_set(error, STATUS_INVALID_ARGUMENT,
                           "parameter \"config\" must be UTF-8 without a zero byte");
}

/* Reads a ModelRepositoryParameter with text. */
static enum status
read_config(struct triton_request *request, struct wire_cursor parameter, struct error *error)
{
    struct wire_field field;
    enum wire_result result;
    enum status status = STATUS_OK;
    bool is_text = false;
    while (status == STATUS_OK && (result = wire_next(&parameter, &field)) == WIRE_FIELD) {
        is_text = field.number == PARAMETER_STRING && field.type == WIRE_BYTES;
        if (is_text)
            status = keep_config(request, field.data, error);
    }
    if (status == STATUS_OK && (result == WIRE_MALFORMED || !is_text))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"config\" must be a string_param: the configuration as JSON");
    return status;
}

/* Models have no dependents here, so the parameter changes nothing. */
static bool
is_harmless(const struct triton_request *request)
{
    return request->method == TRITON_UNLOAD && strcmp(request->parameter, "unload_dependents") == 0;
}

static enum status
keep_parameter(struct triton_request *request, struct wire_cursor entry, struct error *error)
{
    struct wire_field field;
    enum wire_result result;
    struct wire_cursor value = {0};
    if (request->parameter[0] != '\0')
        return STATUS_OK; /* one is enough to refuse */
    while ((result = wire_next(&entry, &field)) == WIRE_FIELD) {
        if (field.number == 2 && field.type == WIRE_BYTES)
            value = field.data;
        if (field.number != 1 || field.type != WIRE_BYTES)
            continue;
        if (field.data.left > SHOAL_NAME_BYTES_MAX) /* cut, it is refused by its beginning */
            field.data.left = SHOAL_NAME_BYTES_MAX;
        enum status status = keep_text(request->parameter, field.data, error);
        if (status != STATUS_OK)
            return status;
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the request is malformed, or cut short");
    bool is_config = request->method == TRITON_LOAD && strcmp(request->parameter, "config") == 0;
    if (is_config || is_harmless(request))
        request->parameter[0] = '\0';
    return is_config ? read_config(request, value, error) : STATUS_OK;
}

static enum status
keep_number(struct triton_request *request, enum triton_member member, uint64_t value)
{
    switch (member) {
    case MEMBER_READY: request->ready = value != 0; break;
    case MEMBER_OFFSET: request->offset = value; break;
    case MEMBER_BYTES: request->bytes = value; break;
    default: UNREACHABLE();
    }
    return STATUS_OK;
}

static enum status
keep_field(struct triton_request *request, enum triton_member member,
           const struct wire_field *field, struct error *error)
{
    bool is_number = member == MEMBER_READY || member == MEMBER_OFFSET || member == MEMBER_BYTES;
    if (field->type != (is_number ? WIRE_VARINT : WIRE_BYTES))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "field %u of the request has the wrong type", field->number);
    if (is_number)
        return keep_number(request, member, field->value);
    if (member == MEMBER_PARAMETER)
        return keep_parameter(request, field->data, error);
    return keep_text(member == MEMBER_NAME  ? request->name
                     : member == MEMBER_KEY ? request->key
                                            : request->version,
                     field->data, error);
}

enum status
triton_read(struct triton_request *request, const struct wire_message *message, struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    if (message->bytes > TRITON_REQUEST_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the request has more than %d bytes",
                         TRITON_REQUEST_BYTES_MAX);
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        enum triton_member member =
            field.number < FIELDS ? fields[request->method][field.number] : MEMBER_NONE;
        if (member == MEMBER_NONE)
            continue;
        enum status status = keep_field(request, member, &field, error);
        if (status != STATUS_OK)
            return status;
    }
    return result == WIRE_END ? STATUS_OK
                              : error_set(error, STATUS_INVALID_ARGUMENT,
                                          "the request is malformed, or cut short");
}
