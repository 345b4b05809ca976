/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_json_data.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "coordinator/protocol/oip_contents.h"

/* Any double needs far fewer; the library that parses them is not made for more. */
enum { NUMBER_BYTES_MAX = 400 };

enum { LENGTH_BYTES = sizeof(uint32_t), SHOWN_BYTES = 40 };
#define LEAF_UNKNOWN UINT32_MAX

struct json_data_reader {
    const struct oip_json_tensor *tensor;
    const struct json_run *run;
    const char *at;
    const char *end;
    unsigned char *to;
    uint64_t used;
    uint64_t room;
    uint64_t seen; /* elements so far */
    uint32_t leaf; /* the depth of the elements */
    struct error *error;
};

enum json_kind { KIND_NONE, KIND_BOOL, KIND_INTEGER, KIND_FLOAT, KIND_BYTES };

static const struct json_form {
    enum json_kind kind;
    int64_t min;
    uint64_t max;
} forms[SHOAL_DATATYPE_END] = {
    [SHOAL_BOOL] = {KIND_BOOL, 0, 1},
    [SHOAL_INT8] = {KIND_INTEGER, INT8_MIN, INT8_MAX},
    [SHOAL_INT16] = {KIND_INTEGER, INT16_MIN, INT16_MAX},
    [SHOAL_INT32] = {KIND_INTEGER, INT32_MIN, INT32_MAX},
    [SHOAL_INT64] = {KIND_INTEGER, INT64_MIN, INT64_MAX},
    [SHOAL_UINT8] = {KIND_INTEGER, 0, UINT8_MAX},
    [SHOAL_UINT16] = {KIND_INTEGER, 0, UINT16_MAX},
    [SHOAL_UINT32] = {KIND_INTEGER, 0, UINT32_MAX},
    [SHOAL_UINT64] = {KIND_INTEGER, 0, UINT64_MAX},
    [SHOAL_FP32] = {KIND_FLOAT, 0, 0},
    [SHOAL_FP64] = {KIND_FLOAT, 0, 0},
    [SHOAL_BYTES] = {KIND_BYTES, 0, 0},
};

/* ---- what can be wrong ---- */

#define REFUSE(reader, ...)                                                                        \
    ((void)error_set((reader)->error, STATUS_INVALID_ARGUMENT, __VA_ARGS__), false)

static bool
malformed(struct json_data_reader *reader)
{
    size_t place = (size_t)(reader->at - reader->run->text);
    if (reader->at < reader->end && (*reader->at == 'N' || *reader->at == 'I'))
        return REFUSE(reader, "element %llu: NaN and Infinity are not JSON: write them as strings",
                      (unsigned long long)reader->seen);
    return REFUSE(reader, "data is not JSON, seen at its byte %zu", place);
}

static bool
wrong_kind(struct json_data_reader *reader)
{
    const char *what = "a number";
    switch (*reader->at) {
    case '"': what = "a string"; break;
    case 't': what = "true"; break;
    case 'f': what = "false"; break;
    case 'n': what = "null"; break;
    case '{': what = "an object"; break;
    case '-': break;
    default:
        if (!isdigit((unsigned char)*reader->at))
            return malformed(reader);
    }
    return REFUSE(reader, "element %llu: %s is no %s", (unsigned long long)reader->seen, what,
                  oip_datatype_name(reader->tensor->datatype));
}

static bool
wrong_count(struct json_data_reader *reader, uint32_t depth, uint64_t count)
{
    const struct oip_json_tensor *tensor = reader->tensor;
    if (depth == 0 && (reader->leaf == 0 || tensor->rank == 0))
        return REFUSE(reader, "data has %llu elements, the shape %llu", (unsigned long long)count,
                      (unsigned long long)tensor->elements);
    return REFUSE(reader, "data has an array of %llu in dimension %u, which is %lld by the shape",
                  (unsigned long long)count, depth, (long long)tensor->shape[depth]);
}

/* ---- scalars ---- */

static void
store(struct json_data_reader *reader, const void *value, size_t bytes)
{
    CHECK(bytes <= reader->room - reader->used);
    if (bytes > 0)
        memcpy(reader->to + reader->used, value, bytes);
    reader->used += bytes;
}

