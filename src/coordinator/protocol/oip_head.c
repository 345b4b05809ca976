/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a request, read in one walk before anything is decoded: admission must be decided
 * first, so that a request refused for load costs next to nothing. The decoder reports what is
 * malformed, with better texts.
 */
#include <string.h>

#include "base/clock.h"
#include "coordinator/protocol/oip.h"
#include "wire/field_path.h"

enum {
    FIELD_MODEL_NAME = 1,
    FIELD_MODEL_VERSION = 2,
    FIELD_ID = 3,
    FIELD_PARAMETERS = 4,
    FIELD_KEY = 1,
    FIELD_VALUE = 2
};
enum { FIELD_FIRST = 1, FIELD_INT64 = 2, FIELD_STRING = 3, FIELD_UINT64 = 5, FIELD_LAST = 5 };

static const struct {
    char name[9];
    size_t bytes;
} keys[OIP_NUMBERS] = {[OIP_PRIORITY] = {"priority", 8}, [OIP_TIMEOUT] = {"timeout", 7}};

enum { KEY_BYTES_MAX = 8, DIGITS_MAX = 18 };

/* The parameter of that name; OIP_NUMBERS: none of them. */
static int
parameter_of(struct wire_cursor text)
{
    char bytes[KEY_BYTES_MAX];
    int i = 0;
    while (i < OIP_NUMBERS && text.left != keys[i].bytes)
        i++;
    if (i == OIP_NUMBERS)
        return i;
    wire_read(&text, bytes, keys[i].bytes);
    return memcmp(bytes, keys[i].name, keys[i].bytes) == 0 ? i : OIP_NUMBERS;
}

uint64_t
oip_number_of_text(struct wire_cursor text)
{
    char digits[DIGITS_MAX];
    size_t count = text.left;
    if (count == 0 || count > DIGITS_MAX)
        return UINT64_MAX;
    wire_read(&text, digits, count);
    uint64_t number = 0;
    for (size_t i = 0; i < count; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return UINT64_MAX;
        number = 10 * number + (uint64_t)(digits[i] - '0');
    }
    return number;
}

/* Reads an InferParameter, whose last field counts, on top of an earlier one's value. UINT64_MAX:
 * not a number. */
static uint64_t
number_of(struct wire_cursor value, uint64_t number)
{
    struct wire_field field;
    while (wire_next(&value, &field) == WIRE_FIELD) {
        if (field.number < FIELD_FIRST || field.number > FIELD_LAST)
            continue;
        number = UINT64_MAX;
        if (field.number == FIELD_INT64 || field.number == FIELD_UINT64)
            number = field.type == WIRE_VARINT ? field.value : UINT64_MAX;
        else if (field.number == FIELD_STRING && field.type == WIRE_BYTES)
            number = oip_number_of_text(field.data);
    }
    return number;
}

/* Reads one entry of the map. The last value of a repeated key counts. */
static void
read_entry(struct wire_cursor entry, uint64_t numbers[OIP_NUMBERS])
{
    int parameter = OIP_NUMBERS;
    uint64_t value = UINT64_MAX;
    struct wire_field field;
    while (wire_next(&entry, &field) == WIRE_FIELD) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == FIELD_KEY)
            parameter = parameter_of(field.data);
        else if (field.number == FIELD_VALUE)
            value = number_of(field.data, value);
    }
    if (parameter != OIP_NUMBERS)
        numbers[parameter] = value;
}

enum status
oip_head_read(struct oip_head *head, const struct wire_message *message, struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    uint32_t fields = 0;
    *head = (struct oip_head){.is_read = true};
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (++fields > FIELD_PATH_FIELDS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d fields",
                             FIELD_PATH_FIELDS_MAX);
        if (field.number == FIELD_MODEL_NAME && field.type != WIRE_BYTES)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "field 1 has wire type %u, not that of a string",
                             (unsigned)field.type);
        if (field.number == FIELD_MODEL_NAME)
            head->name = field.data;
        else if (field.number == FIELD_MODEL_VERSION && field.type == WIRE_BYTES)
            head->version = field.data;
        else if (field.number == FIELD_ID && field.type == WIRE_BYTES)
            head->id = field.data;
        else if (field.number == FIELD_PARAMETERS && field.type == WIRE_BYTES)
            read_entry(field.data, head->numbers);
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "malformed, or cut short");
    return STATUS_OK;
}

enum status
oip_head_judge(const struct oip_head *head, enum priority *priority, int64_t *timeout_ns,
               struct error *error)
{
    uint64_t level = head->numbers[OIP_PRIORITY];
    uint64_t timeout_us = head->numbers[OIP_TIMEOUT];
    *priority = level == 0 || level > PRIORITY_LOW ? PRIORITY_NORMAL : (enum priority)level;
    *timeout_ns = TIME_NEVER_NS;
    if (level > PRIORITY_LOW)
        return error_set(
            error, STATUS_INVALID_ARGUMENT,
            "parameter \"priority\": must be the number 1 (high), 2 (normal) or 3 (low)");
    if (timeout_us > INT64_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"timeout\": must be a number of microseconds");
    if (timeout_us > 0 && timeout_us < (uint64_t)(INT64_MAX / NS_PER_US))
        *timeout_ns = (int64_t)timeout_us * NS_PER_US;
    return STATUS_OK;
}
