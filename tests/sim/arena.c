/* SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { CHUNK_BYTES = 256 << 10, ALIGNMENT = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used;
    size_t size;
    size_t spare; /* keeps the bytes aligned */
    unsigned char bytes[];
};

void *
arena_take(struct arena *arena, size_t size)
{
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct arena_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->size - chunk->used < size) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        chunk = malloc(sizeof(*chunk) + room);
        CHECK(chunk != NULL);
        *chunk = (struct arena_chunk){.next = arena->chunks, .size = room};
        arena->chunks = chunk;
    }
    void *taken = chunk->bytes + chunk->used;
    chunk->used += size;
    return memset(taken, 0, size);
}

void *
arena_copy(struct arena *arena, const void *data, size_t size)
{
    void *copy = arena_take(arena, size);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

void
arena_fini(struct arena *arena)
{
    while (arena->chunks != NULL) {
        struct arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        free(chunk);
    }
}