static bool
read_word(struct json_data_reader *reader, const char *word)
{
    size_t bytes = strlen(word);
    if ((size_t)(reader->end - reader->at) < bytes || memcmp(reader->at, word, bytes) != 0)
        return false;
    reader->at += bytes;
    return true;
}

static const char *
digits_end(const char *at, const char *end)
{
    while (at < end && isdigit((unsigned char)*at))
        at++;
    return at;
}

/* Reads a number by JSON's grammar, copied and terminated; 0: there is none, and the error is set.
 */
static size_t
copy_number(struct json_data_reader *reader, char text[NUMBER_BYTES_MAX + 1], bool *integral)
{
    const char *end = reader->end;
    const char *at = reader->at + (*reader->at == '-');
    const char *digits = at;
    at = digits_end(at, end);
    bool good = at > digits && (at == digits + 1 || *digits != '0');
    *integral = true;
    if (good && at < end && *at == '.') {
        digits = at + 1;
        at = digits_end(digits, end);
        good = at > digits;
        *integral = false;
    }
    if (good && at < end && (*at == 'e' || *at == 'E')) {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        digits = at;
        at = digits_end(digits, end);
        good = at > digits;
        *integral = false;
    }
    size_t bytes = (size_t)(at - reader->at);
    if (!good) {
        (void)(bytes == 0 ? wrong_kind(reader) : malformed(reader));
        return 0;
    }
    if (bytes > NUMBER_BYTES_MAX) {
        (void)REFUSE(reader, "element %llu: a number of more than %d characters",
                     (unsigned long long)reader->seen, NUMBER_BYTES_MAX);
        return 0;
    }
    memcpy(text, reader->at, bytes);
    text[bytes] = '\0';
    return bytes;
}

static bool
out_of_range(struct json_data_reader *reader, const char *text)
{
    return REFUSE(reader, "element %llu, %.*s, is out of %s's range",
                  (unsigned long long)reader->seen, SHOWN_BYTES, text,
                  oip_datatype_name(reader->tensor->datatype));
}

/* Converts digits to a number; false: more than 64 bits. */
static bool
magnitude_of(const char *digits, uint64_t *magnitude)
{
    *magnitude = 0;
    for (; *digits != '\0'; digits++)
        if (__builtin_mul_overflow(*magnitude, UINT64_C(10), magnitude) ||
            __builtin_add_overflow(*magnitude, (uint64_t)(*digits - '0'), magnitude))
            return false;
    return true;
}

/* Writers without integers send 3 as "3.0". False: it has another fraction, or an exponent. */
static bool
cut_zeros(char *text)
{
    char *point = strchr(text, '.');
    bool is_whole = point != NULL && point[1 + strspn(point + 1, "0")] == '\0';
    if (is_whole)
        *point = '\0';
    return is_whole;
}

static bool
read_integer(struct json_data_reader *reader)
{
    char text[NUMBER_BYTES_MAX + 1];
    bool integral;
    size_t bytes = copy_number(reader, text, &integral);
    if (bytes == 0)
        return false;
    if (!integral && !cut_zeros(text))
        return REFUSE(reader, "element %llu: %.*s is no %s", (unsigned long long)reader->seen,
                      SHOWN_BYTES, text, oip_datatype_name(reader->tensor->datatype));
    const struct json_form *form = &forms[reader->tensor->datatype];
    bool negative = text[0] == '-';
    uint64_t magnitude;
    uint64_t limit = negative ? -(uint64_t)form->min : form->max;
    if (!magnitude_of(text + negative, &magnitude) || magnitude > limit)
        return out_of_range(reader, text);
    uint64_t bits = negative ? -magnitude : magnitude; /* two's complement, little-endian */
    store(reader, &bits, shoal_datatype_bytes(reader->tensor->datatype));
    reader->at += bytes;
    return true;
}

static bool
read_bool(struct json_data_reader *reader)
{
    unsigned char value = *reader->at == 't';
    if (isdigit((unsigned char)*reader->at) || *reader->at == '-')
        return read_integer(reader);
    if (!value && *reader->at != 'f')
        return wrong_kind(reader);
    if (!read_word(reader, value ? "true" : "false"))
        return malformed(reader);
    store(reader, &value, 1);
    return true;
}

