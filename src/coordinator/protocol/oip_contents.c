/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_contents.h"

#include <string.h>

#include <shoal/modelet.h>

#include "base/check.h"
#include "ipc/spec.h"

const char *
oip_datatype_name(uint32_t datatype)
{
    return datatype_name(datatype);
}

uint32_t
oip_datatype_from_name(const char *name)
{
    for (uint32_t i = 1; i < SHOAL_DATATYPE_END; i++)
        if (datatype_name(i)[0] == name[0] && strcmp(datatype_name(i), name) == 0)
            return i;
    return 0;
}

/* ---- raw ---- */

/* The length before an element of BYTES: little-endian, like this machine. */
enum { LENGTH_BYTES = sizeof(uint32_t) };

static enum status
check_raw_strings(struct wire_cursor cursor, uint64_t elements, struct error *error)
{
    uint64_t seen = 0;
    for (; cursor.left > 0; seen++) {
        uint32_t length;
        if (cursor.left < LENGTH_BYTES)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "raw contents end within the length of element %llu",
                             (unsigned long long)seen);
        wire_read(&cursor, &length, LENGTH_BYTES);
        if (length > cursor.left)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "element %llu has %u bytes, its raw contents only %llu more",
                             (unsigned long long)seen, length, (unsigned long long)cursor.left);
        wire_skip(&cursor, length);
    }
    if (seen != elements)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "raw contents have %llu elements, the shape %llu",
                         (unsigned long long)seen, (unsigned long long)elements);
    return STATUS_OK;
}

enum status
oip_raw_check(struct wire_cursor cursor, uint32_t datatype, uint64_t elements, uint64_t fixed_bytes,
              struct error *error)
{
    if (datatype == SHOAL_BYTES)
        return check_raw_strings(cursor, elements, error);
    if (cursor.left != fixed_bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "raw contents have %llu bytes, %s and the shape want %llu",
                         (unsigned long long)cursor.left, oip_datatype_name(datatype),
                         (unsigned long long)fixed_bytes);
    return STATUS_OK;
}

/* ---- typed ---- */

enum { CONTENTS_FIELDS = 8 };

/* The members of InferTensorContents by their numbers. */
static const struct {
    const char *name;
    enum wire_type type; /* of one element */
} fields[CONTENTS_FIELDS + 1] = {
    [1] = {"bool_contents", WIRE_VARINT},   [2] = {"int_contents", WIRE_VARINT},
    [3] = {"int64_contents", WIRE_VARINT},  [4] = {"uint_contents", WIRE_VARINT},
    [5] = {"uint64_contents", WIRE_VARINT}, [6] = {"fp32_contents", WIRE_FIXED32},
    [7] = {"fp64_contents", WIRE_FIXED64},  [8] = {"bytes_contents", WIRE_BYTES},
};

/* The member that carries a datatype, and the range of its values there; float types take all. */
static const struct typed_form {
    uint32_t field; /* 0: no member can carry it */
    int64_t min;
    int64_t max;
} typed_forms[SHOAL_DATATYPE_END] = {
    [SHOAL_BOOL] = {1, 0, 1},
    [SHOAL_INT8] = {2, INT8_MIN, INT8_MAX},
    [SHOAL_INT16] = {2, INT16_MIN, INT16_MAX},
    [SHOAL_INT32] = {2, INT32_MIN, INT32_MAX},
    [SHOAL_INT64] = {3, INT64_MIN, INT64_MAX},
    [SHOAL_UINT8] = {4, 0, UINT8_MAX},
    [SHOAL_UINT16] = {4, 0, UINT16_MAX},
    [SHOAL_UINT32] = {4, 0, UINT32_MAX},
    [SHOAL_UINT64] = {5, INT64_MIN, INT64_MAX}, /* as bits */
    [SHOAL_FP32] = {6, 0, 0},
    [SHOAL_FP64] = {7, 0, 0},
    [SHOAL_BYTES] = {8, 0, 0},
};

/* One pass over typed contents: counts only while `to` is NULL, else writes as well. */
struct typed_pass {
    const struct typed_form *form;
    uint32_t datatype;
    size_t element_bytes;
    uint64_t elements;
    uint64_t bytes;
    unsigned char *to;
    uint64_t room;
};

static unsigned char *
place(const struct typed_pass *pass, uint64_t bytes)
{
    CHECK(bytes <= pass->room - pass->bytes);
    return pass->to + pass->bytes;
}

/* Reads a varint as a parser does for this datatype: the wire has 64 bits for every member.
 */
static int64_t
narrow(const struct typed_pass *pass, uint64_t bits)
{
    switch (pass->form->field) {
    case 1: return bits != 0;
    case 2: return (int32_t)(uint32_t)bits;
    case 4: return (uint32_t)bits;
    default: return (int64_t)bits;
    }
}

/* A copy of a known size is one instruction. */
static void
store(unsigned char *to, int64_t value, size_t bytes)
{
    switch (bytes) {
    case 1: memcpy(to, &value, 1); return;
    case 2: memcpy(to, &value, 2); return;
    case 4: memcpy(to, &value, 4); return;
    default: memcpy(to, &value, 8); return;
    }
}

static bool
pass_integer(struct typed_pass *pass, uint64_t bits, struct error *error)
{
    int64_t value = narrow(pass, bits);
    if (value < pass->form->min || value > pass->form->max) {
        (void)error_set(error, STATUS_INVALID_ARGUMENT, "element %llu, %lld, is out of %s's range",
                        (unsigned long long)pass->elements, (long long)value,
                        oip_datatype_name(pass->datatype));
        return false;
    }
    if (pass->to != NULL)
        store(place(pass, pass->element_bytes), value, pass->element_bytes);
    pass->elements++;
    pass->bytes += pass->element_bytes;
    return true;
}

