/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads protobuf's wire format in place: a cursor walks a message that is scattered over spans,
 * field by field, without copying. It trusts nothing: every length is checked against the rest, and
 * every field takes at least one byte, so a walk ends. Groups (wire types 3 and 4) are obsolete and
 * refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "wire/message.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* A position in a message and the number of bytes readable from there. May be copied. */
struct wire_cursor {
    const struct wire_span *spans;
    size_t span; /* index of the current span */
    size_t offset;
    uint64_t left;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;          /* VARINT, FIXED32, FIXED64: the bits; BYTES: the length */
    struct wire_cursor data; /* BYTES: the contents */
};

/* Lets a loop over many varints check the cursor once for all of them. */
enum { WIRE_VARINTS_AT_ONCE = 64 };

enum wire_result { WIRE_END, WIRE_FIELD, WIRE_MALFORMED };

/* The message as a whole. */
struct wire_cursor wire_begin(const struct wire_message *message);

/* Reads the next field and advances past it. */
enum wire_result wire_next(struct wire_cursor *cursor, struct wire_field *field) WARN_UNUSED;

/* False: cut short, or longer than 10 bytes. */
bool wire_varint(struct wire_cursor *cursor, uint64_t *value) WARN_UNUSED;

/* Reads the varints that are contiguous here, up to WIRE_VARINTS_AT_ONCE; 0: see wire_varint, or
 * the end. */
size_t wire_varints(struct wire_cursor *cursor, uint64_t values[WIRE_VARINTS_AT_ONCE]) WARN_UNUSED;

/* The contiguous bytes here, at most `left`; 0 only at the end. */
size_t wire_run(struct wire_cursor *cursor, const unsigned char **data);

/* `bytes` <= left for both. wire_read copies to memory of that size. */
void wire_skip(struct wire_cursor *cursor, uint64_t bytes);
void wire_read(struct wire_cursor *cursor, void *to, uint64_t bytes);

/* Returns whether the map in that field has a message with `true` in its field 1 (a bool_param of
 * the inference protocol) under the key. The last entry counts. */
bool wire_map_is_true(struct wire_cursor message, uint32_t number, const char *key);

/* Returns true if the bytes are UTF-8 without a zero byte, so that they can become a C string. */
bool wire_text_ok(const unsigned char *text, size_t bytes);

enum { WIRE_VARINT_BYTES_MAX = 10 };

/* Writes a varint to `to`, which has WIRE_VARINT_BYTES_MAX bytes; returns its length. */
size_t wire_put_varint(unsigned char *to, uint64_t value);
/* Returns the length of a varint. */
size_t wire_varint_bytes(uint64_t value);

static inline uint64_t
wire_tag(uint32_t number, enum wire_type type)
{
    return (uint64_t)number << 3 | type;
}

enum { WIRE_HEAD_BYTES_MAX = 5 + WIRE_VARINT_BYTES_MAX };

/* Writes the tag and the length of a field with `bytes` of content to `to`, which has
 * WIRE_HEAD_BYTES_MAX bytes; returns how many it wrote. */
size_t wire_put_head(unsigned char *to, uint32_t number, uint64_t bytes);
/* Returns the number of bytes that wire_put_head writes. */
size_t wire_head_bytes(uint32_t number, uint64_t bytes);

/* Appends a varint; a varint field; a field with content. */
void wire_append_varint(struct bytes *out, uint64_t value);
void wire_append_number(struct bytes *out, uint32_t number, uint64_t value);
void wire_append_run(struct bytes *out, uint32_t number, const void *data, size_t bytes);
