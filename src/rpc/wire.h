/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire format of protocol buffers, read where it lies: a cursor walks a message that is
 * scattered over spans, field by field, without copying. It believes nothing: every length is
 * checked against what is left, and every field costs at least one byte, so a walk ends. Groups
 * (wire types 3 and 4) left the format long ago and are refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rpc/rpc.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* A place in a message and how many bytes may be read from there. Copied freely. */
struct wire_cursor {
    const struct rpc_span *spans;
    size_t span; /* index of the one we are in */
    size_t offset;
    uint64_t left;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;          /* VARINT, FIXED32, FIXED64: the bits; BYTES: the length */
    struct wire_cursor data; /* BYTES: what is inside */
};

/* For loops over many: the cursor is looked at once for all of them. */
enum { WIRE_VARINTS_AT_ONCE = 64 };

enum wire_result { WIRE_END, WIRE_FIELD, WIRE_MALFORMED };

/* The message as a whole. */
struct wire_cursor wire_begin(const struct rpc_message *message);

/* Reads the next field and goes past it. */
enum wire_result wire_next(struct wire_cursor *cursor, struct wire_field *field) WARN_UNUSED;

/* False: cut short, or longer than 10 bytes. */
bool wire_varint(struct wire_cursor *cursor, uint64_t *value) WARN_UNUSED;

/* As many varints as lie together here, up to WIRE_VARINTS_AT_ONCE; 0: see wire_varint, or the end.
 */
size_t wire_varints(struct wire_cursor *cursor, uint64_t values[WIRE_VARINTS_AT_ONCE]) WARN_UNUSED;

/* The bytes that lie together here, at most `left`; 0 only at the end. */
size_t wire_run(struct wire_cursor *cursor, const unsigned char **data);

/* `bytes` <= left for both. wire_read copies, to memory that has room. */
void wire_skip(struct wire_cursor *cursor, uint64_t bytes);
void wire_read(struct wire_cursor *cursor, void *to, uint64_t bytes);

/* True if the bytes are UTF-8 without a zero byte: what a string must be to become one of C's. */
bool wire_text_ok(const unsigned char *text, size_t bytes);

enum { WIRE_VARINT_BYTES_MAX = 10 };

/* Writes a varint to `to`, which has room for WIRE_VARINT_BYTES_MAX; returns its length. */
size_t wire_put_varint(unsigned char *to, uint64_t value);

static inline uint64_t
wire_tag(uint32_t number, enum wire_type type)
{
    return (uint64_t)number << 3 | type;
}
