/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers for tests: splitmix64, which repeats itself from the same seed. The caller owns
 * the state. It starts as the seed, which may be any number, and belongs to one thread.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns SHOAL_SEED, or `otherwise` if that is not set, and prints it as SHOAL_SEED=<seed>. */
static inline uint64_t
random_seed(uint64_t otherwise)
{
    const char *given = getenv("SHOAL_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : otherwise;
    printf("SHOAL_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

static inline uint64_t
random_draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Uniform in (0, 1]. */
static inline double
random_unit(uint64_t *state)
{
    return (double)((random_draw(state) >> 11) + 1) / (double)(UINT64_C(1) << 53);
}
