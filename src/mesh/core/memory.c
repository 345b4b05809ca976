/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { ELEMENTS_MIN = 16, CHUNK_BYTES = 16384, ALIGNMENT = 16 };

struct memory_chunk {
    struct memory_chunk *next;
    size_t used;
    size_t size;
    size_t spare; /* keeps the bytes aligned */
    unsigned char bytes[];
};

void
memory_grow(void **array, uint32_t *capacity, uint32_t wanted, size_t size)
{
    if (wanted <= *capacity)
        return;
    uint32_t grown = *capacity < ELEMENTS_MIN ? ELEMENTS_MIN : *capacity;
    while (grown < wanted) {
        CHECK(grown <= UINT32_MAX / 2);
        grown *= 2;
    }
    unsigned char *memory = reallocarray(*array, grown, size);
    CHECK(memory != NULL);
    memset(memory + *capacity * size, 0, (grown - *capacity) * size);
    *array = memory;
    *capacity = grown;
}

void *
memory_copy(const void *data, size_t size)
{
    void *copy = malloc(size);
    CHECK(copy != NULL);
    memcpy(copy, data, size);
    return copy;
}

void
memory_arena_fini(struct memory_arena *arena)
{
    while (arena->chunks != NULL) {
        struct memory_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        free(chunk);
    }
}

void
memory_arena_reset(struct memory_arena *arena)
{
    while (arena->chunks != NULL && arena->chunks->next != NULL) {
        struct memory_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        free(chunk);
    }
    if (arena->chunks != NULL)
        arena->chunks->used = 0;
}

void *
memory_arena_take(struct memory_arena *arena, size_t size)
{
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct memory_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->size - chunk->used < size) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        chunk = malloc(sizeof(*chunk) + room);
        CHECK(chunk != NULL);
        *chunk = (struct memory_chunk){.next = arena->chunks, .size = room};
        arena->chunks = chunk;
    }
    void *taken = chunk->bytes + chunk->used;
    chunk->used += size;
    return taken;
}

const char *
memory_arena_join(struct memory_arena *arena, const char *const *parts, size_t count)
{
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(parts[i]);
    char *text = memory_arena_take(arena, bytes);
    char *at = text;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(parts[i]);
        memcpy(at, parts[i], length);
        at += length;
    }
    *at = '\0';
    return text;
}