static enum status
pass_integers(struct typed_pass *pass, struct wire_cursor cursor, struct error *error)
{
    while (cursor.left > 0) {
        uint64_t bits[WIRE_VARINTS_AT_ONCE];
        size_t count = wire_varints(&cursor, bits);
        if (count == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT, "malformed, or cut short");
        for (size_t i = 0; i < count; i++)
            if (!pass_integer(pass, bits[i], error))
                return error->status;
    }
    return STATUS_OK;
}

static enum status
pass_floats(struct typed_pass *pass, struct wire_cursor cursor, struct error *error)
{
    uint64_t bytes = cursor.left;
    CHECK(pass->element_bytes > 0);
    if (bytes % pass->element_bytes != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%llu bytes are no whole number of %s",
                         (unsigned long long)bytes, oip_datatype_name(pass->datatype));
    if (pass->to != NULL)
        wire_read(&cursor, place(pass, bytes), bytes);
    pass->elements += bytes / pass->element_bytes;
    pass->bytes += bytes;
    return STATUS_OK;
}

static enum status
pass_string(struct typed_pass *pass, struct wire_cursor cursor, struct error *error)
{
    uint64_t bytes = cursor.left;
    if (bytes > UINT32_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "element %llu has more than %u bytes",
                         (unsigned long long)pass->elements, UINT32_MAX);
    if (pass->to != NULL) {
        unsigned char *to = place(pass, LENGTH_BYTES + bytes);
        uint32_t length = (uint32_t)bytes;
        memcpy(to, &length, LENGTH_BYTES);
        wire_read(&cursor, to + LENGTH_BYTES, bytes);
    }
    pass->elements++;
    pass->bytes += LENGTH_BYTES + bytes;
    return STATUS_OK;
}

/* One field of the member that carries this datatype: an element, or a packed run of them. */
static enum status
pass_field(struct typed_pass *pass, const struct wire_field *field, struct error *error)
{
    enum wire_type element_type = fields[field->number].type;
    if (field->type != element_type && field->type != WIRE_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT, "wire type %u", (unsigned)field->type);
    switch (element_type) {
    case WIRE_VARINT:
        if (field->type == WIRE_BYTES)
            return pass_integers(pass, field->data, error);
        return pass_integer(pass, field->value, error) ? STATUS_OK : error->status;
    case WIRE_BYTES: return pass_string(pass, field->data, error);
    default: break;
    }
    if (field->type == WIRE_BYTES)
        return pass_floats(pass, field->data, error);
    struct wire_span span = {&field->value, pass->element_bytes};
    return pass_floats(pass, (struct wire_cursor){.spans = &span, .left = span.bytes}, error);
}

/* An empty packed field counts as absent; an empty BYTES element does not. */
static bool
field_has_elements(const struct wire_field *field)
{
    return field->type != WIRE_BYTES || field->value > 0 ||
           fields[field->number].type == WIRE_BYTES;
}

static enum status
wrong_member(const struct typed_pass *pass, uint32_t number, struct error *error)
{
    if (pass->form->field == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s travels in raw_input_contents only",
                         oip_datatype_name(pass->datatype));
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s belongs in %s, not in %s",
                     oip_datatype_name(pass->datatype), fields[pass->form->field].name,
                     fields[number].name);
}

static enum status
run_pass(struct typed_pass *pass, struct wire_cursor cursor, struct error *error)
{
    uint32_t member = 0; /* the one that is filled */
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.number > CONTENTS_FIELDS || !field_has_elements(&field))
            continue;
        if (member != 0 && member != field.number)
            return error_set(error, STATUS_INVALID_ARGUMENT, "both %s and %s are filled",
                             fields[member].name, fields[field.number].name);
        member = field.number;
        if (member != pass->form->field)
            continue; /* wrong, but a second filled member is the better error */
        if (pass_field(pass, &field, error) != STATUS_OK)
            return error_prefix(error, "%s", fields[member].name);
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "contents are malformed, or cut short");
    if (member != 0 && member != pass->form->field)
        return wrong_member(pass, member, error);
    return STATUS_OK;
}

static struct typed_pass
typed_pass(uint32_t datatype, void *to, uint64_t room)
{
    return (struct typed_pass){.form = &typed_forms[datatype],
                               .datatype = datatype,
                               .element_bytes = shoal_datatype_bytes(datatype),
                               .to = to,
                               .room = room};
}

enum status
oip_typed_check(struct wire_cursor cursor, uint32_t datatype, uint64_t elements, uint64_t *bytes,
                struct error *error)
{
    struct typed_pass pass = typed_pass(datatype, NULL, 0);
    enum status status = run_pass(&pass, cursor, error);
    if (status != STATUS_OK)
        return status;
    if (pass.form->field == 0 && elements > 0)
        return wrong_member(&pass, 0, error);
    if (pass.elements != elements)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "contents have %llu elements, the shape %llu",
                         (unsigned long long)pass.elements, (unsigned long long)elements);
    *bytes = pass.bytes;
    return STATUS_OK;
}

void
oip_typed_write(struct wire_cursor cursor, uint32_t datatype, void *to, uint64_t bytes)
{
    struct typed_pass pass = typed_pass(datatype, to, bytes);
    struct error error = ERROR_NONE;
    enum status status = run_pass(&pass, cursor, &error);
    CHECK(status == STATUS_OK && pass.bytes == bytes); /* it was checked, and has not changed */
}
