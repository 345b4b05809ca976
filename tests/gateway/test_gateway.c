/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's core among virtual servers that die, hang, decline and return, on virtual time;
 * world.c has the invariants. SHOAL_SEED runs one seed, SHOAL_SIM_SEEDS=N that many from
 * SHOAL_SEED, or from 1, on. src/gateway/core must use nothing but base: tidy.layers checks that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "world.h"

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 40 };
#else
enum { SEEDS = 400 };
#endif

static uint64_t
setting(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

static void
test_seeds(void **state)
{
    (void)state;
    uint64_t first = setting("SHOAL_SEED", 1);
    uint64_t seeds = setting("SHOAL_SIM_SEEDS", getenv("SHOAL_SEED") != NULL ? 1 : SEEDS);
    struct world_totals totals = {0};
    uint64_t trace = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++)
        trace = trace * 31 + world_run(seed, &totals);
    printf("%llu seeds: %llu requests, %llu answered, %llu refused, %llu cancelled, %llu broken "
           "off, %llu retries,\n%llu faults, %llu ejections, %llu returns, %llu scrapes; trace "
           "%016llx\n",
           (unsigned long long)seeds, (unsigned long long)totals.requests,
           (unsigned long long)totals.answered, (unsigned long long)totals.refused,
           (unsigned long long)totals.cancelled, (unsigned long long)totals.broken,
           (unsigned long long)totals.retried, (unsigned long long)totals.faults,
           (unsigned long long)totals.ejected, (unsigned long long)totals.returned,
           (unsigned long long)totals.scrapes, (unsigned long long)trace);
    assert_true(totals.requests ==
                totals.answered + totals.refused + totals.cancelled + totals.broken);
    if (seeds < SEEDS)
        return; /* few may miss what is rare */
    assert_true(totals.refused > 0 && totals.cancelled > 0 && totals.broken > 0);
    assert_true(totals.retried > 0 && totals.ejected > 0 && totals.returned > 0);
    assert_true(totals.answered > totals.requests / 4);
    assert_true(totals.objectives_missed > 0);
    for (int i = 0; i < GATEWAY_REFUSAL_COUNT; i++)
        assert_true(totals.refused_by[i] > 0);
}

static void
test_same_seed_same_trace(void **state)
{
    (void)state;
    struct world_totals totals = {0};
    for (uint64_t seed = 1000; seed < 1003; seed++)
        assert_true(world_run(seed, &totals) == world_run(seed, &totals));
    assert_true(world_run(1000, &totals) != world_run(1001, &totals));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_same_seed_same_trace),
    };
    return cmocka_run_group_tests_name("gateway", tests, NULL, NULL);
}
