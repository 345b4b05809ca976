/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_request.h"

#include <stdlib.h>

enum { FIELD_RAW_INPUT_CONTENTS = 7 };

/* Asked for by each text, for its tag and length: more than they take. */
enum { TEXT_BYTES_MORE = 2 * WIRE_VARINT_BYTES_MAX };

struct oip_request *
oip_request_create(void)
{
    return calloc(1, sizeof(struct oip_request));
}

void
oip_request_destroy(struct oip_request *request)
{
    if (request == NULL)
        return;
    oip_request_fini(request);
    free(request);
}

void
oip_request_fini(struct oip_request *request)
{
    oip_forget_shared(request);
    bump_fini(&request->scratch);
    bump_fini(&request->of_piece);
}

void
oip_request_begin(struct oip_request *request)
{
    oip_forget_shared(request);
    bump_reset(&request->scratch);
    request->message = bump_take(&request->scratch, sizeof(*request->message));
    inference__model_infer_request__init(request->message);
    request->inputs = NULL;
    request->small_bytes = 0;
    request->in_pieces = false;
    request->fields = 0;
    request->raw_count = 0;
    request->shared = NULL;
    request->packed.bytes = 0;
}

/* ---- filling it ---- */

enum status
oip_count_small(struct oip_request *request, size_t bytes, struct error *error)
{
    if (bytes > OIP_SMALL_BYTES_MAX - request->small_bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "names, shapes, id and parameters take more than %d bytes",
                         OIP_SMALL_BYTES_MAX);
    request->small_bytes += bytes;
    return STATUS_OK;
}

enum status
oip_keep_text(struct oip_request *request, const char *field, struct wire_cursor text, char **kept,
              struct error *error)
{
    size_t bytes = (size_t)text.left;
    enum status status = oip_count_small(request, bytes + TEXT_BYTES_MORE, error);
    if (status != STATUS_OK)
        return status;
    request->small_bytes -= TEXT_BYTES_MORE - 2;
    char *copy = *kept = bump_take(&request->scratch, bytes + 1);
    wire_read(&text, copy, bytes);
    copy[bytes] = '\0';
    if (!wire_text_ok((const unsigned char *)copy, bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s is not UTF-8, or has a zero byte in it", field);
    return STATUS_OK;
}

Inference__ModelInferRequest__InferInputTensor *
oip_add_input(struct oip_request *request)
{
    Inference__ModelInferRequest *message = request->message;
    Inference__ModelInferRequest__InferInputTensor *input =
        bump_take(&request->scratch, sizeof(*input));
    inference__model_infer_request__infer_input_tensor__init(input);
    if (message->n_inputs == 0)
        message->inputs = bump_take(&request->scratch, SHOAL_TENSORS_MAX * sizeof(void *));
    request->contents[message->n_inputs].bytes = 0;
    return message->inputs[message->n_inputs++] = input;
}

Inference__ModelInferRequest__InferRequestedOutputTensor *
oip_add_output(struct oip_request *request)
{
    Inference__ModelInferRequest *message = request->message;
    Inference__ModelInferRequest__InferRequestedOutputTensor *output =
        bump_take(&request->scratch, sizeof(*output));
    inference__model_infer_request__infer_requested_output_tensor__init(output);
    if (message->n_outputs == 0)
        message->outputs = bump_take(&request->scratch, SHOAL_TENSORS_MAX * sizeof(void *));
    return message->outputs[message->n_outputs++] = output;
}

Inference__ModelInferRequest__ParametersEntry *
oip_add_parameter(struct oip_request *request)
{
    Inference__ModelInferRequest *message = request->message;
    Inference__ModelInferRequest__ParametersEntry *entry =
        bump_take(&request->scratch, sizeof(*entry));
    inference__model_infer_request__parameters_entry__init(entry);
    if (message->n_parameters == 0)
        message->parameters = bump_take(&request->scratch, PARAMETERS_MAX * sizeof(void *));
    return message->parameters[message->n_parameters++] = entry;
}

Inference__InferParameter *
oip_parameter_value(struct oip_request *request,
                    Inference__ModelInferRequest__ParametersEntry *entry)
{
    if (entry->value == NULL) {
        entry->value = bump_take(&request->scratch, sizeof(*entry->value));
        inference__infer_parameter__init(entry->value);
    }
    return entry->value;
}

/* ---- filled from JSON ---- */

const struct oip_head *
oip_request_head(const struct oip_request *request)
{
    return &request->head;
}

size_t
oip_small_bytes(const struct oip_request *request)
{
    return request->small_bytes;
}

void
oip_elements_moved(struct oip_request *request)
{
    size_t offset = 0;
    for (uint32_t i = 0; i < request->raw_count; i++) {
        request->raw[i].span = 0;
        request->raw[i].offset = offset;
        offset += (size_t)request->raw[i].bytes;
    }
}

/* Small fields, then each input's elements behind a tag and a length. */
const struct wire_message *
oip_pack(struct oip_request *request, const struct wire_message *elements)
{
    struct wire_message *packed = &request->packed;
    if (packed->bytes > 0)
        return packed;
    size_t room = inference__model_infer_request__get_packed_size(request->message) +
                  request->raw_count * (size_t)WIRE_HEAD_BYTES_MAX;
    unsigned char *bytes = bump_take(&request->scratch, room);
    struct wire_span *spans =
        bump_take(&request->scratch, (2 * request->raw_count + 1) * sizeof(*spans));
    size_t used = inference__model_infer_request__pack(request->message, bytes);
    size_t sent = 0;
    *packed = (struct wire_message){.spans = spans};
    for (uint32_t i = 0; i < request->raw_count; i++) {
        const struct oip_range *raw = &request->raw[i];
        used += wire_put_head(bytes + used, FIELD_RAW_INPUT_CONTENTS, raw->bytes);
        spans[packed->span_count++] = (struct wire_span){bytes + sent, used - sent};
        spans[packed->span_count++] = elements->spans[raw->span];
        sent = used;
    }
    if (used > sent)
        spans[packed->span_count++] = (struct wire_span){bytes + sent, used - sent};
    packed->bytes = used + elements->bytes;
    return packed;
}
