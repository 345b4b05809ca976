/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The W3C headers: each way in which a traceparent can be malformed is refused, everything that the
 * recommendation allows is taken and read right; a tracestate is passed on as it is, or, malformed,
 * not at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/telemetry/traceparent.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"
#define ZEROS_16 "0000000000000000"

/* In memory of exactly that size, so that a look behind the end is seen. */
static bool
parse(const char *text, struct traceparent *parent)
{
    size_t bytes = strlen(text);
    char *exact = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, text, bytes); // NOLINT(bugprone-not-null-terminated-result): bytes, no string
    bool valid = traceparent_parse(exact, bytes, parent);
    free(exact);
    return valid;
}

TEST_CASE(test_valid)
{
    static const struct {
        const char *text;
        bool sampled;
    } cases[] = {
        {"00-" TRACE "-" SPAN "-01", true},           {"00-" TRACE "-" SPAN "-00", false},
        {"00-" TRACE "-" SPAN "-03", true},           {"00-" TRACE "-" SPAN "-fe", false},
        {"00-" TRACE "-" SPAN "-ff", true},           {"cc-" TRACE "-" SPAN "-01", true},
        {"01-" TRACE "-" SPAN "-01-what-else", true}, {"fe-" TRACE "-" SPAN "-01-", true},
        {" \t00-" TRACE "-" SPAN "-01 \t", true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct traceparent parent;
        if (!parse(cases[i].text, &parent))
            fail_msg("refused: \"%s\"", cases[i].text);
        assert_int_equal(parent.sampled, cases[i].sampled);
        static const uint8_t trace_id[] = {0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd,
                                           0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c};
        static const uint8_t span_id[] = {0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31};
        assert_memory_equal(parent.trace_id, trace_id, sizeof(trace_id));
        assert_memory_equal(parent.span_id, span_id, sizeof(span_id));
    }
}

TEST_CASE(test_malformed)
{
    static const char *const cases[] = {
        "",
        "00",
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-",
        "00-" TRACE "-" SPAN "-0",
        "00-" TRACE "-" SPAN "-011",
        "00-" TRACE "-" SPAN "-01-", /* version 00 ends here */
        "00-" TRACE "-" SPAN "-01-more",
        "00-" TRACE "-" SPAN "-01.",
        "cc-" TRACE "-" SPAN "-01.more", /* later ones go on behind a dash */
        "cc-" TRACE "-" SPAN "-011",
        "ff-" TRACE "-" SPAN "-01",
        "FF-" TRACE "-" SPAN "-01",
        "0-" TRACE "-" SPAN "-001",
        "000-" TRACE "-" SPAN "-01",
        ".0-" TRACE "-" SPAN "-01",
        "0.-" TRACE "-" SPAN "-01",
        "00-" ZEROS_16 ZEROS_16 "-" SPAN "-01",
        "00-" TRACE "-" ZEROS_16 "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
        "00-" TRACE "-B7AD6B7169203331-01",
        "00-" TRACE "-" SPAN "-0A",
        "00-.af7651916cd43dd8448eb211c80319c-" SPAN "-01",
        "00-0af7651916cd43dd8448eb211c80319g-" SPAN "-01",
        "00-" TRACE "-b7ad6b716920333.-01",
        "00-" TRACE "-" SPAN "-.1",
        "00-" TRACE "-" SPAN "-1.",
        "00-0af7651916cd43dd8448eb211c80319-" SPAN "-001",
        "00-0af7651916cd43dd8448eb211c80319cc-" SPAN "-1",
        "00-" TRACE "-b7ad6b716920333-001",
        "00_" TRACE "-" SPAN "-01",
        "00-" TRACE "_" SPAN "-01",
        "00-" TRACE "-" SPAN "_01",
        "00-" TRACE "-" SPAN "-01,00-" TRACE "-" SPAN "-01",
        "00 -" TRACE "-" SPAN "-1",
        "  ",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct traceparent parent;
        if (parse(cases[i], &parent))
            fail_msg("taken: \"%s\"", cases[i]);
    }
}

/* No byte of a good one may be anything else but a digit where there is a digit, and only itself
 * where there is none. */
TEST_CASE(test_every_byte_counts)
{
    static const char good[] = "00-" TRACE "-" SPAN "-01";
    (void)state;
    for (size_t at = 0; at < strlen(good); at++)
        for (int c = 0; c < 256; c++) {
            char text[sizeof(good)];
            struct traceparent parent;
            memcpy(text, good, sizeof(good));
            text[at] = (char)c;
            bool is_digit = c != 0 && strchr("0123456789abcdef", c) != NULL;
            bool wanted = good[at] == '-' ? c == '-' : is_digit;
            bool is_ff = memcmp(text, "ff", 2) == 0;
            assert_int_equal(traceparent_parse(text, strlen(good), &parent), wanted && !is_ff);
        }
}

static const char *
state_of(const char *const *headers)
{
    static struct tracestate state;
    tracestate_init(&state);
    for (; *headers != NULL; headers++)
        tracestate_add(&state, *headers, strlen(*headers));
    return state.text;
}

#define STATE_OF(...) state_of((const char *const[]){__VA_ARGS__, NULL})

TEST_CASE(test_state)
{
    assert_string_equal(STATE_OF("a=1"), "a=1");
    assert_string_equal(STATE_OF("a=1,b=2", "c=3"), "a=1,b=2,c=3");
    assert_string_equal(STATE_OF(" a=1 ,\t,b=x y!~ ,, 0t@sys=*"), "a=1,b=x y!~,0t@sys=*");
    assert_string_equal(STATE_OF(""), "");
    assert_string_equal(STATE_OF(","), "");
    /* one that is malformed spoils all */
    assert_string_equal(STATE_OF("a=1,b"), "");
    assert_string_equal(STATE_OF("a=1", "B=2"), "");
    assert_string_equal(STATE_OF("A=1", "b=2"), "");
    assert_string_equal(STATE_OF("=1"), "");
    assert_string_equal(STATE_OF("a="), "");
    assert_string_equal(STATE_OF("a=b=c"), "");
    assert_string_equal(STATE_OF("a b=c"), "");
    assert_string_equal(STATE_OF("a=b\x7f"), "");
    assert_string_equal(STATE_OF("a=b\xc3\xa4"), "");
}

TEST_CASE(test_state_limits)
{
    char list[4096];
    size_t used = 0;
    struct tracestate passed;
    for (uint32_t i = 0; i < TRACESTATE_MEMBERS_MAX; i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%sk%u=v", i > 0 ? "," : "", i);
    tracestate_init(&passed);
    tracestate_add(&passed, list, used);
    assert_string_equal(passed.text, list);
    tracestate_add(&passed, "one=more", 8);
    assert_string_equal(passed.text, "");

    char member[TRACESTATE_BYTES_MAX];
    memset(member, 'v', sizeof(member));
    member[0] = 'k';
    member[1] = '=';
    tracestate_init(&passed);
    tracestate_add(&passed, member, 2 + 256);
    assert_int_equal(passed.bytes, 258);
    tracestate_add(&passed, member, 254); /* with the comma one byte more than there is room for */
    assert_int_equal(passed.bytes, 258);
    tracestate_add(&passed, member, 253);
    assert_int_equal(passed.bytes, TRACESTATE_BYTES_MAX);
    assert_int_equal(strlen(passed.text), TRACESTATE_BYTES_MAX);
    assert_int_equal(passed.members, 3);
    tracestate_init(&passed);
    tracestate_add(&passed, member, 2 + 257); /* too long a value */
    assert_string_equal(passed.text, "");
}

TEST_MAIN()
