/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer of JSON. Strings: every byte in each style against the bytes that formats have
 * promised; random texts against a writer that looks at one character at a time; characters of
 * UTF-8 against their code points. Commas come where JSON wants them, also in a buffer that holds
 * something already. Numbers read back as the same numbers.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/json.h"
#include "base/number_text.h"
#include "base/utf8.h"

enum { TEXT_MAX = 64, ROUNDS = 20000 };

/* ---- UTF-8 ---- */

static size_t
encode(uint32_t point, unsigned char *to)
{
    if (point < 0x80) {
        to[0] = (unsigned char)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, point >>= 6)
        to[i] = (unsigned char)(0x80 | (point & 0x3f));
    to[0] = (unsigned char)((0xf00u >> length & 0xff) | point);
    return length;
}

/* All of at most four bytes: the code points' encodings and nothing else. */
TEST_CASE(characters_are_those_of_code_points)
{
    unsigned char text[4];
    for (uint32_t point = 0; point <= 0x10ffff; point++) {
        size_t length = encode(point, text);
        bool surrogate = point >= 0xd800 && point < 0xe000;
        assert_int_equal(utf8_length(text, length), surrogate ? 0 : length);
        assert_int_equal(utf8_length(text, length - 1), 0);
    }
    assert_int_equal(utf8_length("\xc1\xbf", 2), 0);
    assert_int_equal(utf8_length("\xe0\x9f\xbf", 3), 0);
    assert_int_equal(utf8_length("\xf0\x8f\xbf\xbf", 4), 0);
    assert_int_equal(utf8_length("\xf4\x90\x80\x80", 4), 0);
    assert_int_equal(utf8_length("\xf5\x80\x80\x80", 4), 0);
    assert_int_equal(utf8_length("\x80", 1), 0);
    assert_true(utf8_is_text("", 0) && utf8_is_text("a\0\xc3\xa9", 4));
    assert_false(utf8_is_text("a\xc3", 2) || utf8_is_text("\x80"
                                                          "a",
                                                          2));
    assert_int_equal(utf8_length("\xe2\x82"
                                 "a",
                                 3),
                     0);
}

/* ---- strings ---- */

static void
model_character(const unsigned char *at, size_t length, enum json_style style, char *to)
{
    static const char shorts[] = "\b\f\n\r\t";
    const char *known = style == JSON_STYLE_UPPER ? shorts : "\n\r\t";
    bool is_short = length == 1 && at[0] != '\0' && strchr(known, at[0]) != NULL;
    bool is_quoted = length == 1 && (at[0] == '"' || at[0] == '\\');
    if (length == 0)
        snprintf(to, 8, "\\ufffd");
    else if (style != JSON_STYLE_NUMERIC && is_quoted)
        snprintf(to, 8, "\\%c", at[0]);
    else if (style != JSON_STYLE_NUMERIC && is_short)
        snprintf(to, 8, "\\%c", "bfnrt"[strchr(shorts, at[0]) - shorts]);
    else if (at[0] < 0x20 || is_quoted || (at[0] == 0x7f && style >= JSON_STYLE_ANY))
        snprintf(to, 8, style == JSON_STYLE_UPPER ? "\\u%04X" : "\\u%04x", at[0]);
    else
        snprintf(to, 8, "%.*s", (int)length, (const char *)at);
}

static void
check(const char *text, size_t bytes, enum json_style style)
{
    char wanted[6 * TEXT_MAX + 3] = "\"";
    struct bytes out = {0};
    size_t used = 1;
    for (size_t at = 0, length; at < bytes; at += length) {
        const unsigned char *here = (const unsigned char *)text + at;
        length = style >= JSON_STYLE_ANY ? utf8_length(here, bytes - at) : 1;
        model_character(here, length, style, wanted + used);
        used += strlen(wanted + used);
        length += length == 0;
    }
    wanted[used++] = '"';
    json_quote(&out, text, bytes, style);
    assert_false(out.failed);
    assert_int_equal(out.used, used);
    assert_memory_equal(out.data, wanted, used);
    bytes_fini(&out);
}

TEST_CASE(texts_are_escaped_character_by_character)
{
    uint64_t random = random_seed(3);
    char text[TEXT_MAX];
    for (int byte = 0; byte < 256; byte++)
        for (enum json_style style = JSON_STYLE_SHORT; style <= JSON_STYLE_SPACED; style++)
            check(&(char){(char)byte}, 1, style);
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = 0;
        while (bytes + 4 <= TEXT_MAX && random_draw(&random) % 16 != 0) {
            uint32_t point = (uint32_t)(random_draw(&random) >> (43 + random_draw(&random) % 18));
            if (random_draw(&random) % 4 == 0)
                text[bytes++] = (char)point;
            else
                bytes += encode(point % 0x110000, (unsigned char *)text + bytes);
        }
        check(text, bytes, (enum json_style)(random_draw(&random) % (JSON_STYLE_SPACED + 1)));
    }
}

