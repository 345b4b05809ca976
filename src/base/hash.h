/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a, 64 bits: for tables, and for telling contents apart that nobody forges. Start with
 * HASH_FNV1A_SEED, or with a seed of one's own where keys are chosen by others; feed the result of
 * one call to the next to hash several parts as one.
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
        /* clang 14 takes the second byte of an initialized number for garbage */
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
        seed = (seed ^ at[i]) * UINT64_C(0x100000001b3);
    return seed;
}