static void
store_float(struct json_data_reader *reader, double value)
{
    float narrow = (float)value;
    if (reader->tensor->datatype == SHOAL_FP32)
        store(reader, &narrow, sizeof(narrow));
    else
        store(reader, &value, sizeof(value));
}

static bool
read_float_word(struct json_data_reader *reader)
{
    if (read_word(reader, "\"NaN\""))
        store_float(reader, NAN);
    else if (read_word(reader, "\"Infinity\""))
        store_float(reader, INFINITY);
    else if (read_word(reader, "\"-Infinity\""))
        store_float(reader, -INFINITY);
    else
        return wrong_kind(reader);
    return true;
}

static bool
read_float(struct json_data_reader *reader)
{
    char text[NUMBER_BYTES_MAX + 1];
    bool integral;
    if (*reader->at == '"')
        return read_float_word(reader);
    size_t bytes = copy_number(reader, text, &integral);
    if (bytes == 0)
        return false;
    /* not via a double: rounding twice rounds wrong */
    double value =
        reader->tensor->datatype == SHOAL_FP32 ? (double)strtof(text, NULL) : strtod(text, NULL);
    if (isinf(value))
        return out_of_range(reader, text);
    store_float(reader, value);
    reader->at += bytes;
    return true;
}

/* ---- strings ---- */

/* Returns whether the bytes between the quotes are the text itself: no escapes, nothing that JSON
 * forbids. */
static bool
is_plain(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == '\\')
            return false;
    return wire_text_ok((const unsigned char *)text, bytes);
}

/* Past the closing quote, or `end`. */
static const char *
quoted_end(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < end)
            at++;
    return at < end ? at + 1 : end;
}

static bool
store_text(struct json_data_reader *reader, const char *text, size_t bytes)
{
    if (bytes > UINT32_MAX)
        return REFUSE(reader, "element %llu has more than %u bytes",
                      (unsigned long long)reader->seen, UINT32_MAX);
    uint64_t start = reader->used;
    uint32_t length = (uint32_t)bytes;
    store(reader, &length, LENGTH_BYTES);
    if (!reader->tensor->base64) {
        store(reader, text, bytes);
        return true;
    }
    size_t decoded;
    CHECK(bytes <= reader->room - reader->used);
    if (!base64_decode(text, bytes, reader->to + reader->used, &decoded))
        return REFUSE(reader, "element %llu is not base64", (unsigned long long)reader->seen);
    length = (uint32_t)decoded;
    memcpy(reader->to + start, &length, LENGTH_BYTES);
    reader->used += decoded;
    return true;
}

