/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON to a stream in one line, keeping only whether a comma is due (json_put_comma needs
 * the last character, and a stream has no past). Strings are UTF-8; invalid bytes become U+FFFD, so
 * the output is always valid.
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
    bool started[JSON_DEPTH_MAX]; /* this object or array already has an element */
    bool after_key;
};

void json_init(struct json *json, FILE *out);

void json_object_begin(struct json *json);
void json_object_end(struct json *json);
void json_array_begin(struct json *json);
void json_array_end(struct json *json);
void json_key(struct json *json, const char *key);

void json_text(struct json *json, const char *text, size_t bytes);
void json_int(struct json *json, int64_t number);
void json_uint(struct json *json, uint64_t number);
/* The shortest digits that read back as the same number; NaN and infinities are strings, as in
 * protobuf's JSON. */
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
