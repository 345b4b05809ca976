/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a string field in an otherwise unknown message by its path of field numbers, from the
 * outermost message in. It walks the wire format in place, across spans, and neither decodes nor
 * copies.
 *
 * It finds the value that a parser would read. A repeated occurrence of a field counts as protobuf
 * defines it for singular fields: the last string, the merged messages. It is stricter than a
 * parser: fields on the path must have the wire type of a message or string, and groups, which are
 * obsolete, are refused.
 */
#pragma once

#include "wire/wire.h"

enum {
    FIELD_PATH_MAX = 16,
    FIELD_PATH_FIELDS_MAX = 65536, /* examined; limits the walk to about a millisecond */
};

/* `numbers`: `depth` field numbers, 1 … FIELD_PATH_MAX of them. `found` is the string; `*any`
 * false: there is none. INVALID_ARGUMENT: malformed, or too many fields. */
enum status field_path_find(const struct wire_message *message, const uint32_t *numbers,
                            uint32_t depth, struct wire_cursor *found, bool *any,
                            struct error *error) WARN_UNUSED;

/* Prints the path as "1.2". */
enum { FIELD_PATH_TEXT_BYTES = FIELD_PATH_MAX * 10 };
void field_path_text(const uint32_t *numbers, uint32_t depth, char text[FIELD_PATH_TEXT_BYTES]);
