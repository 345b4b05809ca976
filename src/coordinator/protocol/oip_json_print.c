/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/json.h"
#include "base/number_text.h"
#include "base/utf8.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_json_data.h"

/* The piece copied from the contents at a time; a whole number of elements of any type. */
enum { CHUNK_BYTES = 4096 };

enum { LENGTH_BYTES = sizeof(uint32_t), ROOM = NUMBER_ROOM + 4 };

/* ---- strings ---- */

static enum status
put_element(struct bytes *out, const char *text, size_t bytes, uint64_t index, bool base64,
            struct error *error)
{
    if (base64) {
        bytes_put_char(out, '"');
        char *to = bytes_reserve(out, base64_bytes(bytes));
        if (to != NULL) {
            base64_encode((const unsigned char *)text, bytes, to);
            out->used += base64_bytes(bytes);
        }
        bytes_put_char(out, '"');
        return STATUS_OK;
    }
    if (!utf8_is_text(text, bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "element %llu is not UTF-8, which JSON requires: ask for binary data "
                         "(parameter binary_data_output, or binary_data of the output)",
                         (unsigned long long)index);
    json_quote(out, text, bytes, JSON_STYLE_SHORT);
    return STATUS_OK;
}

static enum status
put_strings(struct bytes *out, struct wire_cursor contents, bool base64, struct error *error)
{
    struct bytes element = {0}; /* a copy: the bytes judged are the bytes written */
    enum status status = STATUS_OK;
    for (uint64_t i = 0; status == STATUS_OK && contents.left > 0; i++) {
        uint32_t length = 0;
        if (contents.left >= LENGTH_BYTES)
            wire_read(&contents, &length, LENGTH_BYTES);
        else
            length = UINT32_MAX;
        if (length > contents.left) {
            status = error_set(error, STATUS_INTERNAL, "its BYTES are cut short at element %llu",
                               (unsigned long long)i);
            break;
        }
        element.used = 0;
        char *room = bytes_reserve(&element, length);
        if (room == NULL) {
            status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to write the answer");
            break;
        }
        wire_read(&contents, room, length);
        if (i > 0)
            bytes_put_char(out, ',');
        status = put_element(out, room, length, i, base64, error);
    }
    bytes_fini(&element);
    return status;
}

/* ---- numbers ---- */

static int64_t
signed_at(const unsigned char *data, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, data, bytes);
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return (int64_t)(bits << unused) >> unused;
}

static uint64_t
unsigned_at(const unsigned char *data, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, data, bytes);
    return bits;
}

static size_t
copy_word(char *to, const char *word)
{
    size_t bytes = strlen(word);
    memcpy(to, word, bytes + 1);
    return bytes;
}

/* A float must look like one: 3 is written 3.0. */
static size_t
print_float(char room[ROOM], const unsigned char *data, size_t bytes)
{
    double value;
    float narrow;
    if (bytes == sizeof(narrow)) {
        memcpy(&narrow, data, sizeof(narrow));
        value = (double)narrow;
    } else {
        memcpy(&value, data, sizeof(value));
        narrow = 0;
    }
    if (isnan(value))
        return copy_word(room, "\"NaN\"");
    if (isinf(value))
        return copy_word(room, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    if (bytes == sizeof(narrow))
        number_text_float(room, narrow);
    else
        number_text_double(room, value);
    size_t length = strlen(room);
    return strpbrk(room, ".e") != NULL ? length : length + copy_word(room + length, ".0");
}

static size_t
print_number(char room[ROOM], uint32_t datatype, const unsigned char *data, size_t bytes)
{
    switch (datatype) {
    case SHOAL_BOOL: return copy_word(room, *data != 0 ? "true" : "false");
    case SHOAL_FP32:
    case SHOAL_FP64: return print_float(room, data, bytes);
    case SHOAL_INT8:
    case SHOAL_INT16:
    case SHOAL_INT32:
    case SHOAL_INT64: return number_text_int(room, signed_at(data, bytes));
    default: return number_text_uint(room, unsigned_at(data, bytes));
    }
}

static void
put_numbers(struct bytes *out, struct wire_cursor contents, uint32_t datatype)
{
    size_t element = shoal_datatype_bytes(datatype);
    unsigned char chunk[CHUNK_BYTES];
    char room[ROOM];
    bool first = true;
    while (contents.left >= element && !out->failed) {
        size_t bytes = contents.left < sizeof(chunk) ? (size_t)contents.left : sizeof(chunk);
        bytes -= bytes % element;
        wire_read(&contents, chunk, bytes);
        for (size_t at = 0; at < bytes; at += element) {
            if (!first)
                bytes_put_char(out, ',');
            first = false;
            bytes_put(out, room, print_number(room, datatype, chunk + at, element));
        }
    }
}

enum status
oip_json_data_write(struct bytes *out, struct wire_cursor contents,
                    const struct oip_json_tensor *tensor, struct error *error)
{
    CHECK(tensor->datatype > 0 && tensor->datatype < SHOAL_DATATYPE_END);
    if (tensor->datatype == SHOAL_FP16 || tensor->datatype == SHOAL_BF16)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s has no JSON form: ask for binary data (parameter binary_data_output, "
                         "or binary_data of the output)",
                         oip_datatype_name(tensor->datatype));
    bytes_put_char(out, '[');
    enum status status = STATUS_OK;
    if (tensor->datatype == SHOAL_BYTES)
        status = put_strings(out, contents, tensor->base64, error);
    else
        put_numbers(out, contents, tensor->datatype);
    bytes_put_char(out, ']');
    return status;
}
