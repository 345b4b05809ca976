/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/json.h"

#include <errno.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/number_text.h"

static const char *const field_names[ETCD_FIELDS] = {
#define FIELD(id, name) [ETCD_FIELD_##id] = (name),
#include "mesh/etcd/fields.def"
#undef FIELD
};

/* ---- writing ---- */

struct json
etcd_json_begin(struct bytes *out)
{
    struct json json = json_begin(out, JSON_STYLE_NUMERIC);
    json_open(&json, '{');
    return json;
}

void
etcd_put_field(struct json *json, enum etcd_field field)
{
    json_name(json, field_names[field]);
}

void
etcd_put_int(struct json *json, enum etcd_field field, int64_t number)
{
    char text[NUMBER_ROOM];
    number_text_int(text, number);
    etcd_put_text(json, field, text);
}

void
etcd_put_true(struct json *json, enum etcd_field field)
{
    json_field_bool(json, field_names[field], true);
}

void
etcd_put_bytes(struct json *json, enum etcd_field field, struct etcd_bytes data)
{
    size_t length = base64_bytes(data.bytes);
    json_name(json, field_names[field]);
    bytes_put_char(json->out, '"');
    char *to = bytes_reserve(json->out, length);
    CHECK(to != NULL);
    base64_encode(data.data, data.bytes, to);
    json->out->used += length;
    bytes_put_char(json->out, '"');
}

void
etcd_put_text(struct json *json, enum etcd_field field, const char *text)
{
    json_field_string(json, field_names[field], text);
}

/* ---- reading ---- */

const json_t *
etcd_get(const json_t *object, enum etcd_field field)
{
    const json_t *value = json_object_get(object, field_names[field]);
    return json_is_null(value) ? NULL : value; /* which protobuf's JSON treats as the default */
}

bool
etcd_get_int(const json_t *object, enum etcd_field field, int64_t *number)
{
    const json_t *value = etcd_get(object, field);
    *number = 0;
    if (value == NULL)
        return true;
    if (json_is_integer(value)) {
        *number = json_integer_value(value);
        return true;
    }
    const char *text = json_string_value(value);
    if (text == NULL)
        return false;
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

bool
etcd_get_uint(const json_t *object, enum etcd_field field, uint64_t *number)
{
    const json_t *value = etcd_get(object, field);
    *number = 0;
    if (value == NULL)
        return true;
    if (json_is_integer(value)) {
        *number = (uint64_t)json_integer_value(value);
        return json_integer_value(value) >= 0;
    }
    const char *text = json_string_value(value);
    if (text == NULL)
        return false;
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

bool
etcd_get_bool(const json_t *object, enum etcd_field field, bool *value)
{
    const json_t *found = etcd_get(object, field);
    *value = json_is_true(found);
    return found == NULL || json_is_boolean(found);
}

bool
etcd_get_bytes(const json_t *object, enum etcd_field field, struct bump *arena,
               struct etcd_bytes *data)
{
    const json_t *value = etcd_get(object, field);
    *data = (struct etcd_bytes){0};
    if (value == NULL)
        return true;
    const char *text = json_string_value(value);
    if (text == NULL)
        return false;
    size_t length = json_string_length(value);
    unsigned char *to = bump_take_zeroed(arena, length / 4 * 3 + 1);
    data->data = to;
    return base64_decode(text, length, to, &data->bytes);
}

const char *
etcd_get_text(const json_t *object, enum etcd_field field)
{
    const char *text = json_string_value(etcd_get(object, field));
    return text == NULL ? "" : text;
}
