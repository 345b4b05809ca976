/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/checked.h"

void
tensor_free(struct ctl_tensor *tensor)
{
    free(tensor->name);
    free(tensor->data);
    free(tensor->row_ends);
    *tensor = (struct ctl_tensor){0};
}

static void
append(struct ctl_tensor *tensor, const void *data, size_t bytes)
{
    enum { ROOM_FIRST = 64 };
    if (bytes > tensor->room - tensor->bytes) {
        size_t room = tensor->room > 0 ? tensor->room : ROOM_FIRST;
        while (room - tensor->bytes < bytes)
            room *= 2;
        tensor->data = realloc(tensor->data, room);
        CHECK(tensor->data != NULL);
        tensor->room = room;
    }
    if (bytes > 0)
        memcpy(tensor->data + tensor->bytes, data, bytes);
    tensor->bytes += bytes;
}

void
tensor_append(struct ctl_tensor *tensor, const void *element, size_t bytes)
{
    if (tensor->type->kind == KIND_BYTES) {
        uint32_t length = (uint32_t)bytes;
        append(tensor, &length, sizeof length);
    }
    append(tensor, element, bytes);
}

bool
shape_elements(const int64_t *shape, uint32_t rank, uint64_t *elements)
{
    *elements = 1;
    bool fits = true;
    bool zero = false;
    for (uint32_t i = 0; i < rank; i++) {
        zero = zero || shape[i] == 0;
        if (shape[i] > 0)
            fits = mul_ok(*elements, (uint64_t)shape[i], elements) && fits;
    }
    if (zero)
        *elements = 0;
    return fits || zero;
}

void
shape_text(char *room, size_t room_bytes, const int64_t *shape, uint32_t rank)
{
    size_t used = (size_t)snprintf(room, room_bytes, "[");
    for (uint32_t i = 0; i < rank && used < room_bytes; i++)
        used += (size_t)snprintf(room + used, room_bytes - used, "%s%" PRId64, i > 0 ? "," : "",
                                 shape[i]);
    if (used < room_bytes)
        snprintf(room + used, room_bytes - used, "]");
}

/* Returns true if `data` holds exactly `count` elements. */
static bool
holds(const struct ctl_tensor *tensor, uint64_t count)
{
    uint64_t bytes;
    if (tensor->type->kind != KIND_BYTES)
        return mul_ok(count, tensor->type->bytes, &bytes) && bytes == tensor->bytes;
    size_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t length;
        if (!range_ok(at, sizeof length, tensor->bytes))
            return false;
        memcpy(&length, tensor->data + at, sizeof length);
        at += sizeof length;
        if (!range_ok(at, length, tensor->bytes))
            return false;
        at += length;
    }
    return at == tensor->bytes;
}

enum status
tensor_validate(const struct ctl_tensor *tensor, struct error *error)
{
    char shape[256];
    uint64_t count;
    shape_text(shape, sizeof shape, tensor->shape, tensor->rank);
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < 0)
            return error_set(error, STATUS_DATA_LOSS, "tensor %.64s has the shape %s", tensor->name,
                             shape);
    if (!shape_elements(tensor->shape, tensor->rank, &count) || !holds(tensor, count))
        return error_set(error, STATUS_DATA_LOSS, "tensor %.64s: %zu bytes are not %s%s",
                         tensor->name, tensor->bytes, tensor->type->name, shape);
    return STATUS_OK;
}

/* The element at *offset, which is advanced. */
static const unsigned char *
tensor_next(const struct ctl_tensor *tensor, size_t *offset, size_t *bytes)
{
    const unsigned char *element = tensor->data + *offset;
    if (tensor->type->kind == KIND_BYTES) {
        uint32_t length;
        memcpy(&length, element, sizeof length);
        *bytes = length;
        *offset += sizeof length + length;
        element += sizeof length;
    } else {
        *bytes = tensor->type->bytes;
        *offset += *bytes;
    }
    CHECK(*offset <= tensor->bytes); /* tensor_validate has judged it */
    return element;
}

enum { COLUMNS_SHOWN = 16, ROWS_SHOWN = 8 };

/* Prints the last dimension as one line. */
void
tensor_print(const struct ctl_tensor *tensor, enum tensor_detail detail, FILE *out)
{
    char shape[256];
    uint64_t count;
    shape_text(shape, sizeof shape, tensor->shape, tensor->rank);
    CHECK(shape_elements(tensor->shape, tensor->rank, &count));
    text_print(tensor->name, strlen(tensor->name), out);
    fprintf(out, "  %s%s", tensor->type->name, shape);
    const bool full = detail == TENSOR_FULL;
    uint64_t columns = tensor->rank > 0 ? (uint64_t)tensor->shape[tensor->rank - 1] : 1;
    uint64_t rows = columns > 0 ? count / columns : 0;
    uint64_t rows_shown = full || rows <= ROWS_SHOWN ? rows : ROWS_SHOWN;
    size_t offset = 0;
    for (uint64_t row = 0; row < rows_shown; row++) {
        fputs(rows > 1 || columns > 1 ? "\n   " : " ", out);
        for (uint64_t column = 0; column < columns; column++) {
            size_t bytes;
            const unsigned char *element = tensor_next(tensor, &offset, &bytes);
            if (!full && column >= COLUMNS_SHOWN)
                continue;
            putc(' ', out);
            element_print(tensor->type, element, bytes, out);
        }
        if (!full && columns > COLUMNS_SHOWN)
            fprintf(out, " … %" PRIu64 " more", columns - COLUMNS_SHOWN);
    }
    if (rows_shown < rows)
        fprintf(out, "\n    … %" PRIu64 " more rows; --full shows all", rows - rows_shown);
    putc('\n', out);
}

void
tensor_json(const struct ctl_tensor *tensor, struct json *json)
{
    json_open(json, '[');
    for (size_t offset = 0; offset < tensor->bytes;) {
        size_t bytes;
        const unsigned char *element = tensor_next(tensor, &offset, &bytes);
        element_json(tensor->type, element, bytes, json);
    }
    json_close(json, ']');
}
