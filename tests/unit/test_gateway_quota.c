/* SPDX-License-Identifier: Apache-2.0 */
/* The quota of a key, and the time to wait until it may use more, on a scripted clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "gateway/core/quota.h"

static struct quota
make(uint64_t requests, uint64_t tokens, uint64_t concurrency)
{
    struct quota quota;
    quota_init(&quota,
               &(struct quota_limits){.requests_per_minute = requests,
                                      .tokens_per_minute = tokens,
                                      .concurrency = concurrency},
               1000);
    return quota;
}

static void
test_without_limits_nothing_waits(void **state)
{
    (void)state;
    struct quota quota = make(0, 0, 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(quota_take(&quota, 1000), 0);
    for (int i = 0; i < 1000; i++)
        quota_release(&quota, 1000000);
    assert_int_equal(quota.open, 0);
    assert_int_equal(quota_take(&quota, 1000), 0);
}

static void
test_requests_per_minute(void **state)
{
    (void)state;
    struct quota quota = make(3, 0, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(quota_take(&quota, 1000), 0);
    int64_t wait_ms = quota_take(&quota, 1000);
    assert_in_range(wait_ms, 20000, 20002);
    assert_int_not_equal(quota_take(&quota, 1000 + wait_ms - 10), 0);
    assert_int_equal(quota_take(&quota, 1000 + wait_ms), 0);
    for (int i = 0; i < 3; i++) /* an hour saves no more than a minute's worth */
        assert_int_equal(quota_take(&quota, 3600000), 0);
    assert_int_not_equal(quota_take(&quota, 3600000), 0);
}

static void
test_tokens_are_paid_afterwards(void **state)
{
    (void)state;
    struct quota quota = make(0, 600, 0);
    assert_int_equal(quota_take(&quota, 1000), 0);
    quota_release(&quota, 1200); /* 600 more than there were */
    int64_t wait_ms = quota_take(&quota, 1000);
    assert_in_range(wait_ms, 60000, 60200);
    assert_int_equal(quota_take(&quota, 1000 + wait_ms), 0);
}

static void
test_requests_at_a_time(void **state)
{
    (void)state;
    struct quota quota = make(0, 0, 2);
    assert_int_equal(quota_take(&quota, 1000), 0);
    assert_int_equal(quota_take(&quota, 1000), 0);
    assert_int_equal(quota_take(&quota, 1000), 1000);
    quota_release(&quota, 0);
    assert_int_equal(quota_take(&quota, 1000), 0);
}

static void
test_a_change_takes_nothing_back(void **state)
{
    (void)state;
    struct quota quota = make(10, 0, 0);
    assert_int_equal(quota_take(&quota, 1000), 0);
    quota_change(&quota, &(struct quota_limits){.requests_per_minute = 2});
    for (int i = 0; i < 2; i++)
        assert_int_equal(quota_take(&quota, 1000), 0);
    assert_int_not_equal(quota_take(&quota, 1000), 0);
    assert_int_equal(quota.open, 3);
}

static void
test_a_new_limit_is_whole(void **state)
{
    (void)state;
    struct quota quota = make(0, 0, 0);
    assert_int_equal(quota_take(&quota, 1000), 0);
    quota_change(&quota, &(struct quota_limits){.requests_per_minute = 1, .tokens_per_minute = 1});
    assert_int_equal(quota_take(&quota, 1000), 0);
    assert_int_not_equal(quota_take(&quota, 1000), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_limits_nothing_waits),
        cmocka_unit_test(test_requests_per_minute),
        cmocka_unit_test(test_tokens_are_paid_afterwards),
        cmocka_unit_test(test_requests_at_a_time),
        cmocka_unit_test(test_a_change_takes_nothing_back),
        cmocka_unit_test(test_a_new_limit_is_whole),
    };
    return cmocka_run_group_tests_name("gateway_quota", tests, NULL, NULL);
}
