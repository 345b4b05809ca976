/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts an id into a protobuf message of which nothing is known but the numbers of the fields that
 * lead to it: the bytes before, the field anew, the bytes after, and the lengths of the messages
 * around it. Nothing is decoded, and of the message nothing is copied. Where a field comes several
 * times the last one is changed, which is the one that a parser takes; where there is none it is
 * added at the end, nested messages included. Pure.
 */
#pragma once

#include "rpc/field_path.h"
#include "rpc/rpc.h"

/* Ranges and heads of a message with an id in it. */
enum {
    ID_INJECT_RANGES_MAX = FIELD_PATH_MAX + 1,
    ID_INJECT_HEAD_BYTES_MAX = 10, /* of a field's number and length */
    ID_INJECT_HEADS_BYTES_MAX = FIELD_PATH_MAX * ID_INJECT_HEAD_BYTES_MAX,
};

struct id_range {
    uint64_t from;
    uint64_t to;
};

/* The new message is, for each range: those bytes of the old one, then that many bytes of `heads`;
 * behind the heads of the last range but one comes the id itself; the last range has no heads. */
struct id_inject {
    struct id_range ranges[ID_INJECT_RANGES_MAX];
    uint8_t head_bytes[ID_INJECT_RANGES_MAX];
    unsigned char heads[ID_INJECT_HEADS_BYTES_MAX];
    uint32_t range_count;
};

/* `numbers` of `depth` fields, 1 … FIELD_PATH_MAX. INVALID_ARGUMENT: the message is malformed where
 * the walk came by, or has too many fields (FIELD_PATH_FIELDS_MAX). */
enum status id_inject_plan(const struct rpc_message *message, const uint32_t *numbers,
                           uint32_t depth, uint64_t id_bytes, struct id_inject *plan,
                           struct error *error) WARN_UNUSED;
