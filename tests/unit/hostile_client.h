/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes of a hostile local client into its own region: anything, anywhere, in ways that go for
 * one part of it at a time, so that what reads the others gets further. Every store is one of a
 * whole word: a reader that loads twice may see two.
 */
#pragma once

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>

#include "../random.h"
#include "shm/arena.h"
#include "shm/client_regions.h"
#include "shm/region.h"

enum way {
    WAY_PAYLOADS, /* descriptors and tables */
    WAY_RINGS,    /* cells and hints */
    WAY_WORDS,    /* of slots and blocks */
    WAY_SLOTS,    /* times, flags, texts */
    WAY_BELLS,
    WAY_HEADER,
    WAY_HOLES, /* pages taken out of the file */
    WAY_ANYWHERE,
    WAYS,
};

/* Where such a client writes next: 8 bytes of the region. */
static inline char *
place_of(const struct region *region, enum way way, uint64_t *random)
{
    const struct region_layout *layout = &region->layout;
    uint64_t at = random_draw(random);
    switch (way) {
    case WAY_PAYLOADS:
        if (at & 1)
            return (char *)region_slot(region, (at >> 1) % region->slots.count) +
                   offsetof(struct shm_slot, payload) + (at >> 32) % 8 * 8;
        return arena_block(region, (at >> 1) % layout->block_count) + (at >> 32) % 64 * 8;
    case WAY_RINGS:
        return region->base + layout->slot_rings_offset +
               at % ((layout->block_words_offset - layout->slot_rings_offset) / 8) * 8;
    case WAY_WORDS:
        if (at & 1)
            return (char *)region_slot(region, (at >> 1) % region->slots.count);
        return region->base + layout->block_words_offset + (at >> 1) % layout->block_count * 8;
    case WAY_SLOTS:
        return (char *)region_slot(region, (at >> 1) % region->slots.count) + 8 +
               (at >> 32) % (sizeof(struct shm_slot) / 8 - 1) * 8;
    case WAY_BELLS:
        return at & 1 ? (char *)&region->header->coordinator_bell
                      : (char *)client_region_bell(region, (at >> 1) % layout->plan.stage_count);
    case WAY_HEADER: return region->base + at % (sizeof(struct region_header) / 8) * 8;
    default: return region->base + at % (layout->region_bytes / 8) * 8;
    }
}

static inline void
write_somewhere(const struct region *region, enum way way, uint64_t *random)
{
    enum { PAGE = 4096 };
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)place_of(region, way, random);
    uint64_t value = random_draw(random);
    if (way == WAY_HOLES) {
        (void)!fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)(value % (region->layout.region_bytes / PAGE) * PAGE), PAGE);
        return;
    }
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    switch (value >> 61) {
    case 0:
    case 1: seen = value; break;
    case 2: seen = value & 7; break;
    case 3: seen += value % 5 - 2; break;
    default: seen ^= UINT64_C(1) << value % 64;
    }
    atomic_store_explicit(word, seen, memory_order_relaxed);
}
