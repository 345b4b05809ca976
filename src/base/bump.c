/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bump.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct bump_chunk {
    struct bump_chunk *next;
    size_t bytes;
    _Alignas(max_align_t) unsigned char data[];
};

enum { ALIGNMENT = _Alignof(max_align_t) };

static struct bump_chunk *
add_chunk(struct bump *bump, size_t bytes)
{
    struct bump_chunk *chunk = malloc(sizeof(*chunk) + bytes);
    if (chunk == NULL)
        return NULL;
    chunk->next = bump->chunks;
    chunk->bytes = bytes;
    bump->chunks = chunk;
    bump->used = 0;
    bump->total += bytes;
    return chunk;
}

void *
bump_try(struct bump *bump, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct bump_chunk *chunk = bump->chunks;
    if (chunk == NULL || bytes > chunk->bytes - bump->used) {
        size_t least = bump->total < BUMP_BYTES_FIRST ? BUMP_BYTES_FIRST : bump->total;
        chunk = add_chunk(bump, bytes < least ? least : bytes);
        if (chunk == NULL)
            return NULL;
    }
    void *piece = chunk->data + bump->used;
    bump->used += bytes;
    return piece;
}

void *
bump_take(struct bump *bump, size_t bytes)
{
    void *piece = bump_try(bump, bytes);
    CHECK(piece != NULL);
    return piece;
}

void *
bump_take_zeroed(struct bump *bump, size_t bytes)
{
    return memset(bump_take(bump, bytes), 0, bytes);
}

void
bump_reset(struct bump *bump)
{
    size_t total = bump->total;
    if (bump->chunks != NULL && (bump->chunks->next != NULL || total > BUMP_BYTES_KEPT_MAX)) {
        bump_fini(bump);
        /* A failed allocation here is no failure: the next one tries again. */
        (void)add_chunk(bump, total < BUMP_BYTES_KEPT_MAX ? total : BUMP_BYTES_KEPT_MAX);
    }
    bump->used = 0;
}

void
bump_fini(struct bump *bump)
{
    for (struct bump_chunk *chunk = bump->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *bump = (struct bump){0};
}
