/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: presets=tsan
 *
 * The pool of records: order, and what happens when it is empty; then threads that take, write and
 * hand over as fast as they can, and one that collects, reads and gives back: no record has two
 * owners, none is lost, and what was written before is read after.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../test.h"
#include "coordinator/telemetry/trace_pool.h"

enum { RECORDS = 3, THREADS = 3, ROUNDS = 20000 };

static struct trace_pool pool;

static int
setup(void **state)
{
    (void)state;
    trace_pool_init(&pool, RECORDS);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    trace_pool_fini(&pool);
    return 0;
}

TEST_CASE(test_until_it_is_empty)
{
    struct trace *traces[RECORDS];
    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < RECORDS; i++) {
            traces[i] = trace_pool_take(&pool);
            assert_non_null(traces[i]);
            for (uint32_t k = 0; k < i; k++)
                assert_ptr_not_equal(traces[i], traces[k]);
        }
        assert_null(trace_pool_take(&pool));
        for (uint32_t i = 0; i < RECORDS; i++)
            trace_pool_give(&pool, traces[i]);
    }
}

TEST_CASE(test_first_come_first_collected)
{
    struct trace *traces[RECORDS];
    (void)state;
    assert_false(trace_pool_has_done(&pool));
    for (uint32_t i = 0; i < RECORDS; i++)
        traces[i] = trace_pool_take(&pool);
    for (uint32_t i = 0; i < RECORDS; i++)
        trace_pool_hand_over(&pool, traces[i]);
    assert_true(trace_pool_has_done(&pool));
    uint32_t list = trace_pool_collect(&pool);
    assert_false(trace_pool_has_done(&pool));
    for (uint32_t i = 0; i < RECORDS; i++) {
        struct trace *trace = trace_pool_step(&pool, &list);
        assert_ptr_equal(trace, traces[i]);
        trace_pool_give(&pool, trace); /* at once: the list goes on all the same */
    }
    assert_null(trace_pool_step(&pool, &list));
    assert_int_equal(trace_pool_collect(&pool), 0);
}

/* A thread that has seen the top of the free ones and was stopped must not find the same word again
 * after that record has come and gone: it would put one that is in use on top. */
TEST_CASE(test_no_word_comes_twice)
{
    struct trace *first = trace_pool_take(&pool);
    struct trace *second = trace_pool_take(&pool);
    (void)state;
    trace_pool_give(&pool, second);
    trace_pool_give(&pool, first);
    uint64_t seen = atomic_load(&pool.free);
    assert_ptr_equal(trace_pool_take(&pool), first);
    assert_ptr_equal(trace_pool_take(&pool), second);
    trace_pool_give(&pool, first);
    uint64_t now = atomic_load(&pool.free);
    assert_int_equal((uint32_t)now, (uint32_t)seen);
    assert_int_not_equal(now, seen);
}

/* Each hands over ROUNDS records with numbers of its own in two places. */
static void *
produce(void *context)
{
    int64_t *number = context;
    for (uint32_t i = 0; i < ROUNDS;) {
        struct trace *trace = trace_pool_take(&pool);
        if (trace == NULL) {
            sched_yield();
            continue;
        }
        trace->began_ns = *number;
        trace->ended_ns = *number;
        (*number)++;
        trace_pool_hand_over(&pool, trace);
        i++;
    }
    return NULL;
}

TEST_CASE(test_threads)
{
    pthread_t threads[THREADS];
    int64_t numbers[THREADS];
    int64_t wanted[THREADS];
    uint32_t collected = 0;
    (void)state;
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = wanted[i] = (int64_t)i * 1000000;
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &numbers[i]), 0);
    }
    while (collected < THREADS * ROUNDS) {
        uint32_t list = trace_pool_collect(&pool);
        if (list == 0)
            sched_yield();
        for (struct trace *trace; (trace = trace_pool_step(&pool, &list)) != NULL; collected++) {
            int64_t thread = trace->began_ns / 1000000;
            assert_true(thread < THREADS);
            assert_int_equal(trace->began_ns, wanted[thread]); /* in its order, none twice */
            assert_int_equal(trace->ended_ns, wanted[thread]);
            wanted[thread]++;
            trace_pool_give(&pool, trace);
        }
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < RECORDS; i++)
        assert_non_null(trace_pool_take(&pool));
    assert_null(trace_pool_take(&pool));
}

TEST_MAIN(.setup = setup, .teardown = teardown)
