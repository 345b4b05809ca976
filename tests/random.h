/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers that come again with the same seed: splitmix64. The state is the caller's, starts
 * as the seed, any number will do, and is for one thread.
 */
#pragma once

#include <stdint.h>

static inline uint64_t
random_draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
