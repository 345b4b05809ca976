/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON to a stream as it is told, in one line; keeps nothing but where a comma is due.
 * Strings are taken as UTF-8, what is none becomes U+FFFD: the output is always valid.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH_MAX = 16 };

struct json {
    FILE *out;
    unsigned depth;
    bool started[JSON_DEPTH_MAX]; /* something stands in this object or array already */
    bool after_key;
};

void json_init(struct json *json, FILE *out);

void json_object_begin(struct json *json);
void json_object_end(struct json *json);
void json_array_begin(struct json *json);
void json_array_end(struct json *json);
void json_key(struct json *json, const char *key);

void json_string(struct json *json, const char *text, size_t bytes);
void json_int(struct json *json, int64_t number);
void json_uint(struct json *json, uint64_t number);
/* The shortest digits that read back as the same number; NaN and infinities as strings, as
 * protobuf's JSON has them. */
void json_double(struct json *json, double number);
void json_float(struct json *json, float number);
void json_bool(struct json *json, bool truth);
void json_null(struct json *json);

/* A key and its value. */
void json_field_string(struct json *json, const char *key, const char *text);
void json_field_int(struct json *json, const char *key, int64_t number);
void json_field_uint(struct json *json, const char *key, uint64_t number);
void json_field_double(struct json *json, const char *key, double number);
void json_field_bool(struct json *json, const char *key, bool truth);

/* Length of the UTF-8 character at `text`, 1 to 4; 0 if there is none. */
size_t utf8_length(const unsigned char *text, size_t bytes);
