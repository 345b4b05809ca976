/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/wire.h"

#include <string.h>

#include "base/check.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "fixed-width fields are read as they lie");

struct wire_cursor
wire_begin(const struct rpc_message *message)
{
    return (struct wire_cursor){.spans = message->spans, .left = message->bytes};
}

size_t
wire_run(struct wire_cursor *cursor, const unsigned char **data)
{
    if (cursor->left == 0)
        return 0;
    while (cursor->offset == cursor->spans[cursor->span].bytes) {
        cursor->span++;
        cursor->offset = 0;
    }
    const struct rpc_span *span = &cursor->spans[cursor->span];
    *data = (const unsigned char *)span->data + cursor->offset;
    size_t bytes = span->bytes - cursor->offset;
    return bytes < cursor->left ? bytes : (size_t)cursor->left;
}

static void
step(struct wire_cursor *cursor, size_t bytes)
{
    cursor->offset += bytes;
    cursor->left -= bytes;
}

/* True if the next `bytes` lie in the span that we are in: nearly always. The ways around that are
 * functions of their own, so that the short way needs no frame. */
static inline bool
lies_here(const struct wire_cursor *cursor, uint64_t bytes)
{
    return bytes <= cursor->spans[cursor->span].bytes - cursor->offset;
}

__attribute__((noinline)) static void
skip_far(struct wire_cursor *cursor, uint64_t bytes)
{
    while (bytes > 0) {
        const unsigned char *data;
        size_t run = wire_run(cursor, &data);
        size_t part = run < bytes ? run : (size_t)bytes;
        step(cursor, part);
        bytes -= part;
    }
}

void
wire_skip(struct wire_cursor *cursor, uint64_t bytes)
{
    CHECK(bytes <= cursor->left);
    if (bytes > 0 && lies_here(cursor, bytes))
        step(cursor, (size_t)bytes);
    else
        skip_far(cursor, bytes);
}

void
wire_read(struct wire_cursor *cursor, void *to, uint64_t bytes)
{
    CHECK(bytes <= cursor->left);
    unsigned char *at = to;
    while (bytes > 0) {
        const unsigned char *data;
        size_t run = wire_run(cursor, &data);
        size_t part = run < bytes ? run : (size_t)bytes;
        memcpy(at, data, part);
        at += part;
        step(cursor, part);
        bytes -= part;
    }
}

/* A varint of one byte that lies in the span that we are in: nearly all tags and lengths. */
static inline bool
varint_short(struct wire_cursor *cursor, uint64_t *value)
{
    if (cursor->left == 0 || !lies_here(cursor, 1))
        return false;
    unsigned char byte = ((const unsigned char *)cursor->spans[cursor->span].data)[cursor->offset];
    if (byte >= 0x80)
        return false;
    step(cursor, 1);
    *value = byte;
    return true;
}

__attribute__((noinline)) static bool
varint_long(struct wire_cursor *cursor, uint64_t *value)
{
    const unsigned char *data = NULL;
    size_t run = wire_run(cursor, &data);
    uint64_t bits = 0;
    size_t at = 0;
    for (unsigned shift = 0; shift < 7 * WIRE_VARINT_BYTES_MAX; shift += 7) {
        if (at == run) {
            step(cursor, at);
            at = 0;
            run = wire_run(cursor, &data);
            if (run == 0)
                return false;
        }
        unsigned char byte = data[at++];
        bits |= (uint64_t)(byte & 0x7f) << shift; /* of the tenth, one bit has a place */
        if (byte < 0x80) {
            step(cursor, at);
            *value = bits;
            return true;
        }
    }
    return false;
}

bool
wire_varint(struct wire_cursor *cursor, uint64_t *value)
{
    return varint_short(cursor, value) || varint_long(cursor, value);
}

/* Where the longest varint fits, no byte needs a look at what is left. Bytes of it, 0 if it is
 * longer. */
static size_t
varint_at(const unsigned char *data, uint64_t *value)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < WIRE_VARINT_BYTES_MAX; i++) {
        bits |= (uint64_t)(data[i] & 0x7f) << 7 * i;
        if (data[i] < 0x80) {
            *value = bits;
            return i + 1;
        }
    }
    return 0;
}

size_t
wire_varints(struct wire_cursor *cursor, uint64_t values[WIRE_VARINTS_AT_ONCE])
{
    const unsigned char *data = NULL;
    size_t run = wire_run(cursor, &data);
    size_t at = 0;
    size_t count = 0;
    while (count < WIRE_VARINTS_AT_ONCE && run - at >= WIRE_VARINT_BYTES_MAX) {
        size_t bytes = varint_at(data + at, &values[count]);
        if (bytes == 0)
            break;
        at += bytes;
        count++;
    }
    step(cursor, at);
    /* Near the end of a span, or malformed: one at a time. */
    return count > 0 ? count : wire_varint(cursor, values);
}

__attribute__((noinline)) static bool
varint_32_long(struct wire_cursor *cursor, uint64_t *value)
{
    uint64_t before = cursor->left;
    return varint_long(cursor, value) && *value <= UINT32_MAX && before - cursor->left <= 5;
}

/* A tag or a length: of 32 bits, in at most 5 bytes; more, if only zeros, no other parser takes. */
static inline bool
varint_32(struct wire_cursor *cursor, uint64_t *value)
{
    return varint_short(cursor, value) || varint_32_long(cursor, value);
}

enum wire_result
wire_next(struct wire_cursor *cursor, struct wire_field *field)
{
    uint64_t tag;
    if (cursor->left == 0)
        return WIRE_END;
    if (!varint_32(cursor, &tag) || tag >> 3 == 0)
        return WIRE_MALFORMED;
    field->number = (uint32_t)(tag >> 3);
    field->type = (enum wire_type)(tag & 7);
    field->value = 0;
    switch (field->type) {
    case WIRE_VARINT: return wire_varint(cursor, &field->value) ? WIRE_FIELD : WIRE_MALFORMED;
    case WIRE_FIXED32:
    case WIRE_FIXED64: {
        size_t bytes = field->type == WIRE_FIXED32 ? 4 : 8;
        if (cursor->left < bytes)
            return WIRE_MALFORMED;
        wire_read(cursor, &field->value, bytes);
        return WIRE_FIELD;
    }
    case WIRE_BYTES:
        if (!varint_32(cursor, &field->value) || field->value > cursor->left)
            return WIRE_MALFORMED;
        field->data = *cursor;
        field->data.left = field->value;
        wire_skip(cursor, field->value);
        return WIRE_FIELD;
    }
    return WIRE_MALFORMED;
}

/* Bytes of the well-formed character at `text`, 0 if it is none: RFC 3629, so neither overlong
 * forms, nor surrogates, nor beyond U+10FFFF. */
static size_t
character_bytes(const unsigned char *text, size_t bytes)
{
    unsigned char first = text[0];
    if (first < 0x80)
        return first != 0;
    size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length == 0 || length > bytes)
        return 0;
    unsigned char second_min = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char second_max = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < second_min || text[1] > second_max)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    return length;
}

bool
wire_text_ok(const unsigned char *text, size_t bytes)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        length = character_bytes(text + at, bytes - at);
        if (length == 0)
            return false;
    }
    return true;
}

size_t
wire_put_varint(unsigned char *to, uint64_t value)
{
    size_t bytes = 0;
    while (value >= 0x80) {
        to[bytes++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    to[bytes++] = (unsigned char)value;
    return bytes;
}
