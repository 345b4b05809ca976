/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/datatype.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/number_text.h"
#include "base/utf8.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "elements travel as this machine has them");

static const struct datatype datatypes[] = {
    {"BOOL", KIND_BOOL, 1},   {"UINT8", KIND_UINT, 1},  {"UINT16", KIND_UINT, 2},
    {"UINT32", KIND_UINT, 4}, {"UINT64", KIND_UINT, 8}, {"INT8", KIND_INT, 1},
    {"INT16", KIND_INT, 2},   {"INT32", KIND_INT, 4},   {"INT64", KIND_INT, 8},
    {"FP16", KIND_FP16, 2},   {"FP32", KIND_FP32, 4},   {"FP64", KIND_FP64, 8},
    {"BYTES", KIND_BYTES, 0}, {"BF16", KIND_BF16, 2},
};

const struct datatype *
datatype_find(const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < ARRAY_COUNT(datatypes); i++)
        if (strlen(datatypes[i].name) == name_bytes &&
            memcmp(datatypes[i].name, name, name_bytes) == 0)
            return &datatypes[i];
    return NULL;
}

/* ---- 16-bit floats ---- */

enum {
    FP16_BIAS = 15,
    FP16_MANTISSA_BITS = 10,
    FP32_BIAS = 127,
    FP32_MANTISSA_BITS = 23,
};

static double
fp16_value(uint16_t bits)
{
    int exponent = bits >> FP16_MANTISSA_BITS & 0x1f;
    int mantissa = bits & 0x3ff;
    double value;
    if (exponent == 0x1f)
        value = mantissa != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - FP16_BIAS - FP16_MANTISSA_BITS);
    else
        value =
            ldexp(mantissa + (1 << FP16_MANTISSA_BITS), exponent - FP16_BIAS - FP16_MANTISSA_BITS);
    return bits & 0x8000 ? -value : value;
}

static double
bf16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

/*
 * Rounds to nearest, ties to even: the number is scaled until its last kept bit stands for 1, and
 * rounded there; a mantissa that rounds up to the next power of two carries into the exponent.
 */
static uint16_t
narrow(double value, int bias, int mantissa_bits)
{
    unsigned exponent_all = 2 * (unsigned)bias + 1;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(exponent_all << mantissa_bits);
    if (isnan(value))
        return infinity | (uint16_t)(1u << (mantissa_bits - 1));
    if (isinf(value))
        return sign | infinity;
    int power;
    frexp(value, &power);
    power--;
    if (value == 0 || power < 1 - bias)
        power = 1 - bias; /* zero and subnormal: the smallest exponent */
    unsigned long steps = (unsigned long)rint(ldexp(fabs(value), mantissa_bits - power));
    unsigned long bits = steps + ((unsigned long)(power + bias - 1) << mantissa_bits);
    return sign | (uint16_t)(bits < infinity ? bits : infinity);
}

/* ---- reading ---- */

static enum status
not_one(const struct datatype *type, const char *text, const char *why, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.40s\" %s %s", text, why, type->name);
}

static enum status
whole_read(const struct datatype *type, const char *text, unsigned char *element,
           struct error *error)
{
    unsigned bits = type->bytes * 8;
    char *end;
    uint64_t value;
    bool fits;
    errno = 0;
    if (type->kind == KIND_INT) {
        int64_t number = strtoll(text, &end, 0);
        int64_t most = INT64_MAX >> (64 - bits);
        fits = number >= -most - 1 && number <= most;
        value = (uint64_t)number;
    } else {
        value = strtoull(text, &end, 0);
        fits = strchr(text, '-') == NULL && value <= UINT64_MAX >> (64 - bits);
    }
    if (end == text || *end != '\0')
        return not_one(type, text, "is not", error);
    if (errno == ERANGE || !fits)
        return not_one(type, text, "is out of range for", error);
    memcpy(element, &value, type->bytes);
    return STATUS_OK;
}

static enum status
real_read(const struct datatype *type, const char *text, unsigned char *element,
          struct error *error)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0')
        return not_one(type, text, "is not", error);
    bool wanted = strpbrk(text, "nN") != NULL; /* inf and nan contain an n, numbers do not */
    float single = (float)value;
    uint16_t half = 0;
    bool fits = isfinite(value);
    switch (type->kind) {
    case KIND_FP32:
        single = strtof(text, &end); /* from the digits: rounds once, not twice */
        fits = isfinite(single);
        memcpy(element, &single, sizeof single);
        break;
    case KIND_FP16:
    case KIND_BF16:
        half = type->kind == KIND_FP16 ? narrow(value, FP16_BIAS, FP16_MANTISSA_BITS)
                                       : narrow(value, FP32_BIAS, FP32_MANTISSA_BITS - 16);
        fits = type->kind == KIND_FP16 ? isfinite(fp16_value(half)) : isfinite(bf16_value(half));
        memcpy(element, &half, sizeof half);
        break;
    default: memcpy(element, &value, sizeof value);
    }
    return fits || wanted ? STATUS_OK : not_one(type, text, "is out of range for", error);
}

