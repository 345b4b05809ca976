/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers of onnx.proto. */
enum {
    MODEL_GRAPH = 7,
    GRAPH_NODE = 1,
    GRAPH_INITIALIZER = 5,
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_EXTERNAL_DATA = 13,
    TENSOR_DATA_LOCATION = 14,
    LOCATION_EXTERNAL = 1,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2
};

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* A message being read, within the file. */
struct scan {
    const unsigned char *at;
    const unsigned char *end;
    const char *mistake; /* NULL: none so far */
};

struct field {
    uint32_t number;
    enum wire wire;
    uint64_t number_value;    /* WIRE_VARINT */
    struct graph_bytes bytes; /* WIRE_BYTES */
};

static bool
fails(struct scan *scan, const char *mistake)
{
    if (scan->mistake == NULL)
        scan->mistake = mistake;
    return false;
}

static bool
varint(struct scan *scan, uint64_t *number)
{
    *number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (scan->at == scan->end)
            return fails(scan, "it is truncated");
        unsigned char byte = *scan->at++;
        *number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return fails(scan, "a number is too long");
}

static bool
take(struct scan *scan, uint64_t size, struct graph_bytes *bytes)
{
    if (size > (size_t)(scan->end - scan->at))
        return fails(scan, "it is truncated, or claims more than it has");
    *bytes = (struct graph_bytes){scan->at, (size_t)size};
    scan->at += size;
    return true;
}

/* Reads the next field of the message. False at its end and after a mistake. */
static bool
next(struct scan *scan, struct field *field)
{
    uint64_t tag;
    if (scan->at == scan->end || !varint(scan, &tag))
        return false;
    *field = (struct field){.number = (uint32_t)(tag >> 3), .wire = tag & 7};
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return fails(scan, "a field has no number");
    switch (field->wire) {
    case WIRE_VARINT: return varint(scan, &field->number_value);
    case WIRE_FIXED64: return take(scan, 8, &field->bytes);
    case WIRE_FIXED32: return take(scan, 4, &field->bytes);
    case WIRE_BYTES: {
        uint64_t size;
        return varint(scan, &size) && take(scan, size, &field->bytes);
    }
    default: return fails(scan, "a field has no type");
    }
}

static bool
is(const struct field *field, uint32_t number, enum wire wire)
{
    return field->number == number && field->wire == wire;
}

/* Enters the message in a field; `leave` passes its mistakes on. */
static struct scan
enter(const struct field *field)
{
    return (struct scan){field->bytes.bytes, field->bytes.bytes + field->bytes.size, NULL};
}

static bool
leave(struct scan *scan, const struct scan *inner)
{
    if (inner->mistake == NULL)
        return true;
    scan->at = inner->at;
    return fails(scan, inner->mistake);
}

/* ---- constants ---- */

/* Only the number of excess dimensions is kept. */
static void
add_dimension(struct graph_constant *constant, uint64_t size)
{
    if (constant->rank < GRAPH_RANK_MAX)
        constant->shape[constant->rank] = (int64_t)size;
    constant->rank++;
}

/* Reads numbers one by one, or packed into one field. */
static void
dimensions(struct scan *scan, struct graph_constant *constant, const struct field *field)
{
    uint64_t size;
    struct scan inner = enter(field);
    if (field->wire == WIRE_VARINT)
        add_dimension(constant, field->number_value);
    while (inner.at != inner.end && varint(&inner, &size))
        add_dimension(constant, size);
    leave(scan, &inner);
}

static bool
equals(struct graph_bytes bytes, const char *text)
{
    return bytes.size == strlen(text) && memcmp(bytes.bytes, text, bytes.size) == 0;
}

static bool
decimal(struct scan *scan, struct graph_bytes text, uint64_t *number)
{
    *number = 0;
    if (text.size == 0 || text.size > 18)
        return fails(scan, "an offset or a length is not a number");
    for (size_t i = 0; i < text.size; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9')
            return fails(scan, "an offset or a length is not a number");
        *number = *number * 10 + (uint64_t)(text.bytes[i] - '0');
    }
    return true;
}

