/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers for what is under way, the smallest that were used before first: they are indexes in the
 * core's tables. Memory grows by doubling, up to the most there ever were.
 */
#pragma once

#include <stdint.h>

#define SEAT_NONE UINT32_MAX

struct seats {
    void **held;    /* by number; NULL: free */
    uint32_t *free; /* numbers that were given back, the last on top */
    uint32_t capacity;
    uint32_t used; /* numbers that were ever taken */
    uint32_t free_count;
    uint32_t max;
};

void seats_init(struct seats *seats, uint32_t max);
void seats_fini(struct seats *seats);

/* SEAT_NONE: `max` are under way. `what` is not NULL. */
uint32_t seats_take(struct seats *seats, void *what);
void seats_give(struct seats *seats, uint32_t number);

static inline uint32_t
seats_count(const struct seats *seats)
{
    return seats->used - seats->free_count;
}
