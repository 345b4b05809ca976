/* SPDX-License-Identifier: Apache-2.0 */
/* Times of the last 30 to 60 seconds, in buckets of which each is at most half as long again as
 * the one before. Pure. */
#pragma once

#include <stdint.h>

enum { LATENCY_BUCKETS = 51 };
#define LATENCY_HALF_NS (30 * INT64_C(1000000000))

struct latency_window {
    int64_t half;
    uint32_t now[LATENCY_BUCKETS];
    uint32_t before[LATENCY_BUCKETS];
};

void latency_note(struct latency_window *window, int64_t now_ns, int64_t took_ns);
/* The end of the bucket where it is; -1: there was nothing. */
int64_t latency_quantile_us(struct latency_window *window, int64_t now_ns, double quantile);
