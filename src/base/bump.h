/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bump allocator: pieces are taken one after the other and freed all at once. A full chunk is
 * followed by one of at least the size of all before it. A reset merges them into one, so that
 * after a few rounds no memory is allocated any more; it keeps at most BUMP_BYTES_KEPT_MAX.
 *
 * An allocator of zeros is empty. Pieces are aligned for any type. Not locked.
 */
#pragma once

#include <stddef.h>

enum { BUMP_BYTES_FIRST = 4096, BUMP_BYTES_KEPT_MAX = 65536 };

struct bump_chunk;

struct bump {
    struct bump_chunk *chunks; /* the current one, then full ones */
    size_t used;               /* bytes of the first */
    size_t total;              /* bytes of all chunks */
};

/* NULL: out of memory, or more than SIZE_MAX / 2 bytes. */
void *bump_try(struct bump *bump, size_t bytes);
/* Like bump_try(), but running out of memory ends the process (CHECK). */
void *bump_take(struct bump *bump, size_t bytes);
void *bump_take_zeroed(struct bump *bump, size_t bytes);

/* Frees all pieces, and keeps memory for the next ones. */
void bump_reset(struct bump *bump);
/* Frees all memory. */
void bump_fini(struct bump *bump);
