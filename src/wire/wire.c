/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wire.h"

#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "fixed-width fields are read as they lie");

struct wire_cursor
wire_begin(const struct wire_message *message)
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
    const struct wire_span *span = &cursor->spans[cursor->span];
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

/* Returns true if the next `bytes` are in the current span, as nearly always. The other cases are
 * separate functions, so that this one needs no stack frame. */
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

/* A varint of one byte in the current span: nearly all tags and lengths. */
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
        bits |= (uint64_t)(byte & 0x7f) << shift; /* the tenth byte has room for one bit */
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

/* Where the longest varint fits, the rest need not be checked per byte. Returns its bytes, 0 if it
 * is longer. */
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

/* A tag or a length of 32 bits, in at most 5 bytes: no other parser accepts more, even if zero. */
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

bool
wire_text_ok(const unsigned char *text, size_t bytes)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        length = text[at] == 0 ? 0 : utf8_length(text + at, bytes - at);
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

size_t
wire_varint_bytes(uint64_t value)
{
    size_t bits = 64 - (size_t)__builtin_clzll(value | 1);
    return (bits + 6) / 7;
}

size_t
wire_put_head(unsigned char *to, uint32_t number, uint64_t bytes)
{
    size_t tag_bytes = wire_put_varint(to, wire_tag(number, WIRE_BYTES));
    return tag_bytes + wire_put_varint(to + tag_bytes, bytes);
}

size_t
wire_head_bytes(uint32_t number, uint64_t bytes)
{
    return wire_varint_bytes(wire_tag(number, WIRE_BYTES)) + wire_varint_bytes(bytes);
}

void
wire_append_varint(struct bytes *out, uint64_t value)
{
    unsigned char varint[WIRE_VARINT_BYTES_MAX];
    bytes_put(out, varint, wire_put_varint(varint, value));
}

void
wire_append_number(struct bytes *out, uint32_t number, uint64_t value)
{
    wire_append_varint(out, wire_tag(number, WIRE_VARINT));
    wire_append_varint(out, value);
}

void
wire_append_run(struct bytes *out, uint32_t number, const void *data, size_t bytes)
{
    unsigned char head[WIRE_HEAD_BYTES_MAX];
    bytes_put(out, head, wire_put_head(head, number, bytes));
    bytes_put(out, data, bytes);
}

bool
wire_map_is_true(struct wire_cursor message, uint32_t number, const char *key)
{
    enum { KEY = 1, VALUE = 2, BOOL = 1, KEY_BYTES_MAX = 64 };
    size_t key_bytes = strlen(key);
    struct wire_field field;
    bool is_true = false;
    CHECK(key_bytes <= KEY_BYTES_MAX);
    while (wire_next(&message, &field) == WIRE_FIELD) {
        struct wire_cursor entry = field.data;
        struct wire_field part;
        bool is_it = false;
        if (field.number != number || field.type != WIRE_BYTES)
            continue;
        while (wire_next(&entry, &part) == WIRE_FIELD) {
            char text[KEY_BYTES_MAX];
            if (part.number == KEY && part.type == WIRE_BYTES && part.value == key_bytes) {
                wire_read(&part.data, text, key_bytes);
                is_it = memcmp(text, key, key_bytes) == 0;
            } else if (part.number == VALUE && part.type == WIRE_BYTES && is_it) {
                struct wire_field choice;
                is_true = wire_next(&part.data, &choice) == WIRE_FIELD && choice.number == BOOL &&
                          choice.type == WIRE_VARINT && choice.value != 0;
            }
        }
    }
    return is_true;
}
