/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/number_text.h"

void
json_init(struct json *json, FILE *out)
{
    *json = (struct json){.out = out};
}

/* Before any value or key. */
static void
separate(struct json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->started[json->depth])
        fputs(", ", json->out);
    json->started[json->depth] = true;
}

static void
begin(struct json *json, char bracket)
{
    separate(json);
    CHECK(json->depth + 1 < JSON_DEPTH_MAX);
    putc(bracket, json->out);
    json->started[++json->depth] = false;
}

static void
end(struct json *json, char bracket)
{
    CHECK(json->depth > 0 && !json->after_key);
    json->depth--;
    putc(bracket, json->out);
}

void
json_object_begin(struct json *json)
{
    begin(json, '{');
}

void
json_object_end(struct json *json)
{
    end(json, '}');
}

void
json_array_begin(struct json *json)
{
    begin(json, '[');
}

void
json_array_end(struct json *json)
{
    end(json, ']');
}

/* ---- strings ---- */

size_t
utf8_length(const unsigned char *text, size_t bytes)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t length = 1; length <= 4 && length <= bytes; length++) {
        if ((text[0] & forms[length - 1].mask) != forms[length - 1].lead)
            continue;
        uint32_t point = text[0] & (unsigned char)~forms[length - 1].mask;
        for (size_t i = 1; i < length; i++) {
            if ((text[i] & 0xc0) != 0x80)
                return 0;
            point = point << 6 | (text[i] & 0x3f);
        }
        bool surrogate = point >= 0xd800 && point <= 0xdfff;
        return point >= forms[length - 1].least && point <= 0x10ffff && !surrogate ? length : 0;
    }
    return 0;
}

static void
character(FILE *out, const unsigned char *text, size_t length)
{
    switch (text[0]) {
    case '"': fputs("\\\"", out); return;
    case '\\': fputs("\\\\", out); return;
    case '\n': fputs("\\n", out); return;
    case '\r': fputs("\\r", out); return;
    case '\t': fputs("\\t", out); return;
    default: break;
    }
    if (text[0] < 0x20 || text[0] == 0x7f)
        fprintf(out, "\\u%04x", text[0]);
    else
        fwrite(text, 1, length, out);
}

static void
quoted(FILE *out, const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    putc('"', out);
    while (bytes > 0) {
        size_t length = utf8_length(at, bytes);
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else {
            character(out, at, length);
        }
        at += length;
        bytes -= length;
    }
    putc('"', out);
}

void
json_key(struct json *json, const char *key)
{
    separate(json);
    quoted(json->out, key, strlen(key));
    fputs(": ", json->out);
    json->after_key = true;
}

void
json_string(struct json *json, const char *text, size_t bytes)
{
    separate(json);
    quoted(json->out, text, bytes);
}

/* ---- numbers ---- */

static bool
special(struct json *json, double number)
{
    if (isfinite(number))
        return false;
    const char *text = isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    fputs(text, json->out);
    return true;
}

void
json_double(struct json *json, double number)
{
    char room[NUMBER_ROOM];
    separate(json);
    if (special(json, number))
        return;
    number_text_double(room, number);
    fputs(room, json->out);
}

void
json_float(struct json *json, float number)
{
    char room[NUMBER_ROOM];
    separate(json);
    if (special(json, (double)number))
        return;
    number_text_float(room, number);
    fputs(room, json->out);
}

void
json_int(struct json *json, int64_t number)
{
    separate(json);
    fprintf(json->out, "%" PRId64, number);
}

void
json_uint(struct json *json, uint64_t number)
{
    separate(json);
    fprintf(json->out, "%" PRIu64, number);
}

void
json_bool(struct json *json, bool truth)
{
    separate(json);
    fputs(truth ? "true" : "false", json->out);
}

void
json_null(struct json *json)
{
    separate(json);
    fputs("null", json->out);
}

/* ---- fields ---- */

void
json_field_string(struct json *json, const char *key, const char *text)
{
    json_key(json, key);
    json_string(json, text, strlen(text));
}

void
json_field_int(struct json *json, const char *key, int64_t number)
{
    json_key(json, key);
    json_int(json, number);
}

void
json_field_uint(struct json *json, const char *key, uint64_t number)
{
    json_key(json, key);
    json_uint(json, number);
}

void
json_field_double(struct json *json, const char *key, double number)
{
    json_key(json, key);
    json_double(json, number);
}

void
json_field_bool(struct json *json, const char *key, bool truth)
{
    json_key(json, key);
    json_bool(json, truth);
}
