/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the core's tables. It grows in doubling steps; running out ends the process (CHECK)
 * because half a step has no sensible continuation.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/bump.h"

/* Ensures room for `wanted` elements of `size` bytes at *array; new ones are zero. `*capacity` is
 * the count and at least doubles. */
void scratch_grow(void **array, uint32_t *capacity, uint32_t wanted, size_t size);

/* A malloc'ed copy. */
void *scratch_copy(const void *data, size_t size);

/* Concatenates texts into one piece. */
const char *memory_join(struct bump *bump, const char *const *parts, size_t count);
