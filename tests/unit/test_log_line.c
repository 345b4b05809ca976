/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of the log as logfmt and as JSON: an argument stays within its value with any content,
 * the line has one newline, and its length is bounded; what one process writes another accepts.
 */
#include "../test.h"
#include "base/log_line.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "2026-01-31T10:00:00.123Z info shoald "
#define OBJECT                                                                                     \
    "{\"time\":\"2026-01-31T10:00:00.123Z\",\"level\":\"info\",\"program\":\"shoald\",\"event\":"

enum { ROUNDS = 20000, NOISE_BYTES = 40 };

static struct bytes out;

PRINTF_LIKE(2, 3)
static const char *
line(enum log_format form, const char *format, ...)
{
    const struct log_head head = {"2026-01-31T10:00:00.123Z", "info", "shoald"};
    va_list args;
    bytes_fini(&out);
    va_start(args, format);
    log_line_put(&out, form, &head, format, args);
    va_end(args);
    assert_false(out.failed);
    assert_true(out.used <= LOG_LINE_BYTES_MAX);
    assert_int_equal(out.data[out.used - 1], '\n');
    assert_ptr_equal(memchr(out.data, '\n', out.used), out.data + out.used - 1);
    assert_true(log_line_is_valid(form, "shoal", out.data, out.used - 1));
    out.data[out.used - 1] = '\0';
    return out.data;
}

TEST_CASE(test_logfmt)
{
    const enum log_format form = LOG_FORMAT_LOGFMT;
    assert_string_equal(line(form, "ready"), HEAD "ready");
    assert_string_equal(line(form, "a b=%s c=%d d=%" PRIu64 " e=%zu f=%lld g=%x", "x", -5,
                             UINT64_MAX, (size_t)7, -1LL, 0xabu),
                        HEAD "a b=x c=-5 d=18446744073709551615 e=7 f=-1 g=ab");
    assert_string_equal(line(form, "a why=\"%s\" b=%s:%d", "it is so", "f.c", 3),
                        HEAD "a why=\"it is so\" b=f.c:3");
    assert_string_equal(line(form, "a b=%s c=%s d=%s e=%s", "", "x y", "x=y", "\"x\\"),
                        HEAD "a b=\"\" c=\"x y\" d=\"x=y\" e=\"\\\"x\\\\\"");
    assert_string_equal(line(form, "a b=\"%s\" c=%s", "1\n2\t\033\177", "\xff\xc3\xa4"),
                        HEAD "a b=\"1\\n2\\t\\u001b\\u007f\" c=\"\\ufffd\xc3\xa4\"");
    assert_string_equal(line(form, "a b=%.3s c=%.*s d=\"%d%%\"", "12345", 2, "12345", 50),
                        HEAD "a b=123 c=12 d=\"50%\"");
    assert_string_equal(line(form, "a %s=%s", "x y", "1"), HEAD "a x_y=1");
    assert_string_equal(line(form, "a word %s", "b=c d"), HEAD "a text=word text=\"b=c d\"");
}

TEST_CASE(test_json)
{
    const enum log_format form = LOG_FORMAT_JSON;
    assert_string_equal(line(form, "ready"), OBJECT "\"ready\"}");
    assert_string_equal(line(form, "a b=%s c=%d d=\"%d\" e=%s:%d", "x", -5, 6, "f.c", 3),
                        OBJECT "\"a\",\"b\":\"x\",\"c\":-5,\"d\":\"6\",\"e\":\"f.c:3\"}");
    assert_string_equal(line(form, "a b=\"%s\"", "\"\\\n\xfe"),
                        OBJECT "\"a\",\"b\":\"\\\"\\\\\\n\\ufffd\"}");
}

/* Values are cut between characters, and a field without room is left out. */
TEST_CASE(test_bounds)
{
    static char long_text[3 * LOG_LINE_BYTES_MAX];
    for (int form = LOG_FORMAT_LOGFMT; form <= LOG_FORMAT_JSON; form++) {
        memset(long_text, 'x', sizeof(long_text) - 1);
        const char *cut = line((enum log_format)form, "a b=%s c=%d", long_text, 5);
        assert_true(strlen(cut) > LOG_LINE_BYTES_MAX - 16);
        assert_null(strstr(cut, "c=5"));
        memset(long_text, '\001', sizeof(long_text) - 1);
        assert_true(strlen(line((enum log_format)form, "a b=%s", long_text)) >
                    LOG_LINE_BYTES_MAX - 16);
        for (size_t i = 0; i + 2 < sizeof(long_text); i += 2)
            memcpy(long_text + i, "\xc3\xa4", 2);
        for (int shift = 0; shift < 2; shift++)
            assert_null(
                strstr(line((enum log_format)form, "a b=%s%s", &"y"[shift], long_text), "\\u"));
    }
}

