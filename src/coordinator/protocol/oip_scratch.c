/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_scratch.h"

#include <stdint.h>
#include <stdlib.h>

struct oip_chunk {
    struct oip_chunk *next;
    size_t capacity;
    _Alignas(max_align_t) unsigned char bytes[];
};

enum { SCRATCH_ALIGNMENT = _Alignof(max_align_t) };

static void
free_chunks(struct oip_scratch *scratch)
{
    while (scratch->chunks != NULL) {
        struct oip_chunk *next = scratch->chunks->next;
        free(scratch->chunks);
        scratch->chunks = next;
    }
    scratch->used = 0;
    scratch->total = 0;
}

static struct oip_chunk *
add_chunk(struct oip_scratch *scratch, size_t capacity)
{
    struct oip_chunk *chunk = malloc(sizeof(*chunk) + capacity);
    if (chunk == NULL)
        return NULL;
    chunk->next = scratch->chunks;
    chunk->capacity = capacity;
    scratch->chunks = chunk;
    scratch->used = 0;
    scratch->total += capacity;
    return chunk;
}

void *
oip_scratch_allocate(struct oip_scratch *scratch, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    struct oip_chunk *chunk = scratch->chunks;
    if (chunk == NULL || bytes > chunk->capacity - scratch->used) {
        size_t capacity =
            scratch->total < SCRATCH_BYTES_START ? SCRATCH_BYTES_START : scratch->total;
        chunk = add_chunk(scratch, bytes < capacity ? capacity : bytes);
        if (chunk == NULL)
            return NULL;
    }
    void *memory = chunk->bytes + scratch->used;
    scratch->used += bytes;
    return memory;
}

void
oip_scratch_reset(struct oip_scratch *scratch)
{
    size_t total = scratch->total;
    if (scratch->chunks != NULL &&
        (scratch->chunks->next != NULL || total > SCRATCH_BYTES_KEPT_MAX)) {
        free_chunks(scratch);
        /* Out of memory here is no failure: the next allocation tries again. */
        (void)add_chunk(scratch, total < SCRATCH_BYTES_KEPT_MAX ? total : SCRATCH_BYTES_KEPT_MAX);
    }
    scratch->used = 0;
}

void
oip_scratch_fini(struct oip_scratch *scratch)
{
    free_chunks(scratch);
}
