/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip.h"

/* ---- what is known of each message ---- */

enum gather_action {
    GATHER_VARINT,
    GATHER_VARINTS, /* repeated: packed or one by one */
    GATHER_FIXED64,
    GATHER_STRING,
    GATHER_MESSAGE,
    GATHER_INPUT,    /* a message whose elements are noted under its number */
    GATHER_CONTENTS, /* noted */
    GATHER_RAW,      /* noted */
    GATHER_OWN,      /* a tensor's own parameter: dropped, or refused if it may not be given */
};

struct gather_rule {
    uint32_t number;
    enum gather_action action;
    uint32_t count_max; /* 0: not counted */
    const char *name;
    const struct gather_rule *inner;
};

static const struct gather_rule parameter_rules[] = {
    {1, GATHER_VARINT, 0, "bool_param", NULL},   {2, GATHER_VARINT, 0, "int64_param", NULL},
    {3, GATHER_STRING, 0, "string_param", NULL}, {4, GATHER_FIXED64, 0, "double_param", NULL},
    {5, GATHER_VARINT, 0, "uint64_param", NULL}, {0},
};

static const struct gather_rule entry_rules[] = {
    {1, GATHER_STRING, 0, "key", NULL},
    {2, GATHER_MESSAGE, 0, "value", parameter_rules},
    {0},
};

static const struct gather_rule input_rules[] = {
    {1, GATHER_STRING, 0, "name", NULL},       {2, GATHER_STRING, 0, "datatype", NULL},
    {3, GATHER_VARINTS, 0, "shape", NULL},     {4, GATHER_OWN, 0, "parameters", NULL},
    {5, GATHER_CONTENTS, 0, "contents", NULL}, {0},
};

static const struct gather_rule output_rules[] = {
    {1, GATHER_STRING, 0, "name", NULL},
    {2, GATHER_OWN, 0, "parameters", NULL},
    {0},
};

static const struct gather_rule infer_rules[] = {
    {1, GATHER_STRING, 0, "model_name", NULL},
    {2, GATHER_STRING, 0, "model_version", NULL},
    {3, GATHER_STRING, 0, "id", NULL},
    {4, GATHER_MESSAGE, PARAMETERS_MAX, "parameters", entry_rules},
    {5, GATHER_INPUT, SHOAL_TENSORS_MAX, "inputs", input_rules},
    {6, GATHER_MESSAGE, SHOAL_TENSORS_MAX, "outputs", output_rules},
    {7, GATHER_RAW, SHOAL_TENSORS_MAX, "raw_input_contents", NULL},
    {0},
};

static const struct gather_rule named_rules[] = {
    {1, GATHER_STRING, 0, "name", NULL},
    {2, GATHER_STRING, 0, "version", NULL},
    {0},
};

enum { RULES_MAX = ARRAY_COUNT(infer_rules) };

static enum wire_type
wire_type_of(enum gather_action action)
{
    switch (action) {
    case GATHER_VARINT:
    case GATHER_VARINTS: return WIRE_VARINT;
    case GATHER_FIXED64: return WIRE_FIXED64;
    default: return WIRE_BYTES;
    }
}

/* ---- the copy ---- */

/* The length of a message that is not known yet: always three bytes. */
enum { LENGTH_BYTES = 3, GATHER_BYTES_START = 1024 };
_Static_assert(GATHER_BYTES_MAX < 1 << 21, "a length fits into three bytes of a varint");

static enum status
reserve(struct oip_gather *gather, uint64_t bytes, struct error *error)
{
    if (bytes > GATHER_BYTES_MAX - gather->used)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "names, shapes, id and parameters take more than %d bytes",
                         GATHER_BYTES_MAX);
    size_t wanted = gather->used + (size_t)bytes;
    if (wanted <= gather->capacity)
        return STATUS_OK;
    size_t capacity = gather->capacity == 0 ? GATHER_BYTES_START : gather->capacity;
    while (capacity < wanted)
        capacity *= 2;
    unsigned char *grown = realloc(gather->bytes, capacity);
    if (grown == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to decode the request");
    gather->bytes = grown;
    gather->capacity = capacity;
    return STATUS_OK;
}

