/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on sizes from outside. Every product of dimensions and every sum of an offset and a
 * length goes through these functions; true means that the result fits.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

static inline bool
add_ok(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool
mul_ok(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* Returns true if [offset, offset + length) lies within [0, size). */
static inline bool
range_ok(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}
