/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding: one walk over the message's spans that copies the small known fields (names, types,
 * shapes, parameters) into the request, and notes where the tensors' elements lie. Unknown fields
 * are dropped. Bytes and counts are limited as they are met.
 */
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip_request.h"

/* ---- the known fields of each message ---- */

enum field_action {
    FIELD_TEXT,     /* kept at `offset` */
    FIELD_SHAPE,    /* dimensions, packed or one by one */
    FIELD_CHOICE,   /* one of a parameter's values, in `wire_type` */
    FIELD_INPUT,    /* a message of its own */
    FIELD_OUTPUT,   /* likewise */
    FIELD_ENTRY,    /* likewise, of the parameters */
    FIELD_VALUE,    /* likewise, of an entry */
    FIELD_CONTENTS, /* noted */
    FIELD_RAW,      /* noted */
    FIELD_OWN_IN,   /* an input's own parameter: kept, dropped or refused */
    FIELD_OWN_OUT,  /* a requested output's */
};

struct field_rule {
    uint32_t number;
    enum field_action action;
    enum wire_type wire_type;
    uint32_t count_max; /* 0: not counted */
    const char *name;
    const struct field_rule *inner;
    size_t offset;
};

#define TEXT(number, type, member)                                                                 \
    {                                                                                              \
        number, FIELD_TEXT, WIRE_BYTES, 0, #member, NULL, offsetof(type, member)                   \
    }
#define CHOICE(number, wire_type, name)                                                            \
    {                                                                                              \
        number, FIELD_CHOICE, wire_type, 0, name, NULL, 0                                          \
    }

static const struct field_rule parameter_rules[] = {
    CHOICE(1, WIRE_VARINT, "bool_param"),   CHOICE(2, WIRE_VARINT, "int64_param"),
    CHOICE(3, WIRE_BYTES, "string_param"),  CHOICE(4, WIRE_FIXED64, "double_param"),
    CHOICE(5, WIRE_VARINT, "uint64_param"), {0},
};

static const struct field_rule entry_rules[] = {
    TEXT(1, Inference__ModelInferRequest__ParametersEntry, key),
    {2, FIELD_VALUE, WIRE_BYTES, 0, "value", parameter_rules, 0},
    {0},
};

static const struct field_rule input_rules[] = {
    TEXT(1, Inference__ModelInferRequest__InferInputTensor, name),
    TEXT(2, Inference__ModelInferRequest__InferInputTensor, datatype),
    {3, FIELD_SHAPE, WIRE_VARINT, 0, "shape", NULL, 0},
    {4, FIELD_OWN_IN, WIRE_BYTES, 0, "parameters", NULL, 0},
    {5, FIELD_CONTENTS, WIRE_BYTES, 0, "contents", NULL, 0},
    {0},
};

static const struct field_rule output_rules[] = {
    TEXT(1, Inference__ModelInferRequest__InferRequestedOutputTensor, name),
    {2, FIELD_OWN_OUT, WIRE_BYTES, 0, "parameters", NULL, 0},
    {0},
};

static const struct field_rule infer_rules[] = {
    TEXT(1, Inference__ModelInferRequest, model_name),
    TEXT(2, Inference__ModelInferRequest, model_version),
    TEXT(3, Inference__ModelInferRequest, id),
    {4, FIELD_ENTRY, WIRE_BYTES, PARAMETERS_MAX, "parameters", entry_rules, 0},
    {5, FIELD_INPUT, WIRE_BYTES, SHOAL_TENSORS_MAX, "inputs", input_rules, 0},
    {6, FIELD_OUTPUT, WIRE_BYTES, SHOAL_TENSORS_MAX, "outputs", output_rules, 0},
    {7, FIELD_RAW, WIRE_BYTES, SHOAL_TENSORS_MAX, "raw_input_contents", NULL, 0},
    {0},
};

static const struct field_rule named_rules[] = {
    TEXT(1, Inference__ModelReadyRequest, name),
    TEXT(2, Inference__ModelReadyRequest, version),
    {0},
};

enum { RULES_MAX = ARRAY_COUNT(infer_rules) };

/* ---- the walk ---- */

/* A shape that is too long is refused by its length: only what can be taken is kept. */
static enum status
add_dimension(struct oip_request *request, Inference__ModelInferRequest__InferInputTensor *input,
              uint64_t dimension, struct error *error)
{
    if (input->n_shape == 0)
        input->shape = bump_take(&request->scratch, SHOAL_RANK_MAX * sizeof(input->shape[0]));
    if (input->n_shape < SHOAL_RANK_MAX)
        input->shape[input->n_shape] = (int64_t)dimension;
    input->n_shape++;
    return oip_count_small(request, wire_varint_bytes(dimension), error);
}

