/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A string field in a message of which nothing else is known: field numbers lead to it, from the
 * outermost message in. The walk goes over the wire format as it lies, across spans, decodes
 * nothing and copies nothing.
 *
 * It finds the value that a parser would read there. A field that comes several times counts as
 * protobuf counts one that is not repeated: of strings the last, of messages all together, as if
 * they were one. Stricter than a parser: the fields on the way must have the wire type of a message
 * or string, and groups, which the format has given up, are refused wherever the walk comes by.
 */
#pragma once

#include "rpc/wire.h"

enum {
    FIELD_PATH_MAX = 16,
    FIELD_PATH_FIELDS_MAX = 65536, /* looked at: bounds the walk, a millisecond at most */
};

/* `numbers` of `depth` fields, 1 … FIELD_PATH_MAX. `found` is the string; `*any` false: there is
 * none. INVALID_ARGUMENT: malformed, or too many fields. */
enum status field_path_find(const struct rpc_message *message, const uint32_t *numbers,
                            uint32_t depth, struct wire_cursor *found, bool *any,
                            struct error *error) WARN_UNUSED;

/* "1.2": the path, for texts. */
enum { FIELD_PATH_TEXT_BYTES = FIELD_PATH_MAX * 10 };
void field_path_text(const uint32_t *numbers, uint32_t depth, char text[FIELD_PATH_TEXT_BYTES]);
