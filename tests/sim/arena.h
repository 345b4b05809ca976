/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that lives as long as a world does: taken in pieces, zeroed, given back at once. A world's
 * messages point into each other and into etcd's values; so nothing has an owner of its own.
 */
#pragma once

#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
};

/* Aligned for anything; ends the process when there is none. */
void *arena_take(struct arena *arena, size_t size);
void *arena_copy(struct arena *arena, const void *data, size_t size);
void arena_fini(struct arena *arena);
