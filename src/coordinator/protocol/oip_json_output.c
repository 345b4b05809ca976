/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_json_request.h"
#include "wire/wire.h"

enum {
    FIELD_NAME = 1,
    FIELD_DATATYPE = 2,
    FIELD_SHAPE = 3,
    FIELD_PARAMETERS = 4,
    FIELD_CONTENTS = 5
};

static enum status
impossible(struct error *error)
{
    return error_set(error, STATUS_INTERNAL, "the response is not a ModelInferResponse");
}

static enum status
read_shape(struct json_output *output, struct wire_cursor packed, struct error *error)
{
    while (packed.left > 0) {
        uint64_t dimension;
        if (output->rank == SHOAL_RANK_MAX || !wire_varint(&packed, &dimension))
            return impossible(error);
        output->shape[output->rank++] = (int64_t)dimension;
    }
    return STATUS_OK;
}

enum status
oip_json_read_output(struct json_output *output, struct wire_cursor cursor, struct error *error)
{
    struct wire_field field;
    enum wire_result result;
    *output = (struct json_output){0};
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.type != WIRE_BYTES)
            return impossible(error);
        if (field.number == FIELD_NAME)
            output->name = field.data;
        else if (field.number == FIELD_CONTENTS)
            output->contents = field.data;
        else if (field.number == FIELD_PARAMETERS &&
                 output->parameter_count < OIP_OUTPUT_PARAMETERS_MAX)
            output->parameters[output->parameter_count++] = field.data;
        else if (field.number == FIELD_DATATYPE && field.value < OIP_DATATYPE_BYTES_MAX)
            wire_read(&field.data, output->datatype, field.value);
        else if (field.number == FIELD_SHAPE && read_shape(output, field.data, error) != STATUS_OK)
            return error->status;
    }
    return result == WIRE_END ? STATUS_OK : impossible(error);
}
