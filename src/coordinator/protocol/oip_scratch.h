/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that lives from one request to the next reset: allocating is adding to a number. What did
 * not fit goes into further chunks; the next reset makes one chunk of them all, so that after the
 * first few requests nothing is allocated any more. A chunk that a rare request needed is not kept.
 */
#pragma once

#include <stddef.h>

enum { SCRATCH_BYTES_START = 4096, SCRATCH_BYTES_KEPT_MAX = 65536 };

struct oip_chunk;

struct oip_scratch {
    struct oip_chunk *chunks; /* the one to allocate from, then full ones */
    size_t used;              /* of the first */
    size_t total;             /* bytes of all chunks */
};

/* Aligned for any type; not zeroed. NULL: out of memory. */
void *oip_scratch_allocate(struct oip_scratch *scratch, size_t bytes);

/* Everything allocated so far is gone. */
void oip_scratch_reset(struct oip_scratch *scratch);

void oip_scratch_fini(struct oip_scratch *scratch);
