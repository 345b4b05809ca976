/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of several models side by side: a group for each model of which items are held. Pure.
 * batch.h says when a group is due; these rules say which group goes:
 *
 *  1. An item joins the group of its model, or starts one.
 *  2. At most two batches are held, the one that runs next and one more; a stage of single items or
 *     without models holds one. No more items are taken when that limit is reached or when some
 *     group is full.
 *  3. Of the groups that are due, the one with the oldest item goes. A busy model, whose batches
 *     are due at once, therefore cannot starve the others: each of its runs makes them relatively
 *     older.
 *  4. When no more can be taken and no group is due, the group with the oldest item goes (CROWDED).
 *  5. An item that must run alone is taken when nothing else is held. Until then it waits in the
 *     ring, nothing behind it is taken, and the group with the oldest item goes.
 *
 * Held items are at positions: numbers from 0, for each of which the caller has an item.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker/batch.h"
#include "worker/cost.h"

struct groups_item {
    struct batch_item item;
    uint32_t group;
};

struct groups {
    uint32_t size;     /* of a batch */
    uint32_t capacity; /* maximum of `held` */
    uint32_t held;
    uint32_t count;            /* open groups */
    bool filled;               /* one of them is full */
    struct batch *batches;     /* per group; room for `capacity` */
    struct groups_item *items; /* held items, in order of arrival; room for `capacity` */
    uint32_t *positions;       /* of `items`, in the same order, then the free ones */
};

enum groups_ahead { GROUPS_ONE, GROUPS_BY_MODEL };

/* Allocates. False: no memory. */
bool groups_init(struct groups *groups, uint32_t size, int64_t wait_ns, enum groups_ahead ahead);
/* Makes batches adaptive (batch.h). Call before the first item. */
void groups_adapt(struct groups *groups);
void groups_fini(struct groups *groups);

/* Returns true if no other item may be taken. */
static inline bool
groups_full(const struct groups *groups)
{
    return groups->filled || groups->held == groups->capacity;
}

/* Returns the position for the next item. Not when full. */
static inline uint32_t
groups_position(const struct groups *groups)
{
    return groups->positions[groups->held];
}

/* Takes the item at groups_position. */
void groups_take(struct groups *groups, struct batch_item item, int64_t now_ns);

/* The next item in the ring runs alone while others are held: rule 5. */
void groups_refuse(struct groups *groups);

struct groups_moment {
    int64_t now_ns;
    const struct cost *cost;
    int64_t margin_ns; /* reserve before a deadline, beyond the expected run */
    bool draining;
    int64_t company_until_ns;
};

struct groups_due {
    enum batch_state state;
    uint32_t group;        /* not BATCH_OPEN: the group that goes */
    int64_t look_again_ns; /* BATCH_OPEN: when one closes if no item comes before */
};

/* Call when all waiting items were taken. Without held items the answer is BATCH_OPEN, due
 * never. */
struct groups_due groups_due(const struct groups *groups, const struct groups_moment *moment);

/* Returns the group with the oldest item. Only if items are held. */
uint32_t groups_oldest(const struct groups *groups);

/* Returns when the first group closes for the age of its oldest item; TIME_NEVER_NS: no group is
 * open. */
int64_t groups_close_ns(const struct groups *groups);

/* Returns true if the item taken last joined others of its model. */
bool groups_joined(const struct groups *groups);

/* Returns the number of items of a group. */
static inline uint32_t
groups_size(const struct groups *groups, uint32_t group)
{
    return groups->batches[group].count;
}

/* Removes a group. Writes its positions in order of arrival, which are free from then on, and its
 * model. Returns the number of items. */
uint32_t groups_close(struct groups *groups, uint32_t group, uint32_t *positions, uint64_t *model);

/* Removes the items for which `gone` returns true. Calls it once per item, in order of arrival. */
void groups_sieve(struct groups *groups, int64_t now_ns,
                  bool (*gone)(void *context, uint32_t position), void *context);

/* Removes all items, in order of arrival. Returns their number. */
uint32_t groups_clear(struct groups *groups, uint32_t *positions);
