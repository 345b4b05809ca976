/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one writer of JSON: appends to a buffer and inserts commas as needed. Running out of memory
 * sets the buffer's `failed`. Any thread; the buffer is the caller's.
 *
 *     struct json json = json_begin(&buffer, JSON_STYLE_ANY);
 *     json_open(&json, '{');
 *     json_field_int(&json, "limit", 5);
 *     json_close(&json, '}');
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

/* JSON allows several escapes for one character. Each format keeps the one it began with, since
 * others compare its bytes. Quotes and backslashes are \" and \\ unless it says otherwise. */
enum json_style {
    JSON_STYLE_SHORT,   /* \n \r \t, \u00xx in lower case for other control characters */
    JSON_STYLE_UPPER,   /* \b \f \n \r \t, \u00XX in upper case */
    JSON_STYLE_NUMERIC, /* \u00xx in lower case for all, including \u0022 and \u005c */
    JSON_STYLE_ANY,     /* as SHORT, and \u007f; bytes that are not UTF-8 become \ufffd */
    JSON_STYLE_SPACED,  /* as ANY, with a blank after each comma and colon */
};

struct json {
    struct bytes *out;
    size_t start; /* of what this writer has written */
    enum json_style style;
};

/* Appends to `out`, with no comma before its first value. */
struct json json_begin(struct bytes *out, enum json_style style);

/* `bracket`: { or [, and } or ]. */
void json_open(struct json *json, char bracket);
void json_close(struct json *json, char bracket);
/* A value must follow. */
void json_name(struct json *json, const char *name);

/* UTF-8, except with JSON_STYLE_ANY and JSON_STYLE_SPACED; it may contain NULs. */
void json_put_text(struct json *json, const char *text, size_t bytes);
void json_put_string(struct json *json, const char *text);
void json_put_int(struct json *json, int64_t number);
void json_put_uint(struct json *json, uint64_t number);
/* The shortest digits that read back as the same number; NaN and infinities are strings, as in
 * protobuf's JSON. */
void json_put_double(struct json *json, double number);
void json_put_float(struct json *json, float number);
/* Appends one whole value that is JSON already, such as `true`. */
void json_put_raw(struct json *json, const char *value, size_t bytes);
void json_put_bool(struct json *json, bool truth);
void json_put_null(struct json *json);

/* A name and its value, or the start of it. */
void json_field_open(struct json *json, const char *name, char bracket);
void json_field_string(struct json *json, const char *name, const char *text);
void json_field_int(struct json *json, const char *name, int64_t number);
void json_field_uint(struct json *json, const char *name, uint64_t number);
void json_field_double(struct json *json, const char *name, double number);
void json_field_bool(struct json *json, const char *name, bool truth);

/* Appends the text with quotes and nothing else. */
void json_quote(struct bytes *out, const char *text, size_t bytes, enum json_style style);
