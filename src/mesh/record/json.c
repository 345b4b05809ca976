/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/record/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/number_text.h"
#include "base/utf8.h"
#include "mesh/record/large.h"
#include "mesh/record/record.h"

/* ---- reading ---- */

/* Parses again with the offending numbers wrapped. */
static json_t *
load_large(const void *value, size_t bytes, json_error_t *wrong)
{
    struct bytes wrapped = {0};
    json_t *root = NULL;
    if (large_wrap(value, bytes, &wrapped)) {
        CHECK(!wrapped.failed);
        root =
            json_loadb(wrapped.data, wrapped.used, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, wrong);
    }
    bytes_fini(&wrapped);
    return root;
}

enum status
record_json_load(const void *value, size_t bytes, json_t **found, struct error *error)
{
    json_error_t wrong;
    if (bytes > RECORD_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%zu bytes; at most %d are taken", bytes,
                         RECORD_BYTES_MAX);
    json_t *root = bytes == 0 ? NULL : json_loadb(value, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (root == NULL && bytes > 0 && json_error_code(&wrong) == json_error_numeric_overflow)
        root = load_large(value, bytes, &wrong);
    if (root == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "not JSON: %s at byte %d",
                         bytes == 0 ? "empty" : wrong.text, bytes == 0 ? 0 : wrong.position);
    *found = root;
    return STATUS_OK;
}

enum status
record_json_parse(const void *value, size_t bytes, json_t **object, struct error *error)
{
    json_t *root = NULL;
    if (record_json_load(value, bytes, &root, error) != STATUS_OK)
        return error->status;
    if (!json_is_object(root)) {
        json_decref(root);
        return error_set(error, STATUS_INVALID_ARGUMENT, "JSON, but not an object");
    }
    *object = root;
    return STATUS_OK;
}

static const char *
kind_name(json_t *value)
{
    if (large_is(value))
        return "a number beyond 64 bits";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "a number";
    case JSON_REAL: return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    case JSON_NULL: return "null";
    }
    UNREACHABLE();
}

enum status
record_json_wrong(struct error *error, const char *field, const char *wanted, json_t *value)
{
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s: expected %s, not %s", field, wanted,
                     kind_name(value));
}

static json_t *
get(json_t *object, const char *field)
{
    json_t *value = json_object_get(object, field);
    return json_is_null(value) ? NULL : value;
}

enum status
record_json_int(json_t *object, const char *field, int64_t *value, struct error *error)
{
    json_t *found = get(object, field);
    if (found == NULL)
        return STATUS_OK;
    if (!json_is_integer(found))
        return record_json_wrong(error, field, "a whole number", found);
    *value = json_integer_value(found);
    return STATUS_OK;
}

enum status
record_json_count(json_t *object, const char *field, uint64_t max, uint64_t *value,
                  struct error *error)
{
    int64_t number = (int64_t)*value;
    if (record_json_int(object, field, &number, error) != STATUS_OK)
        return error->status;
    *value = number < 0 ? 0 : (uint64_t)number;
    if (*value > max)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %lld is more than %llu", field,
                         (long long)number, (unsigned long long)max);
    return STATUS_OK;
}

enum status
record_json_bool(json_t *object, const char *field, bool *value, struct error *error)
{
    json_t *found = get(object, field);
    if (found == NULL)
        return STATUS_OK;
    if (!json_is_boolean(found))
        return record_json_wrong(error, field, "true or false", found);
    *value = json_is_true(found);
    return STATUS_OK;
}

enum status
record_json_text(json_t *object, const char *field, const char **value, struct error *error)
{
    json_t *found = get(object, field);
    if (found == NULL)
        return STATUS_OK;
    if (!json_is_string(found) || large_is(found))
        return record_json_wrong(error, field, "a string", found);
    *value = json_string_value(found);
    return STATUS_OK;
}

enum status
record_json_object(json_t *object, const char *field, json_t **value, struct error *error)
{
    *value = get(object, field);
    if (*value != NULL && !json_is_object(*value))
        return record_json_wrong(error, field, "an object", *value);
    return STATUS_OK;
}

enum status
record_json_array(json_t *object, const char *field, json_t **value, struct error *error)
{
    *value = get(object, field);
    if (*value != NULL && !json_is_array(*value))
        return record_json_wrong(error, field, "an array", *value);
    return STATUS_OK;
}

/* ---- writing ---- */

void
record_json_put_any_text(struct json *to, const char *text, size_t bytes_max)
{
    struct bytes clean = {0};
    const unsigned char *at = (const unsigned char *)text;
    size_t left = strlen(text);
    while (left > 0 && clean.used < bytes_max) {
        size_t bytes = utf8_length(at, left);
        if (bytes > 0)
            bytes_put(&clean, at, bytes);
        else
            bytes_put_text(&clean, "\xef\xbf\xbd");
        at += bytes == 0 ? 1 : bytes;
        left -= bytes == 0 ? 1 : bytes;
    }
    if (left > 0)
        bytes_put_text(&clean, "\xe2\x80\xa6");
    json_put_text(to, clean.used == 0 ? "" : clean.data, clean.used);
    bytes_fini(&clean);
}

enum status
record_json_end(const struct json *to, struct error *error)
{
    const struct bytes *out = to->out;
    CHECK(!out->failed);
    const unsigned char *data = (const unsigned char *)out->data;
    for (size_t at = to->start, bytes; at < out->used; at += bytes) {
        bytes = utf8_length(data + at, out->used - at);
        if (bytes == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "it contains a byte that is not UTF-8 (0x%02x)", data[at]);
    }
    return STATUS_OK;
}

