/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON for records: reading fields with errors that name them, and writing in one form: no blanks,
 * UTF-8 as it is, what has its default left out. A field that is null is not there.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

/* ---- reading ---- */

/* To be given to json_decref. Not JSON, not an object, a name twice, too long: INVALID_ARGUMENT. */
enum status record_json_parse(const void *value, size_t bytes, json_t **object,
                              struct error *error);

/* The same of any value: an object or an array. */
enum status record_json_load(const void *value, size_t bytes, json_t **found, struct error *error);

/* Each leaves `value` alone if the field is not there. */
enum status record_json_int(json_t *object, const char *field, int64_t *value, struct error *error);
/* From 0 to `max`; a lesser number is 0. */
enum status record_json_count(json_t *object, const char *field, uint64_t max, uint64_t *value,
                              struct error *error);
enum status record_json_bool(json_t *object, const char *field, bool *value, struct error *error);
/* The object's memory. */
enum status record_json_text(json_t *object, const char *field, const char **value,
                             struct error *error);
/* NULL: it is not there. */
enum status record_json_object(json_t *object, const char *field, json_t **value,
                               struct error *error);
enum status record_json_array(json_t *object, const char *field, json_t **value,
                              struct error *error);

/* "field: a number is wanted, not a text" */
enum status record_json_wrong(struct error *error, const char *field, const char *wanted,
                              json_t *value);

/* ---- writing ---- */

/* `,"name":` or `"name":`, whatever stands before. */
void record_json_name(struct bytes *to, const char *name);
void record_json_put_text(struct bytes *to, const char *text, size_t bytes);
/* Replaces bytes that are not UTF-8, and cuts the text after so many bytes, with a sign that it was
 * cut. */
void record_json_put_any_text(struct bytes *to, const char *text, size_t bytes_max);
/* When all of a value is there. INVALID_ARGUMENT: it is no UTF-8, and would be no JSON for others.
 */
enum status record_json_end(const struct bytes *to, size_t start, struct error *error);
void record_json_put_int(struct bytes *to, int64_t number);
/* Any value. INVALID_ARGUMENT: it is nested too deep. */
enum status record_json_put(struct bytes *to, json_t *value, struct error *error);
/* As it is in the object (NULL: in none). */
enum status record_json_field_kept(struct bytes *to, const char *name, json_t *object,
                                   struct error *error);

/* Nothing is written for NULL, "", 0, false. */
void record_json_field_text(struct bytes *to, const char *name, const char *text);
void record_json_field_int(struct bytes *to, const char *name, int64_t number);
void record_json_field_bool(struct bytes *to, const char *name, bool value);

/* ---- what is not known ---- */

/* A record's fields, in the order in which they are written. */
struct record_fields {
    const char *const *names;
    size_t count;
};

bool record_json_known(const struct record_fields *fields, const char *name);

/* A field that is written among those nobody knows, in the order of their names. */
struct record_own {
    const char *name;
    const char *json; /* NULL: it has its default */
};

/* The members of `object` (NULL: none) that are not among the fields, and `own` ones, which are
 * named there too, sorted by name. */
enum status record_json_rest(struct bytes *to, json_t *object, const struct record_fields *fields,
                             const struct record_own *own, size_t own_count, struct error *error);

/* ---- one block of memory ---- */

/* The block's bytes after its struct, given out from the front. */
struct record_block {
    char *at;
    size_t left;
};

/* Zeroed: a struct of `head` bytes, and so many more. */
void *record_block_create(struct record_block *block, size_t head, size_t bytes);
const char *record_block_text(struct record_block *block, const char *text);
