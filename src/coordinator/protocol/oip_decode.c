/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_request.h"

const char *
oip_request_id(const struct oip_request *request)
{
    CHECK(request->message != NULL);
    return request->message->id;
}

/* ---- the rules that need no model ---- */

static enum status
check_name(const char *name, const char *kind, uint32_t index, struct error *error)
{
    size_t bytes = strlen(name);
    if (bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s %u: the name is empty", kind, index);
    if (bytes > SHOAL_NAME_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s %u: a name has at most %d bytes, not %zu", kind, index,
                         SHOAL_NAME_BYTES_MAX, bytes);
    return STATUS_OK;
}

static enum status
check_input_names(const Inference__ModelInferRequest *message, struct error *error)
{
    for (uint32_t i = 0; i < message->n_inputs; i++) {
        const char *name = message->inputs[i]->name;
        enum status status = check_name(name, "input", i, error);
        if (status != STATUS_OK)
            return status;
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(message->inputs[k]->name, name) == 0)
                return error_set(error, STATUS_INVALID_ARGUMENT,
                                 "tensor \"%s\": given more than once", name);
    }
    return STATUS_OK;
}

static enum status
check_output_names(const Inference__ModelInferRequest *message, struct error *error)
{
    for (uint32_t i = 0; i < message->n_outputs; i++) {
        const char *name = message->outputs[i]->name;
        enum status status = check_name(name, "requested output", i, error);
        if (status != STATUS_OK)
            return status;
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(message->outputs[k]->name, name) == 0)
                return error_set(error, STATUS_INVALID_ARGUMENT,
                                 "requested output \"%s\": asked for more than once", name);
    }
    return STATUS_OK;
}

static enum status
check_parameters(const Inference__ModelInferRequest *message, struct error *error)
{
    for (uint32_t i = 0; i < message->n_parameters; i++) {
        const Inference__ModelInferRequest__ParametersEntry *entry = message->parameters[i];
        enum status status = check_name(entry->key, "parameter", i, error);
        if (status != STATUS_OK)
            return status;
        if (entry->value == NULL || entry->value->parameter_choice_case ==
                                        INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE__NOT_SET)
            return error_set(error, STATUS_INVALID_ARGUMENT, "parameter \"%s\": has no value",
                             entry->key);
    }
    return STATUS_OK;
}

/* Checks datatype and shape. `elements` is the shape's product, `bytes` the size if the datatype
 * has one. */
static enum status
check_type(const Inference__ModelInferRequest__InferInputTensor *input, struct shoal_tensor *tensor,
           uint64_t *elements, uint64_t *bytes, struct error *error)
{
    tensor->name = input->name;
    tensor->datatype = oip_datatype_from_name(input->datatype);
    if (tensor->datatype == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "unknown datatype \"%.32s\"",
                         input->datatype);
    if (input->n_shape > SHOAL_RANK_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%zu dimensions, at most %d are taken",
                         input->n_shape, SHOAL_RANK_MAX);
    tensor->rank = (uint32_t)input->n_shape;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        tensor->shape[i] = input->shape[i];
        if (input->shape[i] < 0)
            return error_set(error, STATUS_INVALID_ARGUMENT, "dimension %u is negative: %lld", i,
                             (long long)input->shape[i]);
    }
    if (!tensor_bytes_for(SHOAL_BYTES, tensor->rank, tensor->shape, elements) ||
        !tensor_bytes_for(tensor->datatype, tensor->rank, tensor->shape, bytes) ||
        *bytes > INT64_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the product of the dimensions overflows");
    return STATUS_OK;
}

/* Checks an input in shared memory, which is read later. */
static enum status
check_shared_bytes(const struct oip_shared *shared, uint32_t datatype, uint64_t *bytes,
                   struct error *error)
{
    if (datatype != SHOAL_BYTES && shared->bytes != *bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "shared_memory_byte_size is %llu, %s and the shape want %llu",
                         (unsigned long long)shared->bytes, oip_datatype_name(datatype),
                         (unsigned long long)*bytes);
    *bytes = shared->bytes;
    return STATUS_OK;
}

/* `raw`: the next of the raw contents, which inputs in shared memory have none of. */
static enum status
check_input(struct oip_request *request, const struct wire_message *message, uint32_t index,
            uint32_t *raw, struct error *error)
{
    struct oip_input *input = &request->inputs[index];
    const struct oip_shared *shared = oip_shared_of(request, OIP_INPUT, index);
    uint64_t elements = 0;
    uint64_t bytes = 0;
    *input = (struct oip_input){0};
    enum status status =
        check_type(request->message->inputs[index], &input->tensor, &elements, &bytes, error);
    if (status != STATUS_OK)
        return status;
    if (shared != NULL) {
        status = check_shared_bytes(shared, input->tensor.datatype, &bytes, error);
        input->tensor.bytes = (size_t)bytes;
        return status;
    }
    input->elements = request->raw_count > 0 ? request->raw[(*raw)++] : request->contents[index];
    struct wire_cursor cursor = oip_range_cursor(message, &input->elements);
    if (request->raw_count > 0) {
        status = oip_raw_check(cursor, input->tensor.datatype, elements, bytes, error);
        bytes = input->elements.bytes;
    } else {
        status = oip_typed_check(cursor, input->tensor.datatype, elements, &bytes, error);
    }
    input->tensor.bytes = (size_t)bytes;
    return status;
}