/* Reads a pair of texts: a key and its value. */
static bool
place(struct scan *scan, struct graph_constant *constant, const struct field *entry)
{
    struct scan inner = enter(entry);
    struct graph_bytes key = {NULL, 0};
    struct graph_bytes value = {NULL, 0};
    struct field field;
    while (next(&inner, &field)) {
        if (is(&field, ENTRY_KEY, WIRE_BYTES))
            key = field.bytes;
        if (is(&field, ENTRY_VALUE, WIRE_BYTES))
            value = field.bytes;
    }
    if (equals(key, "location"))
        constant->location = value;
    else if (equals(key, "offset"))
        decimal(&inner, value, &constant->offset);
    else if (equals(key, "length"))
        decimal(&inner, value, &constant->length);
    return leave(scan, &inner);
}

static bool
keep(struct scan *scan, struct graph_file *file, const struct graph_constant *constant)
{
    size_t count = file->apart_count;
    if ((count & (count - 1)) == 0) { /* full at 0, 1, 2, 4, … */
        struct graph_constant *more =
            realloc(file->apart, (count == 0 ? 1 : 2 * count) * sizeof *more);
        if (more == NULL)
            return fails(scan, "out of memory");
        file->apart = more;
    }
    file->apart[file->apart_count++] = *constant;
    return true;
}

static bool
initializer(struct scan *scan, struct graph_file *file, const struct field *tensor)
{
    struct graph_constant constant = {.length = UINT64_MAX};
    struct scan inner = enter(tensor);
    struct field field;
    bool external = false;
    while (next(&inner, &field)) {
        if (field.number == TENSOR_DIMS && (field.wire == WIRE_VARINT || field.wire == WIRE_BYTES))
            dimensions(&inner, &constant, &field);
        else if (is(&field, TENSOR_TYPE, WIRE_VARINT))
            constant.element = (uint32_t)field.number_value;
        else if (is(&field, TENSOR_NAME, WIRE_BYTES))
            constant.name = field.bytes;
        else if (is(&field, TENSOR_EXTERNAL_DATA, WIRE_BYTES))
            place(&inner, &constant, &field);
        else if (is(&field, TENSOR_DATA_LOCATION, WIRE_VARINT))
            external = field.number_value == LOCATION_EXTERNAL;
    }
    if (!leave(scan, &inner))
        return false;
    if (!external) {
        file->inside_bytes += tensor->bytes.size;
        return true;
    }
    if (constant.rank > GRAPH_RANK_MAX)
        return fails(scan, "a constant in another file has more than 8 dimensions");
    return keep(scan, file, &constant);
}

/* ---- the file ---- */

static bool
graph(struct scan *scan, struct graph_file *file, const struct field *message)
{
    struct scan inner = enter(message);
    struct field field;
    while (next(&inner, &field)) {
        if (is(&field, GRAPH_NODE, WIRE_BYTES))
            file->node_count++;
        else if (is(&field, GRAPH_INITIALIZER, WIRE_BYTES) && !initializer(&inner, file, &field))
            break;
    }
    return leave(scan, &inner);
}

bool
graph_file_read(const void *bytes, size_t size, struct graph_file *file, char *room,
                size_t room_bytes)
{
    struct scan scan = {bytes, (const unsigned char *)bytes + size, NULL};
    struct field field;
    bool found = false;
    *file = (struct graph_file){0};
    while (scan.mistake == NULL && next(&scan, &field)) {
        if (is(&field, MODEL_GRAPH, WIRE_BYTES))
            found = graph(&scan, file, &field);
    }
    if (scan.mistake == NULL && !found)
        fails(&scan, "it has no graph");
    if (scan.mistake == NULL)
        return true;
    snprintf(room, room_bytes, "is not ONNX: %s, at byte %zu", scan.mistake,
             (size_t)(scan.at - (const unsigned char *)bytes));
    graph_file_free(file);
    return false;
}

void
graph_file_free(struct graph_file *file)
{
    free(file->apart);
    *file = (struct graph_file){0};
}
