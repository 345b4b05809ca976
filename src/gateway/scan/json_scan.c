/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/json_scan.h"

#include <jansson.h>
#include <string.h>

static const char cut_text[] = "the body is not JSON: it ends too early";
static const char no_object_text[] = "the body is not a JSON object";
static const char escape_text[] = "a member's name contains an escape: write it without";
static const char twice_text[] = "a member of the JSON object comes twice";

struct cursor {
    const char *at;
    const char *end;
};

static void
skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\n' ||
                                        *cursor->at == '\t' || *cursor->at == '\r'))
        cursor->at++;
}

/* Skips from the opening quote to behind the closing one. */
static bool
skip_string(struct cursor *cursor)
{
    const char *from = cursor->at + 1;
    for (;;) {
        const char *quote = memchr(from, '"', (size_t)(cursor->end - from));
        if (quote == NULL)
            return false;
        const char *before = quote;
        while (before > cursor->at + 1 && before[-1] == '\\')
            before--;
        from = quote + 1;
        if ((quote - before) % 2 == 0)
            break;
    }
    cursor->at = from;
    return true;
}

static bool
skip_nested(struct cursor *cursor)
{
    size_t depth = 0;
    while (cursor->at < cursor->end) {
        char byte = *cursor->at;
        if (byte == '"') {
            if (!skip_string(cursor))
                return false;
            continue;
        }
        depth += byte == '{' || byte == '[';
        depth -= byte == '}' || byte == ']';
        cursor->at++;
        if (depth == 0)
            return true;
    }
    return false;
}

/* The bytes that end a number or a word. */
static const char ends_scalar[] = {',', ':', '{', '}', '[', ']', '"', ' ', '\n', '\t', '\r'};

/* One value; false: there is none, or it does not end. */
static bool
skip_value(struct cursor *cursor, struct json_span *value)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end)
        return false;
    value->at = cursor->at;
    bool ends = true;
    if (*cursor->at == '"')
        ends = skip_string(cursor);
    else if (*cursor->at == '{' || *cursor->at == '[')
        ends = skip_nested(cursor);
    else
        while (cursor->at < cursor->end &&
               memchr(ends_scalar, *cursor->at, sizeof(ends_scalar)) == NULL)
            cursor->at++;
    value->bytes = (size_t)(cursor->at - value->at);
    return ends && value->bytes > 0;
}

/* Skips blanks and one of two bytes, which is returned; 0: neither. */
static char
skip_either(struct cursor *cursor, char one, char other)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || (*cursor->at != one && *cursor->at != other))
        return 0;
    return *cursor->at++;
}

/* A name that is escaped could be any: it is refused, because the server would see it. */
static const char *
note_member(struct json_member *members, size_t count, struct json_span name,
            struct json_span value)
{
    if (memchr(name.at, '\\', name.bytes) != NULL)
        return escape_text;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(members[i].name);
        if (name.bytes != bytes + 2 || memcmp(name.at + 1, members[i].name, bytes) != 0)
            continue;
        if (members[i].value.at != NULL)
            return twice_text;
        members[i].value = value;
    }
    return NULL;
}

const char *
json_scan_members(const char *text, size_t bytes, struct json_member *members, size_t count)
{
    struct cursor cursor = {text, text + bytes};
    for (size_t i = 0; i < count; i++)
        members[i].value = (struct json_span){NULL, 0};
    if (skip_either(&cursor, '{', '{') == 0)
        return no_object_text;
    char next = skip_either(&cursor, '}', '}') == 0 ? ',' : '}';
    while (next == ',') {
        struct json_span name;
        struct json_span value;
        skip_blanks(&cursor);
        if (cursor.at == cursor.end)
            return cut_text;
        if (*cursor.at != '"')
            return no_object_text;
        if (!skip_value(&cursor, &name) || skip_either(&cursor, ':', ':') == 0 ||
            !skip_value(&cursor, &value))
            return cut_text;
        const char *mistake = note_member(members, count, name, value);
        if (mistake != NULL)
            return mistake;
        next = skip_either(&cursor, ',', '}');
    }
    skip_blanks(&cursor);
    return next == 0 ? cut_text : cursor.at < cursor.end ? no_object_text : NULL;
}

bool
json_scan_next(struct json_span array, size_t *position, struct json_span *element)
{
    if (array.at == NULL || array.bytes < 2 || array.at[0] != '[')
        return false;
    struct cursor cursor = {array.at + *position, array.at + array.bytes};
    if (*position == 0)
        cursor.at++;
    else if (skip_either(&cursor, ',', ',') == 0)
        return false;
    if (!skip_value(&cursor, element))
        return false;
    *position = (size_t)(cursor.at - array.at);
    return true;
}

bool
json_scan_next_member(struct json_span object, size_t *position, struct json_span *name,
                      struct json_span *value)
{
    if (object.at == NULL || object.bytes < 2 || object.at[0] != '{')
        return false;
    struct cursor cursor = {object.at + *position, object.at + object.bytes};
    if (*position == 0)
        cursor.at++;
    else if (skip_either(&cursor, ',', ',') == 0)
        return false;
    if (!skip_value(&cursor, name) || name->at[0] != '"' || skip_either(&cursor, ':', ':') == 0 ||
        !skip_value(&cursor, value))
        return false;
    *position = (size_t)(cursor.at - object.at);
    return true;
}

bool
json_span_string(struct json_span value, struct json_span *inside)
{
    if (value.at == NULL || value.bytes < 2 || value.at[0] != '"')
        return false;
    *inside = (struct json_span){value.at + 1, value.bytes - 2};
    return true;
}

bool
json_span_decode(struct json_span value, struct bytes *out)
{
    json_t *read = json_loadb(value.at, value.bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool is_text = json_is_string(read);
    if (is_text)
        bytes_put(out, json_string_value(read), json_string_length(read));
    json_decref(read);
    return is_text && !out->failed;
}

bool
json_span_text(struct json_span value, struct bytes *room, struct json_span *text)
{
    if (!json_span_string(value, text))
        return false;
    if (memchr(text->at, '\\', text->bytes) == NULL)
        return true;
    room->used = 0;
    if (!json_span_decode(value, room))
        return false;
    *text = (struct json_span){room->data, room->used};
    return true;
}
