/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/raw_message.h"

#include <string.h>

#include "ipc/spec.h"
#include "wire/wire.h"

#define NAME "message"

const struct handshake_tensor raw_message_spec = {
    .name = NAME, .datatype = SHOAL_UINT8, .rank = 1, .shape = {-1}};

static struct shoal_tensor
tensor_of(const struct wire_message *message)
{
    return (struct shoal_tensor){.name = NAME,
                                 .datatype = SHOAL_UINT8,
                                 .rank = 1,
                                 .shape = {(int64_t)message->bytes},
                                 .bytes = message->bytes};
}

/* ---- what stages say of themselves ---- */

static enum status
check_spec(const struct handshake_tensor *specs, uint32_t count, const char *kind,
           struct error *error)
{
    if (count == 0)
        return STATUS_OK;
    bool fits = count == 1 && strcmp(specs[0].name, NAME) == 0 &&
                (specs[0].datatype == SHOAL_UINT8 || specs[0].datatype == SHOAL_DATATYPE_ANY) &&
                (specs[0].rank == 1 || specs[0].rank == SHOAL_RANK_ANY);
    if (fits)
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "a pipeline with a `method` has one %s, \"" NAME "\" UINT8 of one dimension: "
                     "the modelet describes %u, the first of them \"%s\" %s",
                     kind, count, specs[0].name,
                     specs[0].datatype == SHOAL_DATATYPE_ANY ? "of any type"
                                                             : datatype_name(specs[0].datatype));
}

enum status
raw_message_check_model(const struct oip_model_info *model, struct error *error)
{
    enum status status = check_spec(model->inputs, model->input_count, "input", error);
    if (status != STATUS_OK)
        return status;
    return check_spec(model->outputs, model->output_count, "output", error);
}

/* ---- in ---- */

enum status
raw_message_check(const struct wire_message *message, const struct oip_model_info *model,
                  struct error *error)
{
    struct shoal_tensor tensor = tensor_of(message);
    if (model->input_count == 0)
        return STATUS_OK;
    return spec_check_input(&tensor, model->inputs, model->input_count, model->name, error);
}

enum status
raw_message_copy(const struct wire_message *message, struct payload_builder *builder,
                 struct error *error)
{
    struct shoal_tensor tensor = tensor_of(message);
    void *data;
    enum status status = builder_reserve(builder, message->bytes, error);
    if (status == STATUS_OK)
        status = builder_add(builder, &tensor, &data, error);
    if (status != STATUS_OK || message->bytes == 0)
        return status;
    struct wire_cursor cursor = wire_begin(message);
    wire_read(&cursor, data, message->bytes);
    return STATUS_OK;
}

/* ---- out ---- */

enum status
raw_message_reply(const struct payload_view *outputs, void (*release)(void *context), void *context,
                  struct rpc_piece *piece, size_t *piece_count, struct error *error)
{
    const struct shoal_tensor *tensor = &outputs->tensors[0];
    /* The name lies in shared memory: it is compared once, and not shown. */
    if (outputs->tensor_count != 1 || outputs->name_bytes[0] != sizeof(NAME) - 1 ||
        memcmp(tensor->name, NAME, sizeof(NAME) - 1) != 0 || tensor->datatype != SHOAL_UINT8 ||
        tensor->rank != 1)
        return error_set(error, STATUS_INTERNAL,
                         "the last stage must give one output, \"" NAME
                         "\" UINT8 of one dimension: it gave %u, %s of %u dimensions",
                         outputs->tensor_count,
                         outputs->tensor_count > 0 ? datatype_name(tensor->datatype) : "none",
                         outputs->tensor_count > 0 ? tensor->rank : 0);
    *piece_count = tensor->bytes > 0 ? 1 : 0;
    *piece = (struct rpc_piece){
        .data = tensor->data,
        .bytes = tensor->bytes,
        .release = release,
        .release_context = context,
    };
    return STATUS_OK;
}
