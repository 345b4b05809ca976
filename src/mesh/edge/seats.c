/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/seats.h"

#include <stdlib.h>

#include "base/check.h"

enum { SEATS_FIRST = 64 };

void
seats_init(struct seats *seats, uint32_t max)
{
    *seats = (struct seats){.max = max};
}

void
seats_fini(struct seats *seats)
{
    free(seats->held);
    free(seats->free);
}

static void
grow(struct seats *seats)
{
    uint32_t capacity = seats->capacity == 0 ? SEATS_FIRST : 2 * seats->capacity;
    seats->held = realloc(seats->held, capacity * sizeof(*seats->held));
    seats->free = realloc(seats->free, capacity * sizeof(*seats->free));
    CHECK(seats->held != NULL && seats->free != NULL);
    seats->capacity = capacity;
}

uint32_t
seats_take(struct seats *seats, void *what)
{
    uint32_t number;
    if (seats->free_count > 0)
        number = seats->free[--seats->free_count];
    else if (seats->used < seats->max) {
        if (seats->used == seats->capacity)
            grow(seats);
        number = seats->used++;
    } else
        return SEAT_NONE;
    seats->held[number] = what;
    return number;
}

void
seats_give(struct seats *seats, uint32_t number)
{
    CHECK(number < seats->used && seats->held[number] != NULL);
    seats->held[number] = NULL;
    seats->free[seats->free_count++] = number;
}