static void
put_varint(struct oip_gather *gather, uint64_t value)
{
    gather->used += wire_put_varint(gather->bytes + gather->used, value);
}

/* Copies one field unchanged. */
static enum status
copy_field(struct oip_gather *gather, const struct wire_field *field, struct error *error)
{
    uint64_t payload_bytes = field->type == WIRE_BYTES ? field->value : 0;
    enum status status =
        reserve(gather, UINT64_C(2) * WIRE_VARINT_BYTES_MAX + payload_bytes, error);
    if (status != STATUS_OK)
        return status;
    put_varint(gather, wire_tag(field->number, field->type));
    if (field->type == WIRE_FIXED64) {
        memcpy(gather->bytes + gather->used, &field->value, sizeof(field->value));
        gather->used += sizeof(field->value);
        return STATUS_OK;
    }
    put_varint(gather, field->value);
    if (field->type == WIRE_BYTES) {
        struct wire_cursor data = field->data;
        wire_read(&data, gather->bytes + gather->used, field->value);
        gather->used += (size_t)field->value;
    }
    return STATUS_OK;
}

static enum status
copy_string(struct oip_gather *gather, const struct gather_rule *rule,
            const struct wire_field *field, struct error *error)
{
    enum status status = copy_field(gather, field, error);
    if (status != STATUS_OK)
        return status;
    const unsigned char *text = gather->bytes + gather->used - (size_t)field->value;
    if (!wire_text_ok(text, (size_t)field->value))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s is not UTF-8, or has a zero byte in it", rule->name);
    return STATUS_OK;
}

static enum status gather_message(struct oip_gather *gather, struct wire_cursor cursor,
                                  const struct gather_rule *rules, struct error *error);

/* Copies a message's known fields; its length is filled in afterwards. */
static enum status
copy_message(struct oip_gather *gather, const struct gather_rule *rule,
             const struct wire_field *field, struct error *error)
{
    enum status status = reserve(gather, WIRE_VARINT_BYTES_MAX + LENGTH_BYTES, error);
    if (status != STATUS_OK)
        return status;
    put_varint(gather, wire_tag(field->number, WIRE_BYTES));
    size_t length_at = gather->used;
    gather->used += LENGTH_BYTES;
    status = gather_message(gather, field->data, rule->inner, error);
    if (status != STATUS_OK)
        return error_prefix(error, "%s", rule->name);
    size_t length = gather->used - length_at - LENGTH_BYTES;
    gather->bytes[length_at] = (unsigned char)(length | 0x80);
    gather->bytes[length_at + 1] = (unsigned char)(length >> 7 | 0x80);
    gather->bytes[length_at + 2] = (unsigned char)(length >> 14);
    return STATUS_OK;
}

/* ---- parameters of tensors ---- */

/* Extensions of other servers that change what the tensor is: a caller that uses one must not get
 * an answer that ignores it. */
static const char *const refused_parameters[] = {"classification", "shared_memory_region"};

enum { KEY_BYTES_MAX = 32, FIELD_KEY = 1 };

enum status
oip_check_tensor_parameter(const char *key, struct error *error)
{
    for (size_t i = 0; i < ARRAY_COUNT(refused_parameters); i++)
        if (strcmp(key, refused_parameters[i]) == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "parameter \"%s\": this server does not have the extension: tensors "
                             "travel whole, in the message",
                             key);
    return STATUS_OK;
}