/* Keeps a fraction a fraction, even if it is a whole number. */
static void
put_real(struct json *to, double number)
{
    char room[NUMBER_ROOM];
    number_text_double(room, number);
    json_put_double(to, number);
    if (strpbrk(room, ".e") == NULL)
        bytes_put_text(to->out, ".0");
}

static enum status put_value(struct json *to, json_t *value, unsigned depth, struct error *error);

static enum status
put_object(struct json *to, json_t *object, unsigned depth, struct error *error)
{
    json_t *members = object;
    json_open(to, '{');
    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        json_name(to, json_object_iter_key(at));
        if (put_value(to, json_object_iter_value(at), depth, error) != STATUS_OK)
            return error->status;
    }
    json_close(to, '}');
    return STATUS_OK;
}

static enum status
put_array(struct json *to, json_t *array, unsigned depth, struct error *error)
{
    json_open(to, '[');
    for (size_t i = 0; i < json_array_size(array); i++)
        if (put_value(to, json_array_get(array, i), depth, error) != STATUS_OK)
            return error->status;
    json_close(to, ']');
    return STATUS_OK;
}

static enum status
put_value(struct json *to, json_t *value, unsigned depth, struct error *error)
{
    if (depth > RECORD_DEPTH_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "nested deeper than %d", RECORD_DEPTH_MAX);
    switch (json_typeof(value)) {
    case JSON_OBJECT: return put_object(to, value, depth + 1, error);
    case JSON_ARRAY: return put_array(to, value, depth + 1, error);
    case JSON_STRING:
        if (large_is(value))
            large_put(to, value);
        else
            json_put_text(to, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER: json_put_int(to, json_integer_value(value)); break;
    case JSON_REAL: put_real(to, json_real_value(value)); break;
    case JSON_TRUE:
    case JSON_FALSE: json_put_bool(to, json_is_true(value)); break;
    case JSON_NULL: json_put_null(to); break;
    }
    return STATUS_OK;
}

/* Any value. INVALID_ARGUMENT: nested too deep. */
static enum status
record_json_put(struct json *to, json_t *value, struct error *error)
{
    return put_value(to, value, 0, error);
}

enum status
record_json_field_kept(struct json *to, const char *name, json_t *object, struct error *error)
{
    json_t *value = json_object_get(object, name);
    if (value == NULL)
        return STATUS_OK;
    json_name(to, name);
    if (record_json_put(to, value, error) != STATUS_OK)
        return error_prefix(error, "%s", name);
    return STATUS_OK;
}

void
record_json_field_text(struct json *to, const char *name, const char *text)
{
    if (text != NULL && text[0] != '\0')
        json_field_string(to, name, text);
}

void
record_json_field_int(struct json *to, const char *name, int64_t number)
{
    if (number != 0)
        json_field_int(to, name, number);
}

void
record_json_field_bool(struct json *to, const char *name, bool value)
{
    if (value)
        json_field_bool(to, name, true);
}

/* ---- unknown fields ---- */

bool
record_json_known(const struct record_fields *fields, const char *name)
{
    for (size_t i = 0; i < fields->count; i++)
        if (strcmp(fields->names[i], name) == 0)
            return true;
    return false;
}

/* One of the two. */
struct json_rest {
    const char *name;
    json_t *value;
    const char *json;
};

static int
compare_rest(const void *a, const void *b)
{
    const struct json_rest *one = a;
    const struct json_rest *other = b;
    return strcmp(one->name, other->name);
}

static size_t
collect(struct json_rest *rests, json_t *object, const struct record_fields *fields,
        const struct record_own *own, size_t own_count)
{
    json_t *members = object;
    size_t count = 0;
    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at))
        if (!record_json_known(fields, json_object_iter_key(at)))
            rests[count++] =
                (struct json_rest){json_object_iter_key(at), json_object_iter_value(at), NULL};
    for (size_t i = 0; i < own_count; i++) {
        CHECK(record_json_known(fields, own[i].name)); /* or a former value would stay beside it */
        if (own[i].json != NULL)
            rests[count++] = (struct json_rest){.name = own[i].name, .json = own[i].json};
    }
    return count;
}

enum status
record_json_rest(struct json *to, json_t *object, const struct record_fields *fields,
                 const struct record_own *own, size_t own_count, struct error *error)
{
    enum status status = STATUS_OK;
    struct json_rest *rests = calloc(json_object_size(object) + own_count + 1, sizeof(*rests));
    CHECK(rests != NULL);
    size_t count = collect(rests, object, fields, own, own_count);
    qsort(rests, count, sizeof(*rests), compare_rest);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        CHECK(i == 0 || strcmp(rests[i - 1].name, rests[i].name) < 0);
        json_name(to, rests[i].name);
        if (rests[i].json != NULL)
            json_put_raw(to, rests[i].json, strlen(rests[i].json));
        else if ((status = record_json_put(to, rests[i].value, error)) != STATUS_OK)
            error_prefix(error, "%s", rests[i].name);
    }
    free(rests);
    return status;
}

/* ---- one block of memory ---- */

void *
record_block_create(struct record_block *block, size_t head, size_t bytes)
{
    char *memory = calloc(1, head + bytes);
    CHECK(memory != NULL);
    *block = (struct record_block){memory + head, bytes};
    return memory;
}

const char *
record_block_text(struct record_block *block, const char *text)
{
    size_t bytes = strlen(text) + 1;
    CHECK(bytes <= block->left);
    char *copy = memcpy(block->at, text, bytes);
    block->at += bytes;
    block->left -= bytes;
    return copy;
}