static bool
read_string(struct json_data_reader *reader)
{
    if (*reader->at != '"')
        return wrong_kind(reader);
    const char *after = quoted_end(reader->at, reader->end);
    size_t quoted = (size_t)(after - reader->at);
    bool done;
    if (quoted >= 2 && after[-1] == '"' && is_plain(reader->at + 1, quoted - 2)) {
        done = store_text(reader, reader->at + 1, quoted - 2);
    } else {
        /* escapes are left to the library */
        json_error_t why;
        json_t *string = json_loadb(reader->at, quoted, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
        done = string != NULL
                   ? store_text(reader, json_string_value(string), json_string_length(string))
                   : REFUSE(reader, "element %llu is not a JSON string: %s",
                            (unsigned long long)reader->seen, why.text);
        json_decref(string);
    }
    reader->at = after;
    return done;
}

/* ---- arrays ---- */

static bool
read_scalar(struct json_data_reader *reader, uint32_t depth)
{
    const struct oip_json_tensor *tensor = reader->tensor;
    if (reader->leaf == LEAF_UNKNOWN && depth != 0 && depth + 1 != tensor->rank)
        return REFUSE(reader, "data is nested %u deep, the shape has %u dimensions", depth + 1,
                      tensor->rank);
    if (reader->leaf != LEAF_UNKNOWN && reader->leaf != depth)
        return REFUSE(reader, "data has elements at different depths");
    reader->leaf = depth;
    if (reader->seen == tensor->elements)
        return REFUSE(reader, "data has more elements than the shape, which has %llu",
                      (unsigned long long)tensor->elements);
    bool done = false;
    switch (forms[tensor->datatype].kind) {
    case KIND_BOOL: done = read_bool(reader); break;
    case KIND_INTEGER: done = read_integer(reader); break;
    case KIND_FLOAT: done = read_float(reader); break;
    case KIND_BYTES: done = read_string(reader); break;
    case KIND_NONE: UNREACHABLE(); /* oip_json_data_room */
    }
    reader->seen++;
    return done;
}

/* The next non-blank character, 0 at the end. */
static char
next(struct json_data_reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n' ||
                                        *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool
array_ends(struct json_data_reader *reader, uint32_t depth, uint64_t count)
{
    const struct oip_json_tensor *tensor = reader->tensor;
    reader->at++;
    bool flat = depth == 0 && (reader->leaf == 0 || count == 0);
    uint64_t wanted = flat || tensor->rank == 0 ? tensor->elements : (uint64_t)tensor->shape[depth];
    return count == wanted || wrong_count(reader, depth, count);
}

/* Goes no deeper than there are dimensions. */
static bool
read_array(struct json_data_reader *reader, uint32_t depth)
{
    reader->at++;
    uint64_t count = 0;
    char character = next(reader);
    if (character == ']')
        return array_ends(reader, depth, 0);
    for (;;) {
        if (character != '[') {
            if (character == '\0' ? !malformed(reader) : !read_scalar(reader, depth))
                return false;
        } else if (depth + 1 >= reader->tensor->rank || reader->leaf == depth) {
            return REFUSE(reader, "data is nested deeper than the shape's %u dimensions",
                          reader->tensor->rank);
        } else if (!read_array(reader, depth + 1)) {
            return false;
        }
        count++;
        character = next(reader);
        if (character == ']')
            return array_ends(reader, depth, count);
        if (character != ',')
            return malformed(reader);
        reader->at++;
        character = next(reader);
    }
}

enum status
oip_json_data_room(const struct json_run *run, const struct oip_json_tensor *tensor, uint64_t *room,
                   struct error *error)
{
    CHECK(tensor->datatype > 0 && tensor->datatype < SHOAL_DATATYPE_END);
    enum json_kind kind = forms[tensor->datatype].kind;
    if (kind == KIND_NONE)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s has no JSON form: send it as binary data (binary_data_size)",
                         oip_datatype_name(tensor->datatype));
    /* brackets around, a comma in between, at least one character each: "[1,1]" */
    if (tensor->elements > run->bytes / 2)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "data has fewer elements than the shape, which has %llu",
                         (unsigned long long)tensor->elements);
    /* a string's quotes are half of its four bytes of length */
    *room = kind == KIND_BYTES ? run->bytes + 2 * tensor->elements
                               : tensor->elements * shoal_datatype_bytes(tensor->datatype);
    return STATUS_OK;
}

enum status
oip_json_data_read(const struct json_run *run, const struct oip_json_tensor *tensor,
                   unsigned char *to, uint64_t *bytes, struct error *error)
{
    struct json_data_reader reader = {
        .tensor = tensor,
        .run = run,
        .at = run->text,
        .end = run->text + run->bytes,
        .leaf = LEAF_UNKNOWN,
        .error = error,
    };
    reader.to = to;
    enum status status = oip_json_data_room(run, tensor, &reader.room, error);
    if (status != STATUS_OK)
        return status;
    CHECK(run->bytes >= 2 && run->text[0] == '[');
    if (!read_array(&reader, 0))
        return error->status;
    if (reader.at != reader.end)
        return error_set(error, STATUS_INVALID_ARGUMENT, "data goes on after its end");
    if (reader.seen != tensor->elements)
        return error_set(error, STATUS_INVALID_ARGUMENT, "data has %llu elements, the shape %llu",
                         (unsigned long long)reader.seen, (unsigned long long)tensor->elements);
    *bytes = reader.used;
    return STATUS_OK;
}
