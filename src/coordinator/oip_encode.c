/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The response in pieces. All small fields are packed by protobuf-c into the request's scratch; a
 * raw output is then a tag and a length there, and its data, lent from where the last stage wrote
 * it. What lies together in the scratch goes out as one piece, so a response with one output is
 * two.
 *
 * The names of outputs lie in shared memory, where a worker may change them at any time: each is
 * copied once, and only the copy is looked at.
 */
#include <string.h>

#include "base/check.h"
#include "coordinator/oip_contents.h"
#include "coordinator/oip_request.h"

enum { FIELD_RAW_OUTPUT_CONTENTS = 6 };

/* What is being built; small enough for the stack. */
struct response {
    struct oip_request *request;
    const struct payload_view *view;
    uint32_t count;
    uint32_t chosen[SHOAL_TENSORS_MAX]; /* indexes into the view's tensors, in the order to send */
    char *names[SHOAL_TENSORS_MAX];     /* private copies, by index in the view */
    Inference__ModelInferResponse__InferOutputTensor outputs[SHOAL_TENSORS_MAX];
    Inference__ModelInferResponse__InferOutputTensor *output_list[SHOAL_TENSORS_MAX];
};

static void *
take(struct oip_request *request, size_t bytes, struct error *error)
{
    void *memory = oip_scratch_allocate(&request->scratch, bytes);
    if (memory == NULL)
        (void)error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to encode the response");
    return memory;
}

static enum status
copy_names(struct response *response, struct error *error)
{
    const struct payload_view *view = response->view;
    for (uint32_t i = 0; i < view->tensor_count; i++) {
        size_t bytes = view->name_bytes[i];
        char *name = take(response->request, bytes + 1, error);
        if (name == NULL)
            return error->status;
        memcpy(name, view->tensors[i].name, bytes);
        name[bytes] = '\0';
        if (!wire_text_ok((const unsigned char *)name, bytes))
            return error_set(error, STATUS_DATA_LOSS,
                             "output %u: the last stage gave it a name that is not UTF-8", i);
        response->names[i] = name;
    }
    return STATUS_OK;
}

static enum status
choose(struct response *response, const char *name, struct error *error)
{
    for (uint32_t i = 0; i < response->view->tensor_count; i++) {
        /* copy_names has set as many; zeroing the arrays for the analyzer would cost each reply.
         * NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
        if (strcmp(response->names[i], name) == 0) {
            response->chosen[response->count++] = i;
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "requested output \"%s\": the model gave no such output", name);
}

/* Those that the caller asked for, in that order; all if it asked for none. */
static enum status
choose_outputs(struct response *response, struct error *error)
{
    const Inference__ModelInferRequest *message = response->request->message;
    response->count = 0;
    for (size_t i = 0; i < message->n_outputs; i++) {
        enum status status = choose(response, message->outputs[i]->name, error);
        if (status != STATUS_OK)
            return status;
    }
    if (message->n_outputs == 0)
        for (uint32_t i = 0; i < response->view->tensor_count; i++)
            response->chosen[response->count++] = i;
    return STATUS_OK;
}

static void
fill_outputs(struct response *response)
{
    for (uint32_t i = 0; i < response->count; i++) {
        uint32_t index = response->chosen[i];
        const struct shoal_tensor *tensor = &response->view->tensors[index];
        Inference__ModelInferResponse__InferOutputTensor *output = &response->outputs[i];
        inference__model_infer_response__infer_output_tensor__init(output);
        output->name = response->names[index];
        output->datatype = oip_loose(oip_datatype_name(tensor->datatype));
        output->n_shape = tensor->rank;
        output->shape = oip_loose(tensor->shape);
        response->output_list[i] = output;
    }
}

/* Packs everything but the contents, with room for the tags and lengths of all contents after it.
 */
static enum status
pack_header(struct response *response, const struct oip_model_info *model, unsigned char **bytes,
            size_t *used, struct error *error)
{
    Inference__ModelInferResponse message = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    message.model_name = oip_loose(model->name);
    message.model_version = oip_loose(model->version);
    message.id = response->request->message->id;
    message.n_outputs = response->count;
    message.outputs = response->output_list;
    size_t packed_bytes = inference__model_infer_response__get_packed_size(&message);
    *bytes = take(response->request,
                  packed_bytes + (size_t)response->count * 2 * WIRE_VARINT_BYTES_MAX, error);
    if (*bytes == NULL)
        return error->status;
    *used = inference__model_infer_response__pack(&message, *bytes);
    CHECK(*used == packed_bytes);
    return STATUS_OK;
}

enum status
oip_encode_response(struct oip_request *request, const struct oip_model_info *model,
                    const struct payload_view *outputs, void (*release)(void *release_context),
                    void *release_context, struct rpc_piece pieces[OIP_PIECES_MAX],
                    size_t *piece_count, size_t *lent_count, struct error *error)
{
    CHECK(request->message != NULL && outputs->tensor_count <= SHOAL_TENSORS_MAX);
    struct response response;
    response.request = request;
    response.view = outputs;
    unsigned char *bytes = NULL;
    size_t used = 0;
    enum status status = copy_names(&response, error);
    if (status == STATUS_OK)
        status = choose_outputs(&response, error);
    if (status != STATUS_OK)
        return status;
    fill_outputs(&response);
    if ((status = pack_header(&response, model, &bytes, &used, error)) != STATUS_OK)
        return status;
    *piece_count = 0;
    *lent_count = 0;
    size_t sent = 0; /* of `bytes`, in pieces so far */
    for (uint32_t i = 0; i < response.count; i++) {
        const struct shoal_tensor *tensor = &outputs->tensors[response.chosen[i]];
        used += wire_put_varint(bytes + used, wire_tag(FIELD_RAW_OUTPUT_CONTENTS, WIRE_BYTES));
        used += wire_put_varint(bytes + used, tensor->bytes);
        if (tensor->bytes == 0)
            continue;
        pieces[(*piece_count)++] = (struct rpc_piece){bytes + sent, used - sent, NULL, NULL};
        pieces[(*piece_count)++] =
            (struct rpc_piece){tensor->data, tensor->bytes, release, release_context};
        (*lent_count)++;
        sent = used;
    }
    if (used > sent)
        pieces[(*piece_count)++] = (struct rpc_piece){bytes + sent, used - sent, NULL, NULL};
    return STATUS_OK;
}