static enum status
check_raw_count(const struct oip_request *request, struct error *error)
{
    for (uint32_t i = 0; i < request->message->n_inputs; i++)
        if (request->contents[i].bytes > 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "tensor \"%s\": has contents, and there are raw_input_contents too: "
                             "one or the other",
                             request->message->inputs[i]->name);
    if (request->raw_count != oip_sent_count(request))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "raw_input_contents: %u for %u inputs, one for each is required%s",
                         request->raw_count, oip_sent_count(request),
                         request->shared != NULL ? ", but for those in shared memory" : "");
    return STATUS_OK;
}

/* ---- decoding ---- */

static enum status
check_names(const Inference__ModelInferRequest *message, struct error *error)
{
    enum status status = check_input_names(message, error);
    if (status == STATUS_OK)
        status = check_output_names(message, error);
    if (status == STATUS_OK)
        status = check_parameters(message, error);
    return status;
}

enum status
oip_validate(struct oip_request *request, const struct wire_message *message, struct error *error)
{
    size_t count = request->message->n_inputs;
    uint32_t raw = 0;
    if (request->inputs == NULL)
        request->inputs = bump_take(&request->scratch, count * sizeof(request->inputs[0]));
    enum status status = check_names(request->message, error);
    if (status == STATUS_OK)
        status = oip_check_shared(request, error);
    if (status == STATUS_OK && request->raw_count > 0)
        status = check_raw_count(request, error);
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++)
        if ((status = check_input(request, message, i, &raw, error)) != STATUS_OK)
            return error_prefix(error, "tensor \"%s\"", request->message->inputs[i]->name);
    return status;
}

enum status
oip_decode(struct oip_request *request, const struct wire_message *message, struct error *error)
{
    enum status status = oip_read_infer(request, message, error);
    if (status == STATUS_OK)
        status = oip_validate(request, message, error);
    if (status != STATUS_OK)
        request->message = NULL;
    return status;
}

/* ---- into the payload ---- */

uint64_t
oip_tensor_bytes(const struct oip_request *request)
{
    CHECK(request->message != NULL);
    uint64_t total = 0;
    for (uint32_t i = 0; i < request->message->n_inputs; i++) {
        uint64_t bytes = request->inputs[i].tensor.bytes;
        total += (bytes + PAYLOAD_ALIGNMENT - 1) / PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT;
    }
    return total;
}

static enum status
copy_tensor(const struct oip_request *request, const struct wire_message *message, uint32_t index,
            struct payload_builder *builder, struct error *error)
{
    const struct oip_input *input = &request->inputs[index];
    const struct oip_shared *shared = oip_shared_of(request, OIP_INPUT, index);
    void *data;
    enum status status = builder_add(builder, &input->tensor, &data, error);
    if (status == STATUS_OK && shared != NULL)
        return oip_read_shared(shared, &input->tensor, data, error);
    if (status != STATUS_OK || input->tensor.bytes == 0)
        return status;
    struct wire_cursor cursor = oip_range_cursor(message, &input->elements);
    if (request->raw_count > 0)
        wire_read(&cursor, data, input->tensor.bytes);
    else
        oip_typed_write(cursor, input->tensor.datatype, data, input->tensor.bytes);
    return STATUS_OK;
}

static struct shoal_parameter
parameter_value(const Inference__InferParameter *value)
{
    switch (value->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM:
        return (struct shoal_parameter){.type = SHOAL_PARAMETER_BOOL,
                                        .value.int64 = value->bool_param != 0};
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        return (struct shoal_parameter){.type = SHOAL_PARAMETER_INT64,
                                        .value.int64 = value->int64_param};
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        return (struct shoal_parameter){.type = SHOAL_PARAMETER_STRING,
                                        .string = value->string_param,
                                        .string_bytes = (uint32_t)strlen(value->string_param)};
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM:
        return (struct shoal_parameter){.type = SHOAL_PARAMETER_DOUBLE,
                                        .value.float64 = value->double_param};
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        return (struct shoal_parameter){.type = SHOAL_PARAMETER_UINT64,
                                        .value.uint64 = value->uint64_param};
    default: UNREACHABLE(); /* check_parameters */
    }
}

/* The last value counts for a key that a map has twice. */
static bool
parameter_overridden(const Inference__ModelInferRequest *message, size_t index)
{
    for (size_t i = index + 1; i < message->n_parameters; i++)
        if (strcmp(message->parameters[i]->key, message->parameters[index]->key) == 0)
            return true;
    return false;
}

enum status
oip_copy_tensors(struct oip_request *request, const struct wire_message *message,
                 struct payload_builder *builder, struct error *error)
{
    CHECK(request->message != NULL);
    const Inference__ModelInferRequest *decoded = request->message;
    for (uint32_t i = 0; i < decoded->n_inputs; i++) {
        enum status status = copy_tensor(request, message, i, builder, error);
        if (status != STATUS_OK)
            return status;
    }
    for (size_t i = 0; i < decoded->n_parameters; i++) {
        if (parameter_overridden(decoded, i))
            continue;
        struct shoal_parameter value = parameter_value(decoded->parameters[i]->value);
        /* Only the request's own size can make this fail: the table has a fixed size. */
        if (builder_parameter(builder, decoded->parameters[i]->key, &value, error) != STATUS_OK)
            return error->status = STATUS_INVALID_ARGUMENT;
    }
    return STATUS_OK;
}
