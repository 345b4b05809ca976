/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON strings: every byte in each form against the bytes that formats have promised; random texts
 * against a writer that looks at one character at a time; characters of UTF-8 against their code
 * points. Commas come where JSON wants them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../random.h"
#include "base/json_text.h"
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
static void
characters_are_those_of_code_points(void **state)
{
    (void)state;
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
    assert_int_equal(utf8_length("\xe2\x82"
                                 "a",
                                 3),
                     0);
}

/* ---- strings ---- */

static void
model_character(const unsigned char *at, size_t length, enum json_escapes escapes, char *to)
{
    static const char shorts[] = "\b\f\n\r\t";
    const char *known = escapes == JSON_ESCAPES_UPPER ? shorts : "\n\r\t";
    bool is_short = length == 1 && at[0] != '\0' && strchr(known, at[0]) != NULL;
    bool is_quoted = length == 1 && (at[0] == '"' || at[0] == '\\');
    if (length == 0)
        snprintf(to, 8, "\\ufffd");
    else if (escapes != JSON_ESCAPES_NUMERIC && is_quoted)
        snprintf(to, 8, "\\%c", at[0]);
    else if (escapes != JSON_ESCAPES_NUMERIC && is_short)
        snprintf(to, 8, "\\%c", "bfnrt"[strchr(shorts, at[0]) - shorts]);
    else if (at[0] < 0x20 || is_quoted || (at[0] == 0x7f && escapes == JSON_ESCAPES_ANY))
        snprintf(to, 8, escapes == JSON_ESCAPES_UPPER ? "\\u%04X" : "\\u%04x", at[0]);
    else
        snprintf(to, 8, "%.*s", (int)length, (const char *)at);
}

static void
check(const char *text, size_t bytes, enum json_escapes escapes)
{
    char wanted[6 * TEXT_MAX + 3] = "\"";
    struct bytes out = {0};
    size_t used = 1;
    for (size_t at = 0, length; at < bytes; at += length) {
        const unsigned char *here = (const unsigned char *)text + at;
        length = escapes == JSON_ESCAPES_ANY ? utf8_length(here, bytes - at) : 1;
        model_character(here, length, escapes, wanted + used);
        used += strlen(wanted + used);
        length += length == 0;
    }
    wanted[used++] = '"';
    json_put_text(&out, text, bytes, escapes);
    assert_false(out.failed);
    assert_int_equal(out.used, used);
    assert_memory_equal(out.data, wanted, used);
    bytes_fini(&out);
}

static void
texts_are_escaped_character_by_character(void **state)
{
    (void)state;
    uint64_t random = random_seed(3);
    char text[TEXT_MAX];
    for (int byte = 0; byte < 256; byte++)
        for (enum json_escapes escapes = JSON_ESCAPES_SHORT; escapes <= JSON_ESCAPES_ANY; escapes++)
            check(&(char){(char)byte}, 1, escapes);
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = 0;
        while (bytes + 4 <= TEXT_MAX && random_draw(&random) % 16 != 0) {
            uint32_t point = (uint32_t)(random_draw(&random) >> (43 + random_draw(&random) % 18));
            if (random_draw(&random) % 4 == 0)
                text[bytes++] = (char)point;
            else
                bytes += encode(point % 0x110000, (unsigned char *)text + bytes);
        }
        check(text, bytes, (enum json_escapes)(random_draw(&random) % (JSON_ESCAPES_ANY + 1)));
    }
}

static void
each_form_has_its_bytes(void **state)
{
    (void)state;
    static const char text[] = "a\"\\\b\f\n\r\t\x01\x1f\x7f\xc3\xa9";
    static const char *const wanted[] = {
        [JSON_ESCAPES_SHORT] = "\"a\\\"\\\\\\u0008\\u000c\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\"",
        [JSON_ESCAPES_UPPER] = "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001F\x7f\xc3\xa9\"",
        [JSON_ESCAPES_NUMERIC] = ("\"a\\u0022\\u005c\\u0008\\u000c\\u000a\\u000d\\u0009"
                                  "\\u0001\\u001f\x7f\xc3\xa9\""),
        [JSON_ESCAPES_ANY] = "\"a\\\"\\\\\\u0008\\u000c\\n\\r\\t\\u0001\\u001f\\u007f\xc3\xa9\"",
    };
    for (enum json_escapes escapes = JSON_ESCAPES_SHORT; escapes <= JSON_ESCAPES_ANY; escapes++) {
        struct bytes out = {0};
        json_put_text(&out, text, sizeof(text) - 1, escapes);
        bytes_put_char(&out, '\0');
        assert_string_equal(out.data, wanted[escapes]);
        bytes_fini(&out);
    }
}

/* ---- commas ---- */

static void
commas_separate_values_and_names(void **state)
{
    (void)state;
    struct bytes out = {0};
    static const char *const parts[] = {"{", "\"a\":", "[", "1", "{", "}", "]", "\"b\":", "2", "}"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i][0] != '}' && parts[i][0] != ']')
            json_put_comma(&out);
        bytes_put_text(&out, parts[i]);
    }
    bytes_put_char(&out, '\0');
    assert_string_equal(out.data, "{\"a\":[1,{}],\"b\":2}");
    bytes_fini(&out);
    out.failed = true; /* and has no bytes to look at */
    json_put_comma(&out);
    json_put_text(&out, "a\n", 2, JSON_ESCAPES_SHORT);
    assert_true(out.failed && out.used == 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_those_of_code_points),
        cmocka_unit_test(texts_are_escaped_character_by_character),
        cmocka_unit_test(each_form_has_its_bytes),
        cmocka_unit_test(commas_separate_values_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
