/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request parameter `priority`, found by a skim: who is let in is decided before anything is
 * decoded, so that a request that is refused for load costs next to nothing. What is malformed
 * beyond recognition is left to the decoder, which says so in better words.
 */
#include <string.h>

#include "coordinator/protocol/oip.h"
#include "coordinator/protocol/oip_gather.h"

static const char KEY[] = "priority";

enum { FIELD_PARAMETERS = 4, FIELD_KEY = 1, FIELD_VALUE = 2 };
enum { FIELD_FIRST = 1, FIELD_INT64 = 2, FIELD_STRING = 3, FIELD_UINT64 = 5, FIELD_LAST = 5 };

static bool
is_key(struct wire_cursor text)
{
    char bytes[sizeof(KEY) - 1];
    if (text.left != sizeof(bytes))
        return false;
    wire_read(&text, bytes, sizeof(bytes));
    return memcmp(bytes, KEY, sizeof(bytes)) == 0;
}

/* An InferParameter, of whose fields the last counts, on top of what an earlier one said.
 * UINT64_MAX: nothing that is a number. */
static uint64_t
number_of(struct wire_cursor value, uint64_t number)
{
    struct wire_field field;
    while (wire_next(&value, &field) == WIRE_FIELD) {
        if (field.number < FIELD_FIRST || field.number > FIELD_LAST)
            continue;
        char digit = 0;
        number = UINT64_MAX;
        if (field.number == FIELD_INT64 || field.number == FIELD_UINT64)
            number = field.type == WIRE_VARINT ? field.value : UINT64_MAX;
        else if (field.number == FIELD_STRING && field.type == WIRE_BYTES && field.value == 1)
            wire_read(&field.data, &digit, 1);
        if (digit >= '0' && digit <= '9')
            number = (uint64_t)(digit - '0');
    }
    return number;
}

/* One entry of the map. Of a key that a map has twice, the last value counts. */
static void
read_entry(struct wire_cursor entry, uint64_t *number)
{
    bool named = false;
    uint64_t value = UINT64_MAX;
    struct wire_field field;
    while (wire_next(&entry, &field) == WIRE_FIELD) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == FIELD_KEY)
            named = is_key(field.data);
        else if (field.number == FIELD_VALUE)
            value = number_of(field.data, value);
    }
    if (named)
        *number = value;
}

enum status
oip_skim_priority(const struct rpc_message *message, enum priority *priority, struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    uint64_t number = 0;
    struct wire_field field;
    uint32_t fields = 0;
    while (wire_next(&cursor, &field) == WIRE_FIELD && fields++ < GATHER_FIELDS_MAX)
        if (field.number == FIELD_PARAMETERS && field.type == WIRE_BYTES)
            read_entry(field.data, &number);
    *priority = number == 0 ? PRIORITY_NORMAL : (enum priority)number;
    if (number <= PRIORITY_LOW)
        return STATUS_OK;
    *priority = PRIORITY_NORMAL;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "parameter \"%s\": must be the number 1 (high), 2 (normal) or 3 (low)", KEY);
}