enum status
element_read(const struct datatype *type, const char *text,
             unsigned char element[ELEMENT_BYTES_MAX], struct error *error)
{
    switch (type->kind) {
    case KIND_BOOL:
        element[0] = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
        if (element[0] == 0 && strcmp(text, "false") != 0 && strcmp(text, "0") != 0)
            return not_one(type, text, "is not", error);
        return STATUS_OK;
    case KIND_INT:
    case KIND_UINT: return whole_read(type, text, element, error);
    case KIND_BYTES: UNREACHABLE();
    default: return real_read(type, text, element, error);
    }
}

/* ---- writing ---- */

int64_t
element_int(const struct datatype *type, const unsigned char *element)
{
    unsigned spare = 64 - type->bytes * 8;
    return (int64_t)(element_uint(type, element) << spare) >> spare;
}

uint64_t
element_uint(const struct datatype *type, const unsigned char *element)
{
    uint64_t value = 0;
    memcpy(&value, element, type->bytes);
    return value;
}

static double
element_real(const struct datatype *type, const unsigned char *element)
{
    uint16_t half;
    double value;
    if (type->kind == KIND_FP64) {
        memcpy(&value, element, sizeof value);
        return value;
    }
    memcpy(&half, element, sizeof half);
    return type->kind == KIND_FP16 ? fp16_value(half) : bf16_value(half);
}

static float
element_float(const unsigned char *element)
{
    float value;
    memcpy(&value, element, sizeof value);
    return value;
}

void
text_print(const char *text, size_t bytes, FILE *out)
{
    const unsigned char *at = (const unsigned char *)text;
    putc('"', out);
    for (size_t length; bytes > 0; at += length, bytes -= length) {
        length = utf8_length(at, bytes);
        /* U+0080 to U+009F are control characters too. */
        bool control = length == 2 && at[0] == 0xc2 && at[1] < 0xa0;
        if (length == 0)
            length = 1;
        if (at[0] == '"' || at[0] == '\\')
            fprintf(out, "\\%c", at[0]);
        else if (control)
            fprintf(out, "\\x%02x\\x%02x", at[0], at[1]);
        else if (at[0] < 0x20 || at[0] == 0x7f || (length == 1 && at[0] >= 0x80))
            fprintf(out, "\\x%02x", at[0]);
        else
            fwrite(at, 1, length, out);
    }
    putc('"', out);
}

void
element_print(const struct datatype *type, const unsigned char *element, size_t bytes, FILE *out)
{
    char room[NUMBER_ROOM];
    switch (type->kind) {
    case KIND_BOOL: fputs(element[0] != 0 ? "true" : "false", out); return;
    case KIND_INT: fprintf(out, "%" PRId64, element_int(type, element)); return;
    case KIND_UINT: fprintf(out, "%" PRIu64, element_uint(type, element)); return;
    case KIND_BYTES: text_print((const char *)element, bytes, out); return;
    case KIND_FP32: number_text_float(room, element_float(element)); break;
    case KIND_FP16:
    case KIND_BF16: snprintf(room, sizeof room, "%.5g", element_real(type, element)); break;
    case KIND_FP64: number_text_double(room, element_real(type, element)); break;
    }
    fputs(room, out);
}

/* Bytes that are not UTF-8 become {"b64": "..."}: a JSON string cannot hold them. */
static void
base64_json(const unsigned char *data, size_t bytes, struct json *json)
{
    size_t length = base64_bytes(bytes);
    char *text = malloc(length + 1);
    CHECK(text != NULL);
    base64_encode(data, bytes, text);
    text[length] = '\0';
    json_open(json, '{');
    json_field_string(json, "b64", text);
    json_close(json, '}');
    free(text);
}

static void
bytes_json(const unsigned char *data, size_t bytes, struct json *json)
{
    if (utf8_is_text(data, bytes))
        json_put_text(json, (const char *)data, bytes);
    else
        base64_json(data, bytes, json);
}

void
element_json(const struct datatype *type, const unsigned char *element, size_t bytes,
             struct json *json)
{
    switch (type->kind) {
    case KIND_BOOL: json_put_bool(json, element[0] != 0); return;
    case KIND_INT: json_put_int(json, element_int(type, element)); return;
    case KIND_UINT: json_put_uint(json, element_uint(type, element)); return;
    case KIND_BYTES: bytes_json(element, bytes, json); return;
    case KIND_FP32: json_put_float(json, element_float(element)); return;
    case KIND_FP64: json_put_double(json, element_real(type, element)); return;
    case KIND_FP16:
    case KIND_BF16: json_put_float(json, (float)element_real(type, element)); return;
    }
}
