/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/field_path.h"

#include <stdio.h>

#include "base/check.h"

struct field_path_walk {
    const uint32_t *numbers;
    uint32_t depth;
    uint32_t fields; /* examined so far */
    struct wire_cursor *found;
    bool *any;
    struct error *error;
};

void
field_path_text(const uint32_t *numbers, uint32_t depth, char text[FIELD_PATH_TEXT_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < depth && used < FIELD_PATH_TEXT_BYTES; i++)
        used += (size_t)snprintf(text + used, FIELD_PATH_TEXT_BYTES - used, i == 0 ? "%u" : ".%u",
                                 numbers[i]);
}

static enum status
wrong_type(const struct field_path_walk *walk, uint32_t level, enum wire_type type)
{
    char text[FIELD_PATH_TEXT_BYTES];
    field_path_text(walk->numbers, level + 1, text);
    return error_set(walk->error, STATUS_INVALID_ARGUMENT,
                     "field %s has wire type %u, not that of a %s", text, (unsigned)type,
                     level + 1 < walk->depth ? "message" : "string");
}

/* One message of the path. Recurses as deep as the path, which the configuration limits. */
static enum status
walk_message(struct field_path_walk *walk, struct wire_cursor message, uint32_t level)
{
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&message, &field)) == WIRE_FIELD) {
        if (++walk->fields > FIELD_PATH_FIELDS_MAX)
            return error_set(walk->error, STATUS_INVALID_ARGUMENT, "more than %d fields",
                             FIELD_PATH_FIELDS_MAX);
        if (field.number != walk->numbers[level])
            continue;
        if (field.type != WIRE_BYTES)
            return wrong_type(walk, level, field.type);
        if (level + 1 == walk->depth) {
            *walk->found = field.data;
            *walk->any = true;
            continue;
        }
        enum status status = walk_message(walk, field.data, level + 1);
        if (status != STATUS_OK)
            return status;
    }
    if (result == WIRE_MALFORMED)
        return error_set(walk->error, STATUS_INVALID_ARGUMENT, "malformed, or cut short");
    return STATUS_OK;
}

enum status
field_path_find(const struct wire_message *message, const uint32_t *numbers, uint32_t depth,
                struct wire_cursor *found, bool *any, struct error *error)
{
    CHECK(depth >= 1 && depth <= FIELD_PATH_MAX);
    struct field_path_walk walk = {numbers, depth, 0, found, any, error};
    *found = (struct wire_cursor){0};
    *any = false;
    return walk_message(&walk, wire_begin(message), 0);
}
