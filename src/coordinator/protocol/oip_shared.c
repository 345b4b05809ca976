/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in shared memory: what their parameters say, from decoding to the answer.
 */
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip_request.h"

/* ---- parameters ---- */

static const struct {
    const char *key;
    enum oip_own own;
} own_parameters[] = {
    {"shared_memory_region", OIP_OWN_REGION},
    {"shared_memory_offset", OIP_OWN_OFFSET},
    {"shared_memory_byte_size", OIP_OWN_BYTES},
};

static const char *
key_of(enum oip_own own)
{
    size_t i = 0;
    while (own_parameters[i].own != own)
        i++;
    return own_parameters[i].key;
}

enum status
oip_own_parameter(const char *key, enum oip_own *own, struct error *error)
{
    *own = OIP_OWN_NONE;
    for (size_t i = 0; i < ARRAY_COUNT(own_parameters); i++)
        if (strcmp(key, own_parameters[i].key) == 0)
            *own = own_parameters[i].own;
    if (strcmp(key, "classification") != 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "parameter \"%s\": this server does not have the extension: outputs are as "
                     "the model gives them",
                     key);
}

/* False: the value is no number of bytes. */
static bool
number_of(const Inference__InferParameter *value, uint64_t *number)
{
    bool is_signed =
        value->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    bool is_unsigned =
        value->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM;
    *number = is_signed ? (uint64_t)value->int64_param : is_unsigned ? value->uint64_param : 0;
    return (is_signed || is_unsigned) && *number <= INT64_MAX;
}

static struct oip_shared *
place_of(const struct oip_request *request, enum oip_side side, size_t index)
{
    return &request->shared[(side == OIP_OUTPUT ? SHOAL_TENSORS_MAX : 0) + index];
}

enum status
oip_put_own(struct oip_request *request, enum oip_side side, enum oip_own own,
            const Inference__InferParameter *value, struct error *error)
{
    const Inference__ModelInferRequest *message = request->message;
    size_t count = side == OIP_INPUT ? message->n_inputs : message->n_outputs;
    uint64_t number;
    CHECK(own != OIP_OWN_NONE && count > 0);
    if (request->shared == NULL)
        request->shared = bump_take_zeroed(&request->scratch, (size_t)2 * SHOAL_TENSORS_MAX *
                                                                  sizeof(request->shared[0]));
    struct oip_shared *shared = place_of(request, side, count - 1);
    if (own == OIP_OWN_REGION) {
        if (value->parameter_choice_case !=
            INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "parameter \"shared_memory_region\": must be a string");
        shared->region = value->string_param;
        return STATUS_OK;
    }
    if (!number_of(value, &number))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"%s\": must be a number of bytes", key_of(own));
    if (own == OIP_OWN_BYTES) {
        shared->bytes = number;
        shared->has_bytes = true;
    } else {
        shared->offset = number;
        shared->has_offset = true;
    }
    return STATUS_OK;
}

const struct oip_shared *
oip_shared_of(const struct oip_request *request, enum oip_side side, size_t index)
{
    const struct oip_shared *shared =
        request->shared == NULL ? NULL : place_of(request, side, index);
    return shared == NULL || shared->region == NULL ? NULL : shared;
}

uint32_t
oip_sent_count(const struct oip_request *request)
{
    uint32_t count = 0;
    for (size_t i = 0; i < request->message->n_inputs; i++)
        count += oip_shared_of(request, OIP_INPUT, i) == NULL;
    return count;
}

static size_t
count_of(const struct oip_request *request, enum oip_side side)
{
    return side == OIP_INPUT ? request->message->n_inputs : request->message->n_outputs;
}

static const char *
name_of(const struct oip_request *request, enum oip_side side, size_t index)
{
    return side == OIP_INPUT ? request->message->inputs[index]->name
                             : request->message->outputs[index]->name;
}

static enum status
name_tensor(const struct oip_request *request, enum oip_side side, size_t index,
            struct error *error)
{
    return error_prefix(error, side == OIP_INPUT ? "tensor \"%s\"" : "requested output \"%s\"",
                        name_of(request, side, index));
}

static enum status
check_one(const struct oip_shared *shared, struct error *error)
{
    if (shared->region == NULL && (shared->has_bytes || shared->has_offset))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"%s\" is given without \"shared_memory_region\"",
                         key_of(shared->has_bytes ? OIP_OWN_BYTES : OIP_OWN_OFFSET));
    if (shared->region != NULL && !shared->has_bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"shared_memory_region\" is given without "
                         "\"shared_memory_byte_size\"");
    if (shared->region != NULL && strlen(shared->region) > SHOAL_NAME_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "a region's name has at most %d bytes",
                         SHOAL_NAME_BYTES_MAX);
    return STATUS_OK;
}