static enum status
read_shape(struct oip_request *request, const struct wire_field *field, void *input,
           struct error *error)
{
    if (field->type == WIRE_VARINT)
        return add_dimension(request, input, field->value, error);
    struct wire_cursor packed = field->data;
    while (packed.left > 0) {
        uint64_t dimension;
        if (!wire_varint(&packed, &dimension))
            return error_set(error, STATUS_INVALID_ARGUMENT, "shape is malformed, or cut short");
        enum status status = add_dimension(request, input, dimension, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* The cases have the numbers of their fields. */
static enum status
read_choice(struct oip_request *request, const struct field_rule *rule,
            const struct wire_field *field, Inference__InferParameter *value, struct error *error)
{
    value->parameter_choice_case = (Inference__InferParameter__ParameterChoiceCase)rule->number;
    switch (value->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM:
        value->bool_param = field->value != 0;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        return oip_keep_text(request, rule->name, field->data, &value->string_param, error);
    default: memcpy(&value->uint64_param, &field->value, sizeof(field->value));
    }
    return oip_count_small(request, sizeof(field->value), error);
}

static void
note(struct oip_range *range, const struct wire_field *field)
{
    *range = (struct oip_range){field->data.span, field->data.offset, field->value};
}

static enum status
note_contents(struct oip_request *request, const struct wire_field *field, struct error *error)
{
    struct oip_range *range = &request->contents[request->message->n_inputs - 1];
    if (field->value > 0 && range->bytes > 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "contents is given twice");
    if (field->value > 0)
        note(range, field);
    return STATUS_OK;
}

static enum status read_message(struct oip_request *request, struct wire_cursor cursor,
                                const struct field_rule *rules, void *to, struct error *error);

enum { KEY_BYTES_MAX = 32, FIELD_KEY = 1 };

/* Only those that have a meaning are kept: others cost no memory. */
static enum status
find_own(struct oip_request *request, const struct wire_field *entry, enum oip_own *own,
         struct error *error)
{
    struct wire_cursor cursor = entry->data;
    struct wire_field field;
    *own = OIP_OWN_NONE;
    while (wire_next(&cursor, &field) == WIRE_FIELD) {
        if (++request->fields > OIP_FIELDS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d fields", OIP_FIELDS_MAX);
        if (field.number != FIELD_KEY || field.type != WIRE_BYTES)
            continue;
        *own = OIP_OWN_NONE;
        if (field.value > KEY_BYTES_MAX)
            continue;
        char key[KEY_BYTES_MAX + 1];
        wire_read(&field.data, key, field.value);
        key[field.value] = '\0';
        enum status status = oip_own_parameter(key, own, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status
read_own(struct oip_request *request, enum oip_side side, const struct wire_field *field,
         struct error *error)
{
    Inference__ModelInferRequest__ParametersEntry entry =
        INFERENCE__MODEL_INFER_REQUEST__PARAMETERS_ENTRY__INIT;
    Inference__InferParameter value = INFERENCE__INFER_PARAMETER__INIT;
    enum oip_own own;
    entry.value = &value;
    enum status status = find_own(request, field, &own, error);
    if (status != STATUS_OK || own == OIP_OWN_NONE)
        return status;
    status = read_message(request, field->data, entry_rules, &entry, error);
    if (status == STATUS_OK)
        return oip_put_own(request, side, own, &value, error);
    return error_prefix(error, "parameters");
}

static enum status
read_field(struct oip_request *request, const struct field_rule *rule,
           const struct wire_field *field, void *to, struct error *error)
{
    void *inner = NULL;
    bool is_packed = rule->action == FIELD_SHAPE && field->type == WIRE_BYTES;
    if (field->type != rule->wire_type && !is_packed)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has wire type %u", rule->name,
                         (unsigned)field->type);
    switch (rule->action) {
    case FIELD_TEXT:
        return oip_keep_text(request, rule->name, field->data,
                             (char **)(void *)((char *)to + rule->offset), error);
    case FIELD_SHAPE: return read_shape(request, field, to, error);
    case FIELD_CHOICE: return read_choice(request, rule, field, to, error);
    case FIELD_INPUT: inner = oip_add_input(request); break;
    case FIELD_OUTPUT: inner = oip_add_output(request); break;
    case FIELD_ENTRY: inner = oip_add_parameter(request); break;
    case FIELD_VALUE: inner = oip_parameter_value(request, to); break;
    case FIELD_CONTENTS: return note_contents(request, field, error);
    case FIELD_RAW: note(&request->raw[request->raw_count++], field); return STATUS_OK;
    case FIELD_OWN_IN: return read_own(request, OIP_INPUT, field, error);
    case FIELD_OWN_OUT: return read_own(request, OIP_OUTPUT, field, error);
    }
    if (read_message(request, field->data, rule->inner, inner, error) != STATUS_OK)
        return error_prefix(error, "%s", rule->name);
    return STATUS_OK;
}

static enum status
read_message(struct oip_request *request, struct wire_cursor cursor, const struct field_rule *rules,
             void *to, struct error *error)
{
    uint32_t counts[RULES_MAX] = {0};
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (++request->fields > OIP_FIELDS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d fields", OIP_FIELDS_MAX);
        size_t i = 0;
        while (rules[i].number != field.number && rules[i].number != 0)
            i++;
        if (rules[i].number == 0)
            continue;
        if (rules[i].count_max != 0 && ++counts[i] > rules[i].count_max)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %u %s", rules[i].count_max,
                             rules[i].name);
        enum status status = read_field(request, &rules[i], &field, to, error);
        if (status != STATUS_OK)
            return status;
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "malformed, or cut short");
    return STATUS_OK;
}

enum status
oip_read_infer(struct oip_request *request, const struct wire_message *message, struct error *error)
{
    oip_request_begin(request);
    if (read_message(request, wire_begin(message), infer_rules, request->message, error) !=
        STATUS_OK)
        return error_prefix(error, "request is not a valid ModelInferRequest");
    return STATUS_OK;
}

enum status
oip_read_named(struct oip_request *request, const struct wire_message *message, const char *type,
               Inference__ModelReadyRequest *named, struct error *error)
{
    inference__model_ready_request__init(named);
    if (read_message(request, wire_begin(message), named_rules, named, error) != STATUS_OK)
        return error_prefix(error, "request is not a valid %s", type);
    return STATUS_OK;
}
