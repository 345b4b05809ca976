/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON for records: reading fields with errors that name them, and writing in one form: no blanks,
 * plain UTF-8, defaults omitted. A null field is absent.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"

/* ---- reading ---- */

/* Release the object with json_decref. INVALID_ARGUMENT: not JSON, not an object, a duplicate name,
 * or too long. */
enum status record_json_parse(const void *value, size_t bytes, json_t **object,
                              struct error *error);

/* Like record_json_parse(), for an object or an array. */
enum status record_json_load(const void *value, size_t bytes, json_t **found, struct error *error);

/* Each leaves `value` alone if the field is absent. */
enum status record_json_int(json_t *object, const char *field, int64_t *value, struct error *error);
/* Reads a number from 0 to `max`; a negative number is 0. */
enum status record_json_count(json_t *object, const char *field, uint64_t max, uint64_t *value,
                              struct error *error);
enum status record_json_bool(json_t *object, const char *field, bool *value, struct error *error);
/* The object's memory. */
enum status record_json_text(json_t *object, const char *field, const char **value,
                             struct error *error);
/* NULL: absent. */
enum status record_json_object(json_t *object, const char *field, json_t **value,
                               struct error *error);
enum status record_json_array(json_t *object, const char *field, json_t **value,
                              struct error *error);

/* "field: expected a number, not a string" */
enum status record_json_wrong(struct error *error, const char *field, const char *wanted,
                              json_t *value);

/* ---- writing: base/json.h in JSON_STYLE_UPPER, and ---- */

/* Replaces bytes that are not UTF-8 and truncates the text after `bytes_max` bytes, with a mark. */
void record_json_put_any_text(struct json *to, const char *text, size_t bytes_max);
/* Checks a complete value. INVALID_ARGUMENT: it is not UTF-8 and would not be JSON for others. */
enum status record_json_end(const struct json *to, struct error *error);
/* Writes the field as it is in the object (NULL: absent). */
enum status record_json_field_kept(struct json *to, const char *name, json_t *object,
                                   struct error *error);

/* NULL, "", 0 and false are omitted. */
void record_json_field_text(struct json *to, const char *name, const char *text);
void record_json_field_int(struct json *to, const char *name, int64_t number);
void record_json_field_bool(struct json *to, const char *name, bool value);

/* ---- unknown fields ---- */

/* A record's fields, in writing order. */
struct record_fields {
    const char *const *names;
    size_t count;
};

bool record_json_known(const struct record_fields *fields, const char *name);

/* A field of ours that is written among the unknown ones, in the order of names. */
struct record_own {
    const char *name;
    const char *json; /* NULL: it has its default */
};

/* Writes the members of `object` (NULL: none) that are not among the fields, and the `own` ones,
 * whose names are among the fields, sorted by name. */
enum status record_json_rest(struct json *to, json_t *object, const struct record_fields *fields,
                             const struct record_own *own, size_t own_count, struct error *error);

/* ---- one block of memory ---- */

/* The block's bytes after its struct, handed out from the front. */
struct record_block {
    char *at;
    size_t left;
};

/* Zeroed: a struct of `head` bytes followed by `bytes`. */
void *record_block_create(struct record_block *block, size_t head, size_t bytes);
const char *record_block_text(struct record_block *block, const char *text);