/* Arguments of random bytes add no field and end no line. */
TEST_CASE(test_noise)
{
    static const char letters[] = "ab =\"\\\n\r\t\001\177\xc3\xa4\xff{}:,%";
    uint64_t random = 1;
    for (int i = 0; i < ROUNDS; i++) {
        char noise[NOISE_BYTES + 1];
        size_t bytes = 0;
        for (; bytes < (size_t)(i % NOISE_BYTES); bytes++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            noise[bytes] = letters[(random >> 33) % (sizeof(letters) - 1)];
        }
        noise[bytes] = '\0';
        const char *text = line(LOG_FORMAT_LOGFMT, "a b=%s c=\"%s\" d=%d", noise, noise, 1);
        assert_string_equal(text + strlen(text) - 4, " d=1");
        text = line(LOG_FORMAT_JSON, "a b=%s c=\"%s\" d=%d", noise, noise, 1);
        assert_string_equal(text + strlen(text) - 7, ",\"d\":1}");
    }
}

TEST_CASE(test_judges_others)
{
    static const struct {
        enum log_format form;
        const char *line;
        bool valid;
    } cases[] = {
        {LOG_FORMAT_LOGFMT, HEAD "x a=1 b=\"c d\"", true},
        {LOG_FORMAT_LOGFMT, HEAD "x a=\"1", false},
        {LOG_FORMAT_LOGFMT, HEAD "x a=\"1\"b", false},
        {LOG_FORMAT_LOGFMT, HEAD "x a", false},
        {LOG_FORMAT_LOGFMT, HEAD "x a=\xff", false},
        {LOG_FORMAT_LOGFMT, HEAD "x a=\"\\x\"", false},
        {LOG_FORMAT_LOGFMT, "2026 info other x", false},
        {LOG_FORMAT_LOGFMT, HEAD, false},
        {LOG_FORMAT_LOGFMT, "", false},
        {LOG_FORMAT_LOGFMT, OBJECT "\"x\"}", false},
        {LOG_FORMAT_JSON, OBJECT "\"x\",\"a\":-10,\"b\":\"\\u00ff\"}", true},
        {LOG_FORMAT_JSON, OBJECT "\"x\",\"a\":01}", false},
        {LOG_FORMAT_JSON, OBJECT "\"x\",\"a\":}", false},
        {LOG_FORMAT_JSON, OBJECT "\"x\",\"a\":{}}", false},
        {LOG_FORMAT_JSON, OBJECT "\"x\"", false},
        {LOG_FORMAT_JSON, OBJECT "\"x\"}}", false},
        {LOG_FORMAT_JSON, OBJECT "\"x\",}", false},
        {LOG_FORMAT_JSON, OBJECT "\"\\u00\"}", false},
        {LOG_FORMAT_JSON, "{}", false},
        {LOG_FORMAT_JSON, "", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t bytes = strlen(cases[i].line);
        char *copy = malloc(bytes + 1); /* its end is seen by the sanitizer */
        assert_non_null(copy);
        memcpy(copy, cases[i].line, bytes);
        if (log_line_is_valid(cases[i].form, "shoal", copy, bytes) != cases[i].valid)
            fail_msg("judged wrongly: %s", cases[i].line);
        free(copy);
    }
}

/* A line of logfmt becomes the same JSON as the event itself. */
static void
assert_translated(const char *logfmt, const char *json)
{
    struct bytes translated = {0};
    size_t bytes = strlen(logfmt);
    char *copy = malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, logfmt, bytes);
    assert_int_equal(log_line_translate(&translated, "shoal", copy, bytes), json != NULL);
    free(copy);
    if (json != NULL) {
        bytes_put_char(&translated, '\0');
        assert_string_equal(translated.data, json);
        assert_true(
            log_line_is_valid(LOG_FORMAT_JSON, "shoal", translated.data, translated.used - 1));
    }
    bytes_fini(&translated);
}

TEST_CASE(test_translates)
{
#define JSON_HEAD                                                                                  \
    "{\"time\":\"2026-01-31T10:00:00.123Z\",\"level\":\"info\",\"program\":\"shoald\",\"event\":"
    assert_translated(HEAD "ready", JSON_HEAD "\"ready\"}");
    assert_translated(HEAD "a pid=12 address=0x0 at=f.c:3 n=-5 m=007 o=-",
                      JSON_HEAD "\"a\",\"pid\":12,\"address\":\"0x0\",\"at\":\"f.c:3\",\"n\":-5,"
                                "\"m\":\"007\",\"o\":\"-\"}");
    assert_translated(HEAD "a why=\"it \\\"is\\\" = so\\n\" b=\"\"",
                      JSON_HEAD "\"a\",\"why\":\"it \\\"is\\\" = so\\n\",\"b\":\"\"}");
    assert_translated("mutters", NULL);
    assert_translated(HEAD "a b", NULL);
    assert_translated(HEAD "a b=\"c", NULL);
}

static int
teardown(void **state)
{
    (void)state;
    bytes_fini(&out);
    return 0;
}

TEST_MAIN(.group_teardown = teardown)
