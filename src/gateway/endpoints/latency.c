/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/endpoints/latency.h"

#include <string.h>

#include "base/clock.h"

/* Two values for each power of two: bucket i ends at 2^(i / 2) or 1.5 times that, in units of
 * 64 µs; the last at 36 minutes. */
static int64_t
bucket_end_us(uint32_t bucket)
{
    int64_t power = INT64_C(64) << bucket / 2;
    return bucket % 2 == 0 ? power : power + power / 2;
}

static void
turn(struct latency_window *window, int64_t now_ns)
{
    int64_t half = now_ns / LATENCY_HALF_NS;
    if (half == window->half)
        return;
    if (half == window->half + 1)
        memcpy(window->before, window->now, sizeof(window->before));
    else
        memset(window->before, 0, sizeof(window->before));
    memset(window->now, 0, sizeof(window->now));
    window->half = half;
}

void
latency_note(struct latency_window *window, int64_t now_ns, int64_t took_ns)
{
    uint32_t bucket = 0;
    turn(window, now_ns);
    while (bucket + 1 < LATENCY_BUCKETS && bucket_end_us(bucket) * NS_PER_US < took_ns)
        bucket++;
    window->now[bucket]++;
}

int64_t
latency_quantile_us(struct latency_window *window, int64_t now_ns, double quantile)
{
    uint64_t count = 0;
    turn(window, now_ns);
    for (uint32_t i = 0; i < LATENCY_BUCKETS; i++)
        count += window->now[i] + (uint64_t)window->before[i];
    double wanted = quantile * (double)count;
    uint64_t below = 0;
    for (uint32_t i = 0; i < LATENCY_BUCKETS && count > 0; i++) {
        below += window->now[i] + (uint64_t)window->before[i];
        if ((double)below >= wanted)
            return bucket_end_us(i);
    }
    return -1;
}
