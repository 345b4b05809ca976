/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number_text.h"
#include "base/utf8.h"

/* ---- strings ---- */

static void
put_escape(struct bytes *out, unsigned char character, enum json_style style)
{
    /* from \b to \r */
    const char *letters = style == JSON_STYLE_UPPER ? "btn\0fr" : "\0tn\0\0r";
    char letter = 0;
    if (character == '"' || character == '\\')
        letter = (char)character;
    else if (character >= '\b' && character <= '\r')
        letter = letters[character - '\b'];
    char text[8];
    if (letter != 0 && style != JSON_STYLE_NUMERIC)
        snprintf(text, sizeof(text), "\\%c", letter);
    else
        snprintf(text, sizeof(text), style == JSON_STYLE_UPPER ? "\\u%04X" : "\\u%04x",
                 (unsigned)character);
    bytes_put_text(out, text);
}

/* Bytes from ' ' on that need no look: one comparison for each byte, as on the request path. */
static bool
is_plain(unsigned char character, enum json_style style)
{
    unsigned plain = (style >= JSON_STYLE_ANY ? 0x7f : 0x100) - 0x20;
    return character - 0x20u < plain && character != '"' && character != '\\';
}

static void
quote_rest(struct bytes *out, const char *text, size_t bytes, enum json_style style)
{
    size_t start = 0; /* of those not written yet */
    for (size_t i = 0; i < bytes; i++) {
        unsigned char character = (unsigned char)text[i];
        if (is_plain(character, style))
            continue;
        size_t length = character > 0x7f ? utf8_length(text + i, bytes - i) : 0;
        if (length > 0) {
            i += length - 1;
            continue;
        }
        bytes_put(out, text + start, i - start);
        start = i + 1;
        if (character > 0x7f)
            bytes_put_text(out, "\\ufffd");
        else
            put_escape(out, character, style);
    }
    bytes_put(out, text + start, bytes - start);
    bytes_put_char(out, '"');
}

void
json_quote(struct bytes *out, const char *text, size_t bytes, enum json_style style)
{
    size_t plain = 0;
    while (plain < bytes && is_plain((unsigned char)text[plain], style))
        plain++;
    char *to = bytes_reserve(out, plain + 2);
    if (to == NULL)
        return;
    to[0] = '"';
    memcpy(to + 1, text, plain);
    to[1 + plain] = '"';
    out->used += 1 + plain + (plain == bytes);
    if (plain < bytes)
        quote_rest(out, text + plain, bytes - plain, style);
}

/* ---- structure ---- */

struct json
json_begin(struct bytes *out, enum json_style style)
{
    return (struct json){out, out->used, style};
}

/* Puts a comma before a value or name unless it is the first in its object or array, or follows a
 * name. Only the last byte is looked at; a string ends with a quote. */
static void
put_comma(struct json *json)
{
    struct bytes *out = json->out;
    if (out->used == json->start || out->failed)
        return;
    char last = out->data[out->used - 1];
    if (last != '{' && last != '[' && last != ':' && last != ' ')
        bytes_put(out, ", ", json->style == JSON_STYLE_SPACED ? 2 : 1);
}

void
json_open(struct json *json, char bracket)
{
    put_comma(json);
    bytes_put_char(json->out, bracket);
}

void
json_close(struct json *json, char bracket)
{
    bytes_put_char(json->out, bracket);
}

void
json_name(struct json *json, const char *name)
{
    json_put_string(json, name);
    bytes_put(json->out, ": ", json->style == JSON_STYLE_SPACED ? 2 : 1);
}

/* ---- values ---- */

void
json_put_text(struct json *json, const char *text, size_t bytes)
{
    put_comma(json);
    json_quote(json->out, text, bytes, json->style);
}

void
json_put_string(struct json *json, const char *text)
{
    json_put_text(json, text, strlen(text));
}

void
json_put_raw(struct json *json, const char *value, size_t bytes)
{
    put_comma(json);
    bytes_put(json->out, value, bytes);
}

static void
put_word(struct json *json, const char *word)
{
    json_put_raw(json, word, strlen(word));
}

void
json_put_int(struct json *json, int64_t number)
{
    char room[NUMBER_ROOM];
    json_put_raw(json, room, number_text_int(room, number));
}

void
json_put_uint(struct json *json, uint64_t number)
{
    char room[NUMBER_ROOM];
    json_put_raw(json, room, number_text_uint(room, number));
}

static const char *
special_word(double number)
{
    return isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
}

void
json_put_double(struct json *json, double number)
{
    char room[NUMBER_ROOM];
    if (isfinite(number))
        number_text_double(room, number);
    put_word(json, isfinite(number) ? room : special_word(number));
}

void
json_put_float(struct json *json, float number)
{
    char room[NUMBER_ROOM];
    if (isfinite(number))
        number_text_float(room, number);
    put_word(json, isfinite(number) ? room : special_word((double)number));
}

void
json_put_bool(struct json *json, bool truth)
{
    put_word(json, truth ? "true" : "false");
}

void
json_put_null(struct json *json)
{
    put_word(json, "null");
}

/* ---- fields ---- */

void
json_field_open(struct json *json, const char *name, char bracket)
{
    json_name(json, name);
    json_open(json, bracket);
}

#define FIELD(kind, type)                                                                          \
    void json_field_##kind(struct json *json, const char *name, type value)                        \
    {                                                                                              \
        json_name(json, name);                                                                     \
        json_put_##kind(json, value);                                                              \
    }
FIELD(string, const char *)
FIELD(int, int64_t)
FIELD(uint, uint64_t)
FIELD(double, double)
FIELD(bool, bool)
