/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a, 64 bits: for tables, and for comparing contents that no attacker forges. Start with
 * HASH_FNV1A_SEED, or with a seed of your own where others choose the keys; pass the result of one
 * call to the next to hash several parts as one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HASH_FNV1A_SEED UINT64_C(0xcbf29ce484222325)

static inline uint64_t
hash_fnv1a(uint64_t seed, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        /* clang 14 reports the second byte of an initialized number as garbage */
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
        seed = (seed ^ at[i]) * UINT64_C(0x100000001b3);
    return seed;
}
