/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the core's tables. It is taken in steps that double; out of memory ends the process
 * (CHECK), because half a step has no sensible continuation.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Room for `wanted` elements of `size` bytes at *array; new ones are zero. `capacity` says how many
 * there are, and grows to at least twice what it was. */
void memory_grow(void **array, uint32_t *capacity, uint32_t wanted, size_t size);

/* A copy of so many bytes, malloc'ed. */
void *memory_copy(const void *data, size_t size);

struct memory_chunk;

/* Memory that is given back at once: what the actions of a step point to. */
struct memory_arena {
    struct memory_chunk *chunks; /* the first is being filled */
};

void memory_arena_fini(struct memory_arena *arena);
/* Frees all that was taken; keeps one chunk. */
void memory_arena_reset(struct memory_arena *arena);
void *memory_arena_take(struct memory_arena *arena, size_t size);
/* One text of several. */
const char *memory_arena_join(struct memory_arena *arena, const char *const *parts, size_t count);
