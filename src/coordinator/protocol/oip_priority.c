/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request parameters `priority` and `timeout`, found by a skim: admission is decided before
 * anything is decoded, so that a request refused for load costs next to nothing. The decoder
 * reports malformed messages, with better texts.
 */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/protocol/oip.h"
#include "coordinator/protocol/oip_gather.h"

enum { FIELD_PARAMETERS = 4, FIELD_KEY = 1, FIELD_VALUE = 2 };
enum { FIELD_FIRST = 1, FIELD_INT64 = 2, FIELD_STRING = 3, FIELD_UINT64 = 5, FIELD_LAST = 5 };

/* The parameters to find, in the order of `numbers`. */
enum { PARAMETER_PRIORITY, PARAMETER_TIMEOUT, PARAMETER_COUNT };

static const struct {
    char name[9];
    size_t bytes;
} keys[PARAMETER_COUNT] = {{"priority", 8}, {"timeout", 7}};

enum { KEY_BYTES_MAX = 8, DIGITS_MAX = 18 };

/* The parameter of that name; PARAMETER_COUNT: none of them. */
static int
parameter_of(struct wire_cursor text)
{
    char bytes[KEY_BYTES_MAX];
    int i = 0;
    while (i < PARAMETER_COUNT && text.left != keys[i].bytes)
        i++;
    if (i == PARAMETER_COUNT)
        return i;
    wire_read(&text, bytes, keys[i].bytes);
    return memcmp(bytes, keys[i].name, keys[i].bytes) == 0 ? i : PARAMETER_COUNT;
}

/* UINT64_MAX: no number. */
static uint64_t
number_of_text(struct wire_cursor text)
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
            number = number_of_text(field.data);
    }
    return number;
}

/* Reads one entry of the map. The last value of a repeated key counts. */
static void
read_entry(struct wire_cursor entry, uint64_t numbers[PARAMETER_COUNT])
{
    int parameter = PARAMETER_COUNT;
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
    if (parameter != PARAMETER_COUNT)
        numbers[parameter] = value;
}

enum status
oip_skim(const struct wire_message *message, enum priority *priority, int64_t *timeout_ns,
         struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    uint64_t numbers[PARAMETER_COUNT] = {0};
    struct wire_field field;
    uint32_t fields = 0;
    while (wire_next(&cursor, &field) == WIRE_FIELD && fields++ < GATHER_FIELDS_MAX)
        if (field.number == FIELD_PARAMETERS && field.type == WIRE_BYTES)
            read_entry(field.data, numbers);
    uint64_t level = numbers[PARAMETER_PRIORITY];
    uint64_t timeout_us = numbers[PARAMETER_TIMEOUT];
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

enum status
oip_skim_priority(const struct wire_message *message, enum priority *priority, struct error *error)
{
    int64_t timeout_ns;
    return oip_skim(message, priority, &timeout_ns, error);
}
