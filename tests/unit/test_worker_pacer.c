/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pacer wakes up while something is loaded, and only then; it can be stopped in either state.
 * What its wakes are good for, the bench shows (`./dev bench --only models`).
 *
 * ctest: tsan
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sched.h>

#include "base/clock.h"
#include "worker/pacer.h"

static void
wait_for_wakes(struct pacer *pacer, uint64_t count)
{
    int64_t until_ns = clock_now_ns() + 20 * NS_PER_S;
    while (pacer_wakes(pacer) < count) {
        assert_true(clock_now_ns() < until_ns);
        sched_yield();
    }
}

/* It may have been in its sleep when it was told, and no more than that. */
static void
test_wakes_while_wanted(void **state)
{
    (void)state;
    struct pacer pacer;
    struct error error = ERROR_NONE;
    assert_int_equal(pacer_start(&pacer, &error), STATUS_OK);
    assert_int_equal(pacer_wakes(&pacer), 0);
    for (int i = 0; i < 3; i++) {
        pacer_begin(&pacer);
        wait_for_wakes(&pacer, pacer_wakes(&pacer) + 5);
        pacer_end(&pacer);
        uint64_t at_end = pacer_wakes(&pacer);
        int64_t until_ns = clock_now_ns() + 20 * NS_PER_MS;
        while (clock_now_ns() < until_ns)
            sched_yield();
        assert_in_range(pacer_wakes(&pacer), at_end, at_end + 1);
    }
    pacer_stop(&pacer);
}

static void
test_stops_in_either_state(void **state)
{
    (void)state;
    struct pacer pacer;
    struct error error = ERROR_NONE;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pacer_start(&pacer, &error), STATUS_OK);
        if (i % 2 == 0)
            pacer_begin(&pacer);
        pacer_stop(&pacer);
        pacer_stop(&pacer);
    }
    struct pacer none = {.started = false};
    pacer_begin(&none);
    pacer_end(&none);
    pacer_stop(&none);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wakes_while_wanted),
        cmocka_unit_test(test_stops_in_either_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