TEST_CASE(each_form_has_its_bytes)
{
    static const char text[] = "a\"\\\b\f\n\r\t\x01\x1f\x7f\xc3\xa9";
    static const char *const wanted[] = {
        [JSON_STYLE_SHORT] = "\"a\\\"\\\\\\u0008\\u000c\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\"",
        [JSON_STYLE_UPPER] = "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001F\x7f\xc3\xa9\"",
        [JSON_STYLE_NUMERIC] = ("\"a\\u0022\\u005c\\u0008\\u000c\\u000a\\u000d\\u0009"
                                "\\u0001\\u001f\x7f\xc3\xa9\""),
        [JSON_STYLE_ANY] = "\"a\\\"\\\\\\u0008\\u000c\\n\\r\\t\\u0001\\u001f\\u007f\xc3\xa9\"",
        [JSON_STYLE_SPACED] = "\"a\\\"\\\\\\u0008\\u000c\\n\\r\\t\\u0001\\u001f\\u007f\xc3\xa9\"",
    };
    for (enum json_style style = JSON_STYLE_SHORT; style <= JSON_STYLE_SPACED; style++) {
        struct bytes out = {0};
        json_quote(&out, text, sizeof(text) - 1, style);
        bytes_put_char(&out, '\0');
        assert_string_equal(out.data, wanted[style]);
        bytes_fini(&out);
    }
}

/* ---- structure ---- */

static void
ends_as(struct bytes *out, const char *wanted)
{
    bytes_put_char(out, '\0');
    assert_string_equal(out->data, wanted);
    bytes_fini(out);
}

static void
write_all(struct bytes *out, enum json_style style)
{
    struct json json = json_begin(out, style);
    json_open(&json, '{');
    json_field_bool(&json, "a[", true);
    json_field_open(&json, "b", '[');
    json_put_int(&json, INT64_MIN);
    json_put_uint(&json, UINT64_MAX);
    json_open(&json, '{');
    json_close(&json, '}');
    json_put_raw(&json, "[]", 2);
    json_put_null(&json);
    json_close(&json, ']');
    json_field_string(&json, "c", "d:");
    json_field_int(&json, "e ", 1);
    json_field_uint(&json, "f", 2);
    json_field_double(&json, "g", 0.5);
    json_close(&json, '}');
}

TEST_CASE(commas_separate_values_and_names)
{
    struct bytes out = {0};
    write_all(&out, JSON_STYLE_SHORT);
    write_all(&out, JSON_STYLE_SPACED);
    ends_as(&out, "{\"a[\":true,\"b\":[-9223372036854775808,18446744073709551615,{},[],null],"
                  "\"c\":\"d:\",\"e \":1,\"f\":2,\"g\":0.5}"
                  "{\"a[\": true, \"b\": [-9223372036854775808, 18446744073709551615, {}, [], "
                  "null], \"c\": \"d:\", \"e \": 1, \"f\": 2, \"g\": 0.5}");
}

TEST_CASE(no_memory_is_remembered)
{
    struct bytes out = {.failed = true}; /* and has no bytes to look at */
    write_all(&out, JSON_STYLE_SHORT);
    assert_true(out.failed && out.used == 0);
}

/* ---- numbers ---- */

TEST_CASE(numbers_read_back_the_same)
{
    static const double doubles[] = {0, -0.0, 0.1, 1.0 / 3, 1e300, 5e-324, 123456789012345680};
    static const float floats[] = {0, 0.1f, 1.0f / 3, 3.4028235e38f, 1e-45f, 16777216};
    char room[NUMBER_ROOM];
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++) {
        number_text_double(room, doubles[i]);
        assert_true(strtod(room, NULL) == doubles[i]);
    }
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        number_text_float(room, floats[i]);
        assert_true(strtof(room, NULL) == floats[i]);
    }
    struct bytes out = {0};
    struct json json = json_begin(&out, JSON_STYLE_ANY);
    json_open(&json, '[');
    json_put_double(&json, 0.1);
    json_put_float(&json, 0.1f);
    json_put_double(&json, (double)NAN);
    json_put_double(&json, (double)INFINITY);
    json_put_float(&json, -INFINITY);
    json_close(&json, ']');
    ends_as(&out, "[0.1,0.1,\"NaN\",\"Infinity\",\"-Infinity\"]");
}

TEST_MAIN()