enum status
oip_check_shared(const struct oip_request *request, struct error *error)
{
    for (int side = OIP_INPUT; request->shared != NULL && side <= OIP_OUTPUT; side++)
        for (size_t i = 0; i < count_of(request, side); i++) {
            const struct oip_shared *shared = place_of(request, side, i);
            bool is_sent_too =
                side == OIP_INPUT && shared->region != NULL && request->contents[i].bytes > 0;
            enum status status = check_one(shared, error);
            if (status == STATUS_OK && is_sent_too)
                status = error_set(error, STATUS_INVALID_ARGUMENT,
                                   "has contents, and is in shared memory: one or the other");
            if (status != STATUS_OK)
                return name_tensor(request, side, i, error);
        }
    return STATUS_OK;
}

/* ---- regions ---- */

bool
oip_is_shared(const struct oip_request *request)
{
    return request->shared != NULL;
}

static enum status
hold_one(struct oip_shared *shared, struct shared_memory *memory, struct error *error)
{
    enum status status = shared_memory_hold(memory, shared->region, &shared->held, error);
    return status == STATUS_OK
               ? shared_region_check(shared->held, shared->offset, shared->bytes, error)
               : status;
}

static enum status
hold_all(struct oip_request *request, struct shared_memory *memory, struct error *error)
{
    uint64_t bytes = 0; /* each is at most INT64_MAX, and the sum no more than the limit */
    uint64_t bytes_max = shared_memory_request_bytes_max(memory);
    for (int side = OIP_INPUT; side <= OIP_OUTPUT; side++)
        for (size_t i = 0; i < count_of(request, side); i++) {
            struct oip_shared *shared = place_of(request, side, i);
            if (shared->region == NULL)
                continue;
            if (hold_one(shared, memory, error) != STATUS_OK)
                return name_tensor(request, side, i, error);
            bytes += side == OIP_INPUT ? shared->bytes : 0;
            if (bytes > bytes_max)
                return error_set(error, STATUS_INVALID_ARGUMENT,
                                 "the inputs in shared memory take more than the %llu bytes that a "
                                 "message may have (message_mib)",
                                 (unsigned long long)bytes_max);
        }
    return STATUS_OK;
}

enum status
oip_hold_shared(struct oip_request *request, struct shared_memory *memory, struct error *error)
{
    if (request->shared == NULL)
        return STATUS_OK;
    enum status status = shared_memory_permit(memory, error);
    if (status == STATUS_OK)
        status = hold_all(request, memory, error);
    if (status != STATUS_OK)
        oip_forget_shared(request);
    return status;
}

void
oip_forget_shared(struct oip_request *request)
{
    if (request->shared == NULL)
        return;
    for (size_t i = 0; i < (size_t)2 * SHOAL_TENSORS_MAX; i++) {
        if (request->shared[i].held != NULL)
            shared_region_release(request->shared[i].held);
        request->shared[i].held = NULL;
    }
}

/* Strings are checked where they have been copied to: their caller can still write to the region.
 */
enum status
oip_read_shared(const struct oip_shared *shared, const struct shoal_tensor *tensor, void *to,
                struct error *error)
{
    struct shoal_tensor copy = *tensor;
    CHECK(shared->held != NULL);
    enum status status = shared_region_read(shared->held, shared->offset, to, tensor->bytes, error);
    copy.data = to;
    if (status == STATUS_OK && tensor->datatype == SHOAL_BYTES)
        return tensor_check_elements(&copy, error);
    return status == STATUS_OK ? status : error_prefix(error, "tensor \"%s\"", tensor->name);
}

/* ---- the answer ---- */

enum { FIELD_PARAMETERS = 4 };              /* of an InferOutputTensor */
enum { FIELD_KEY = 1, FIELD_VALUE = 2 };    /* of an entry of them */
enum { FIELD_INT64 = 2, FIELD_STRING = 3 }; /* of an InferParameter */

/* A string, or without one a number. */
static void
put_parameter(struct bytes *out, enum oip_own own, const char *string, uint64_t number)
{
    struct bytes value = {0};
    struct bytes entry = {0};
    const char *key = key_of(own);
    if (string != NULL)
        wire_append_run(&value, FIELD_STRING, string, strlen(string));
    else
        wire_append_number(&value, FIELD_INT64, number);
    wire_append_run(&entry, FIELD_KEY, key, strlen(key));
    wire_append_run(&entry, FIELD_VALUE, value.data, value.used);
    wire_append_run(out, FIELD_PARAMETERS, entry.data, entry.used);
    out->failed = out->failed || value.failed || entry.failed;
    bytes_fini(&value);
    bytes_fini(&entry);
}

void
oip_put_shared(const struct oip_shared *shared, uint64_t bytes, struct bytes *out)
{
    put_parameter(out, OIP_OWN_REGION, shared->region, 0);
    put_parameter(out, OIP_OWN_OFFSET, NULL, shared->offset);
    put_parameter(out, OIP_OWN_BYTES, NULL, bytes);
}
