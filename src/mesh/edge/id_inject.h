/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts an id into a protobuf message of which only the numbers of the fields that lead to it are
 * known: the bytes before, the new field, the bytes after, and the lengths of the enclosing
 * messages. Nothing is decoded or copied. Of a repeated field the last one is changed, which is the
 * one a parser uses; a missing field is added at the end, nested messages included. Pure.
 */
#pragma once

#include "rpc/rpc.h"
#include "wire/field_path.h"

/* Ranges and heads of a message with an id. */
enum {
    ID_INJECT_RANGES_MAX = FIELD_PATH_MAX + 1,
    ID_INJECT_HEAD_BYTES_MAX = 10, /* a field's number and length */
    ID_INJECT_HEADS_BYTES_MAX = FIELD_PATH_MAX * ID_INJECT_HEAD_BYTES_MAX,
};

struct id_range {
    uint64_t from;
    uint64_t to;
};

/* The new message is, for each range: those bytes of the old one, then that many bytes of `heads`;
 * the id itself follows the heads of the last range but one; the last range has no heads. */
struct id_inject {
    struct id_range ranges[ID_INJECT_RANGES_MAX];
    uint8_t head_bytes[ID_INJECT_RANGES_MAX];
    unsigned char heads[ID_INJECT_HEADS_BYTES_MAX];
    uint32_t range_count;
};

/* `numbers` has `depth` fields, 1 … FIELD_PATH_MAX. INVALID_ARGUMENT: the message is malformed on
 * the path or has more than FIELD_PATH_FIELDS_MAX fields. */
enum status id_inject_plan(const struct wire_message *message, const uint32_t *numbers,
                           uint32_t depth, uint64_t id_bytes, struct id_inject *plan,
                           struct error *error) WARN_UNUSED;
