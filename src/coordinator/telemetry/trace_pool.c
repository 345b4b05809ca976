/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/trace_pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"

void
trace_pool_init(struct trace_pool *pool, uint32_t count)
{
    *pool = (struct trace_pool){.traces = calloc(count, sizeof(struct trace)), .count = count};
    CHECK(pool->traces != NULL);
}

void
trace_pool_fini(struct trace_pool *pool)
{
    free(pool->traces);
    *pool = (struct trace_pool){.count = 0};
}

static uint32_t
number_of(const struct trace_pool *pool, const struct trace *trace)
{
    return (uint32_t)(trace - pool->traces) + 1;
}

/*
 * The count of changes in the upper half prevents a thread that is stopped between its look at
 * `next` and its swap from swapping although the same record was taken and given back meanwhile.
 */
static uint64_t
free_word(uint64_t seen, uint32_t number)
{
    return ((seen >> 32) + 1) << 32 | number;
}

struct trace *
trace_pool_take(struct trace_pool *pool)
{
    uint64_t seen = atomic_load_explicit(&pool->free, memory_order_acquire);
    while ((uint32_t)seen != 0) {
        struct trace *trace = &pool->traces[(uint32_t)seen - 1];
        uint32_t next = atomic_load_explicit(&trace->next, memory_order_relaxed);
        if (atomic_compare_exchange_weak_explicit(&pool->free, &seen, free_word(seen, next),
                                                  memory_order_acquire, memory_order_acquire))
            return trace;
    }
    uint32_t fresh = atomic_load_explicit(&pool->fresh, memory_order_relaxed);
    while (fresh < pool->count)
        if (atomic_compare_exchange_weak_explicit(&pool->fresh, &fresh, fresh + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return &pool->traces[fresh];
    return NULL;
}

void
trace_pool_give(struct trace_pool *pool, struct trace *trace)
{
    uint64_t seen = atomic_load_explicit(&pool->free, memory_order_relaxed);
    do
        atomic_store_explicit(&trace->next, (uint32_t)seen, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&pool->free, &seen,
                                                  free_word(seen, number_of(pool, trace)),
                                                  memory_order_release, memory_order_relaxed));
}

void
trace_pool_hand_over(struct trace_pool *pool, struct trace *trace)
{
    uint32_t seen = atomic_load_explicit(&pool->done, memory_order_relaxed);
    do
        atomic_store_explicit(&trace->next, seen, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&pool->done, &seen, number_of(pool, trace),
                                                  memory_order_release, memory_order_relaxed));
}

bool
trace_pool_has_done(const struct trace_pool *pool)
{
    return atomic_load_explicit(&pool->done, memory_order_relaxed) != 0;
}

uint32_t
trace_pool_collect(struct trace_pool *pool)
{
    uint32_t list = 0;
    uint32_t number = atomic_exchange_explicit(&pool->done, 0, memory_order_acquire);
    while (number != 0) { /* the newest is on top: reversed here */
        struct trace *trace = &pool->traces[number - 1];
        uint32_t before = atomic_load_explicit(&trace->next, memory_order_relaxed);
        atomic_store_explicit(&trace->next, list, memory_order_relaxed);
        list = number;
        number = before;
    }
    return list;
}

struct trace *
trace_pool_step(struct trace_pool *pool, uint32_t *list)
{
    if (*list == 0)
        return NULL;
    struct trace *trace = &pool->traces[*list - 1];
    *list = atomic_load_explicit(&trace->next, memory_order_relaxed);
    return trace;
}
