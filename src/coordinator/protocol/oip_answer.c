/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_request.h"

/* The state of one call. Allocated per call, as this is off the inference path. */
struct oip_answer_call {
    const struct oip_node *node;
    const struct wire_message *message;
    void *packed; /* the response */
    size_t packed_bytes;
    struct oip_request request;
};

static enum status
pack(struct oip_answer_call *answer, const ProtobufCMessage *message, struct error *error)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    unsigned char *packed = malloc(bytes > 0 ? bytes : 1);
    if (packed == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to encode the response");
    answer->packed_bytes = protobuf_c_message_pack(message, packed);
    answer->packed = packed;
    return STATUS_OK;
}

/* The request's fields are all unknown ones; it must be well-formed nonetheless. */
static enum status
check_empty(const struct oip_answer_call *answer, const char *type, struct error *error)
{
    struct wire_cursor cursor = wire_begin(answer->message);
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD)
        continue;
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "request is not a valid %s: malformed, or cut short", type);
    return STATUS_OK;
}

static enum status
server_live(struct oip_answer_call *answer, struct error *error)
{
    enum status status = check_empty(answer, "ServerLiveRequest", error);
    if (status != STATUS_OK)
        return status;
    Inference__ServerLiveResponse response = INFERENCE__SERVER_LIVE_RESPONSE__INIT;
    response.live = true;
    return pack(answer, &response.base, error);
}

static enum status
server_ready(struct oip_answer_call *answer, struct error *error)
{
    enum status status = check_empty(answer, "ServerReadyRequest", error);
    if (status != STATUS_OK)
        return status;
    Inference__ServerReadyResponse response = INFERENCE__SERVER_READY_RESPONSE__INIT;
    response.ready = answer->node->ready(answer->node->context);
    return pack(answer, &response.base, error);
}

static enum status
server_metadata(struct oip_answer_call *answer, struct error *error)
{
    enum status status = check_empty(answer, "ServerMetadataRequest", error);
    if (status != STATUS_OK)
        return status;
    Inference__ServerMetadataResponse response = INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    response.name = oip_loose(answer->node->server_name);
    response.version = oip_loose(SHOAL_VERSION);
    return pack(answer, &response.base, error);
}

/* Both requests about one model have the same fields, a name and a version. */
static enum status
find_model(struct oip_answer_call *answer, const char *type, struct oip_model_info *info,
           bool *ready, struct error *error)
{
    Inference__ModelReadyRequest named;
    enum status status = oip_read_named(&answer->request, answer->message, type, &named, error);
    if (status != STATUS_OK)
        return status;
    const struct oip_named asked = {named.name, named.version};
    status = answer->node->model(answer->node->context, &asked, info, ready, error);
    if (status != STATUS_OK)
        return status;
    return oip_check_version(named.version, info, error);
}

static enum status
model_ready(struct oip_answer_call *answer, struct error *error)
{
    struct oip_model_info info = {0};
    bool ready = false;
    enum status status = find_model(answer, "ModelReadyRequest", &info, &ready, error);
    if (status != STATUS_OK)
        return status;
    Inference__ModelReadyResponse response = INFERENCE__MODEL_READY_RESPONSE__INIT;
    response.ready = ready;
    return pack(answer, &response.base, error);
}

static const int64_t any_shape[] = {-1};

static Inference__ModelMetadataResponse__TensorMetadata **
tensor_metadata(struct oip_answer_call *answer, const struct handshake_tensor *specs,
                uint32_t count)
{
    Inference__ModelMetadataResponse__TensorMetadata **list =
        bump_try(&answer->request.scratch,
                 count * sizeof(Inference__ModelMetadataResponse__TensorMetadata *));
    Inference__ModelMetadataResponse__TensorMetadata *metadata =
        bump_try(&answer->request.scratch, count * sizeof(*metadata));
    if (list == NULL || metadata == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct handshake_tensor *spec = &specs[i];
        inference__model_metadata_response__tensor_metadata__init(&metadata[i]);
        metadata[i].name = oip_loose(spec->name);
        /* The protocol has no "any": the type has no name, and there is one open dimension. */
        bool any_rank = spec->rank == SHOAL_RANK_ANY;
        metadata[i].datatype = oip_loose(
            spec->datatype == SHOAL_DATATYPE_ANY ? "" : oip_datatype_name(spec->datatype));
        metadata[i].n_shape = any_rank ? 1 : spec->rank;
        metadata[i].shape = oip_loose(any_rank ? any_shape : spec->shape);
        list[i] = &metadata[i];
    }
    return list;
}

/* Splits a text of numbers and spaces. NULL: no memory. */
static char **
split_versions(struct oip_answer_call *answer, const char *text, size_t *count)
{
    size_t bytes = strlen(text) + 1;
    char *copy = bump_try(&answer->request.scratch, bytes);
    char **list = bump_try(&answer->request.scratch, bytes * sizeof(char *));
    if (copy == NULL || list == NULL)
        return NULL;
    memcpy(copy, text, bytes);
    char *rest = copy;
    for (*count = 0; rest != NULL; ++*count)
        list[*count] = strsep(&rest, " ");
    return list;
}

static enum status
model_metadata(struct oip_answer_call *answer, struct error *error)
{
    struct oip_model_info info = {0};
    bool ready;
    enum status status = find_model(answer, "ModelMetadataRequest", &info, &ready, error);
    if (status != STATUS_OK)
        return status;
    Inference__ModelMetadataResponse response = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    response.name = oip_loose(info.name);
    response.versions = split_versions(answer, info.versions != NULL ? info.versions : info.version,
                                       &response.n_versions);
    response.platform = oip_loose(info.platform == NULL ? "" : info.platform);
    response.n_inputs = info.input_count;
    response.n_outputs = info.output_count;
    response.inputs = tensor_metadata(answer, info.inputs, info.input_count);
    response.outputs = tensor_metadata(answer, info.outputs, info.output_count);
    if (response.versions == NULL || response.inputs == NULL || response.outputs == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to encode the response");
    return pack(answer, &response.base, error);
}

enum status
oip_answer(enum oip_method method, const struct oip_node *node, const struct wire_message *message,
           void **response, size_t *response_bytes, struct error *error)
{
    static enum status (*const methods[])(struct oip_answer_call *, struct error *) = {
        [OIP_SERVER_LIVE] = server_live,         [OIP_SERVER_READY] = server_ready,
        [OIP_SERVER_METADATA] = server_metadata, [OIP_MODEL_READY] = model_ready,
        [OIP_MODEL_METADATA] = model_metadata,
    };
    CHECK((size_t)method < ARRAY_COUNT(methods));
    struct oip_answer_call answer = {.node = node, .message = message};
    enum status status = methods[method](&answer, error);
    if (status == STATUS_OK) {
        *response = answer.packed;
        *response_bytes = answer.packed_bytes;
    }
    oip_request_fini(&answer.request);
    return status;
}
