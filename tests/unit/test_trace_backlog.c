/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports that wait: their order, the pauses on a scripted clock, and that the bounds of memory and
 * of number hold, by the rules in trace_backlog.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../test.h"
#include "coordinator/telemetry/trace_backlog.h"

enum { BYTES_MAX = 100 };

static struct backlog backlog;

static int
setup(void **state)
{
    (void)state;
    backlog_init(&backlog, BYTES_MAX);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    backlog_fini(&backlog);
    return 0;
}

/* An export of that name; returns how many spans were dropped for it. */
static uint64_t
put(const char *name, size_t bytes, uint32_t spans)
{
    char *text = calloc(1, bytes + 1);
    assert_non_null(text);
    snprintf(text, bytes + 1, "%s", name);
    return backlog_put(&backlog, (struct backlog_export){text, bytes, spans});
}

static void
assert_first(const char *name)
{
    const struct backlog_export *first = backlog_first(&backlog);
    assert_non_null(first);
    assert_string_equal(first->text, name);
}

TEST_CASE(test_order)
{
    assert_null(backlog_first(&backlog));
    assert_int_equal(put("a", 10, 1), 0);
    assert_int_equal(put("b", 10, 2), 0);
    assert_int_equal(backlog_spans(&backlog), 3);
    assert_first("a");
    backlog_pop(&backlog);
    assert_first("b");
    backlog_pop(&backlog);
    assert_null(backlog_first(&backlog));
    assert_int_equal(backlog_spans(&backlog), 0);
}

TEST_CASE(test_pauses)
{
    int64_t now_ns = 1000 * NS_PER_S;
    int64_t pause_ns = BACKLOG_PAUSE_FIRST_NS;
    (void)state;
    assert_true(backlog_wait_ns(&backlog, now_ns) == TIME_NEVER_NS);
    put("a", 10, 1);
    assert_int_equal(backlog_wait_ns(&backlog, now_ns), 0);
    for (uint32_t i = 0; i < 20; i++) {
        backlog_later(&backlog, now_ns, 0);
        assert_int_equal(backlog_wait_ns(&backlog, now_ns), pause_ns);
        assert_int_equal(backlog_wait_ns(&backlog, now_ns + pause_ns - 1), 1);
        assert_int_equal(backlog_wait_ns(&backlog, now_ns + pause_ns), 0);
        assert_int_equal(backlog_wait_ns(&backlog, now_ns + 2 * pause_ns), 0);
        now_ns += pause_ns;
        pause_ns = 2 * pause_ns < BACKLOG_PAUSE_MAX_NS ? 2 * pause_ns : BACKLOG_PAUSE_MAX_NS;
    }
    put("b", 10, 1);
    backlog_pop(&backlog); /* it was taken: the next goes at once, and pauses begin anew */
    assert_int_equal(backlog_wait_ns(&backlog, now_ns), 0);
    backlog_later(&backlog, now_ns, 0);
    assert_int_equal(backlog_wait_ns(&backlog, now_ns), BACKLOG_PAUSE_FIRST_NS);
}

TEST_CASE(test_the_collector_says_when)
{
    put("a", 10, 1);
    backlog_later(&backlog, 0, 7 * NS_PER_S);
    assert_int_equal(backlog_wait_ns(&backlog, 0), 7 * NS_PER_S);
    backlog_later(&backlog, 0, 1); /* sooner than we would: as we would */
    assert_int_equal(backlog_wait_ns(&backlog, 0), 2 * BACKLOG_PAUSE_FIRST_NS);
    backlog_later(&backlog, 0, INT64_MAX);
    assert_int_equal(backlog_wait_ns(&backlog, 0), BACKLOG_SAID_MAX_NS);
}

TEST_CASE(test_bytes_are_bounded)
{
    put("a", 40, 1);
    put("b", 40, 2);
    assert_int_equal(put("c", 20, 4), 0); /* just full */
    assert_int_equal(put("d", 1, 8), 1);
    assert_first("b");
    assert_int_equal(put("e", BYTES_MAX, 16), 14);
    assert_first("e");
    assert_int_equal(put("too large", BYTES_MAX + 1, 32), 32);
    assert_first("e");
    assert_int_equal(backlog.bytes, BYTES_MAX);
}

/* The one that is being sent is not pushed out, nor is its text moved. */
TEST_CASE(test_export_being_sent_stays)
{
    put("a", 40, 1);
    put("b", 30, 2);
    put("c", 30, 4);
    const char *text = backlog_first(&backlog)->text;
    backlog_send(&backlog);
    assert_int_equal(put("d", 20, 8), 2);
    assert_ptr_equal(backlog_first(&backlog)->text, text);
    assert_int_equal(put("too large beside it", 61, 16), 16);
    assert_int_equal(put("e", 60, 32), 12);
    assert_ptr_equal(backlog_first(&backlog)->text, text);
    assert_int_equal(backlog.bytes, BYTES_MAX);
    backlog_later(&backlog, 0, 0); /* and now it may go like any other */
    assert_int_equal(put("f", 10, 64), 1);
    assert_first("e");
    backlog_send(&backlog);
    backlog_pop(&backlog);
    assert_first("f");
    assert_int_equal(put("g", BYTES_MAX, 128), 64);
}

TEST_CASE(test_number_is_bounded)
{
    backlog.bytes_max = SIZE_MAX;
    for (uint32_t i = 0; i < BACKLOG_EXPORTS_MAX; i++)
        assert_int_equal(put("old", 3, 1), 0);
    assert_int_equal(put("new", 3, 1), 1);
    assert_int_equal(backlog.count, BACKLOG_EXPORTS_MAX);
    for (uint32_t i = 1; i < BACKLOG_EXPORTS_MAX; i++) {
        assert_first("old");
        backlog_pop(&backlog);
    }
    assert_first("new");
}

TEST_MAIN(.setup = setup, .teardown = teardown)
