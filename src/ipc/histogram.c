/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/counters.h"

enum { BUCKETS_EXACT = 8, POWER_EXACT = 3, BUCKETS_PER_POWER = 4, POWER_SHIFT = 2 };

uint32_t
histogram_bucket(uint64_t value)
{
    if (value < BUCKETS_EXACT)
        return (uint32_t)value;
    uint32_t power = 63 - (uint32_t)__builtin_clzll(value);
    uint32_t quarter = (value >> (power - POWER_SHIFT)) % BUCKETS_PER_POWER;
    uint32_t bucket = BUCKETS_EXACT + (power - POWER_EXACT) * BUCKETS_PER_POWER + quarter;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

uint64_t
histogram_bucket_floor(uint32_t bucket)
{
    if (bucket < BUCKETS_EXACT)
        return bucket;
    uint32_t power = (bucket - BUCKETS_EXACT) / BUCKETS_PER_POWER + POWER_EXACT;
    uint64_t quarter = (bucket - BUCKETS_EXACT) % BUCKETS_PER_POWER;
    return (BUCKETS_PER_POWER + quarter) << (power - POWER_SHIFT);
}

static void
add_own(_Atomic uint64_t *word, uint64_t amount)
{
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

void
histogram_record(_Atomic uint64_t *values, enum counter counter, uint64_t value)
{
    _Atomic uint64_t *words = values + counter_offset[counter];
    add_own(&words[0], 1);
    add_own(&words[1], value);
    add_own(&words[2 + histogram_bucket(value)], 1);
}

void
histogram_record_shared(_Atomic uint64_t *values, enum counter counter, uint64_t value)
{
    _Atomic uint64_t *words = values + counter_offset[counter];
    atomic_fetch_add_explicit(&words[0], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&words[1], value, memory_order_relaxed);
    atomic_fetch_add_explicit(&words[2 + histogram_bucket(value)], 1, memory_order_relaxed);
}

uint64_t
histogram_sum(_Atomic uint64_t *values, enum counter counter)
{
    return atomic_load_explicit(values + counter_offset[counter] + 1, memory_order_relaxed);
}

/* Assumes an even distribution within a bucket; the last bucket has no upper end. */
static uint64_t
bucket_value(uint32_t bucket, double share)
{
    uint64_t floor = histogram_bucket_floor(bucket);
    if (bucket + 1 == HISTOGRAM_BUCKETS)
        return floor;
    return floor + (uint64_t)((double)(histogram_bucket_floor(bucket + 1) - floor) * share);
}

uint64_t
histogram_quantile(const uint64_t words[HISTOGRAM_WORDS], double quantile)
{
    /* Counts the buckets alone: a reader may see a count before its bucket. */
    const uint64_t *buckets = words + 2;
    double total = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        total += (double)buckets[i];
    double rank = (quantile > 0 ? quantile < 1 ? quantile : 1 : 0) * total;
    double before = 0;
    uint64_t value = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (buckets[i] == 0)
            continue;
        double count = (double)buckets[i];
        if (before + count >= rank) {
            /* the middle of the value's share, so that the ends stay within the bucket */
            double within = rank - before > 0.5 ? rank - before - 0.5 : 0;
            return bucket_value(i, within / count);
        }
        before += count;
        value = histogram_bucket_floor(i);
    }
    return value;
}

int64_t
histogram_duration(const uint64_t words[HISTOGRAM_WORDS], double quantile)
{
    uint64_t value = histogram_quantile(words, quantile);
    return value < INT64_MAX ? (int64_t)value : INT64_MAX;
}

double
histogram_mean(const uint64_t words[HISTOGRAM_WORDS])
{
    return words[0] > 0 ? (double)words[1] / (double)words[0] : 0;
}