static enum status
check_own(struct oip_gather *gather, const struct wire_field *entry, struct error *error)
{
    struct wire_cursor cursor = entry->data;
    struct wire_field field;
    while (wire_next(&cursor, &field) == WIRE_FIELD) {
        if (++gather->fields > GATHER_FIELDS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d fields",
                             GATHER_FIELDS_MAX);
        if (field.number != FIELD_KEY || field.type != WIRE_BYTES || field.value > KEY_BYTES_MAX)
            continue;
        char key[KEY_BYTES_MAX + 1];
        wire_read(&field.data, key, field.value);
        key[field.value] = '\0';
        enum status status = oip_check_tensor_parameter(key, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* ---- the walk ---- */

static void
note(struct oip_range *range, const struct wire_field *field)
{
    *range = (struct oip_range){field->data.span, field->data.offset, field->value};
}

static enum status
gather_contents(struct oip_gather *gather, const struct wire_field *field, struct error *error)
{
    struct oip_range *range = &gather->contents[gather->input_count - 1];
    if (field->value > 0 && range->bytes > 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "contents is given twice");
    if (field->value > 0)
        note(range, field);
    return STATUS_OK;
}

static enum status
gather_field(struct oip_gather *gather, const struct gather_rule *rule,
             const struct wire_field *field, struct error *error)
{
    bool packed = rule->action == GATHER_VARINTS && field->type == WIRE_BYTES;
    if (field->type != wire_type_of(rule->action) && !packed)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has wire type %u", rule->name,
                         (unsigned)field->type);
    switch (rule->action) {
    case GATHER_VARINT:
    case GATHER_VARINTS:
    case GATHER_FIXED64: return copy_field(gather, field, error);
    case GATHER_STRING: return copy_string(gather, rule, field, error);
    case GATHER_INPUT:
        gather->contents[gather->input_count] = (struct oip_range){0};
        gather->input_count++;
        return copy_message(gather, rule, field, error);
    case GATHER_MESSAGE: return copy_message(gather, rule, field, error);
    case GATHER_CONTENTS: return gather_contents(gather, field, error);
    case GATHER_RAW: note(&gather->raw[gather->raw_count++], field); return STATUS_OK;
    case GATHER_OWN: return check_own(gather, field, error);
    }
    UNREACHABLE();
}

static enum status
gather_message(struct oip_gather *gather, struct wire_cursor cursor,
               const struct gather_rule *rules, struct error *error)
{
    uint32_t counts[RULES_MAX] = {0};
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (++gather->fields > GATHER_FIELDS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d fields",
                             GATHER_FIELDS_MAX);
        size_t i = 0;
        while (rules[i].number != field.number && rules[i].number != 0)
            i++;
        if (rules[i].number == 0)
            continue;
        if (rules[i].count_max != 0 && ++counts[i] > rules[i].count_max)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %u %s", rules[i].count_max,
                             rules[i].name);
        enum status status = gather_field(gather, &rules[i], &field, error);
        if (status != STATUS_OK)
            return status;
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "malformed, or cut short");
    return STATUS_OK;
}

static enum status
gather_request(struct oip_gather *gather, const struct wire_message *message,
               const struct gather_rule *rules, const char *type, struct error *error)
{
    gather->used = 0;
    gather->fields = 0;
    gather->input_count = 0;
    gather->raw_count = 0;
    if (gather_message(gather, wire_begin(message), rules, error) != STATUS_OK)
        return error_prefix(error, "request is not a valid %s", type);
    return STATUS_OK;
}

enum status
oip_gather_infer(struct oip_gather *gather, const struct wire_message *message, struct error *error)
{
    return gather_request(gather, message, infer_rules, "ModelInferRequest", error);
}

enum status
oip_gather_named(struct oip_gather *gather, const struct wire_message *message, const char *type,
                 struct error *error)
{
    return gather_request(gather, message, named_rules, type, error);
}

void
oip_gather_fini(struct oip_gather *gather)
{
    free(gather->bytes);
    *gather = (struct oip_gather){0};
}

struct wire_cursor
oip_range_cursor(const struct wire_message *message, const struct oip_range *range)
{
    return (struct wire_cursor){message->spans, range->span, range->offset, range->bytes};
}
