/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's error for a stage without workers: the reason, the time of the next trial, the remedy;
 * and that reasons that are too long are cut, while when and what are not lost.
 */
#include <string.h>

#include "../test.h"
#include "base/clock.h"
#include "coordinator/pipeline/outage.h"

static struct outage outage;
static char text[OUTAGE_TEXT_BYTES];

static int
setup(void **state)
{
    (void)state;
    outage_init(&outage);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    outage_fini(&outage);
    return 0;
}

TEST_CASE(test_each_stage_has_its_own)
{
    outage_set(&outage, 0, 0, "; it will be started again", "stage \"a\" has no worker");
    outage_set(&outage, 15, 0, "", "stage \"p\" has no worker");
    outage_describe(&outage, 0, 5, text);
    assert_string_equal(text, "stage \"a\" has no worker; it will be started again");
    outage_describe(&outage, 15, 5, text);
    assert_string_equal(text, "stage \"p\" has no worker");
}

TEST_CASE(test_when)
{
    const int64_t now_ns = 1000 * NS_PER_S;
    static const struct {
        int64_t left_ns;
        const char *text;
    } cases[] = {
        {42 * NS_PER_S + 1, "why; next try in 42 s, or reload"},
        {NS_PER_S, "why; next try in 1 s, or reload"},
        {999 * (int64_t)NS_PER_MS, "why; next try in 999 ms, or reload"},
        {0, "why; a worker is being tried now, or reload"},
        {-NS_PER_S, "why; a worker is being tried now, or reload"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        outage_set(&outage, 3, now_ns + cases[i].left_ns, ", or reload", "why");
        outage_describe(&outage, 3, now_ns, text);
        assert_string_equal(text, cases[i].text);
    }
}

TEST_CASE(test_too_long)
{
    char why[1000];
    memset(why, 'y', sizeof(why) - 1);
    why[sizeof(why) - 1] = '\0';
    outage_set(&outage, 3, 9 * NS_PER_S, ", or reload", why);
    outage_describe(&outage, 3, 0, text);
    assert_true(strlen(text) < OUTAGE_TEXT_BYTES);
    assert_non_null(strstr(text, "y; next try in 9 s, or reload"));
}

TEST_MAIN(.setup = setup, .teardown = teardown)
