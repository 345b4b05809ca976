/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of several models side by side: a group for each model of which items are held. Pure, as
 * batch.h, whose rules say when a group is due by its own clock; which one goes is said here:
 *
 *  1. An item joins the group of its model, or begins one.
 *  2. What is held is at most two batches, the one that will run and one ahead; a stage of
 *     singletons, or without models, holds one. No more is taken when so many are held, or when
 *     some group takes no more.
 *  3. Of the groups that are due, the one with the oldest item goes. So a busy model, whose batches
 *     are due at once, cannot starve the others: each of its runs makes them relatively older.
 *  4. When no more can be taken and none is due, the group with the oldest item goes (CROWDED).
 *  5. An item that is to run alone is taken when nothing else is held. Until then it waits in the
 *     ring, nothing behind it is taken, and the group with the oldest item goes.
 *
 * Items held lie at positions, numbers from 0 on, that the caller has an item for.
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
    uint32_t capacity; /* how many are held at most */
    uint32_t held;
    uint32_t count;            /* groups that are open */
    bool filled;               /* one of them takes no more */
    struct batch *batches;     /* of the groups; room for `capacity` */
    struct groups_item *items; /* those that are held, as they came; likewise */
    uint32_t *positions;       /* theirs, in the same order, and behind them those that are free */
};

enum groups_ahead { GROUPS_ONE, GROUPS_BY_MODEL };

/* Takes its memory; false: there is none. */
bool groups_init(struct groups *groups, uint32_t size, int64_t wait_ns, enum groups_ahead ahead);
/* Before the first item: batches are adaptive (batch.h). */
void groups_adapt(struct groups *groups);
void groups_fini(struct groups *groups);

/* Whether another item may be taken. */
static inline bool
groups_full(const struct groups *groups)
{
    return groups->filled || groups->held == groups->capacity;
}

/* Where the next item is to be put; not when they are full. */
static inline uint32_t
groups_position(const struct groups *groups)
{
    return groups->positions[groups->held];
}

/* Takes the item at groups_position. */
void groups_take(struct groups *groups, struct batch_item item, int64_t now_ns);

/* The next item in the ring runs alone, and something is held: rule 5. */
void groups_refuse(struct groups *groups);

struct groups_moment {
    int64_t now_ns;
    const struct cost *cost;
    int64_t margin_ns; /* left before a deadline beyond the run that is expected */
    bool draining;
    int64_t company_until_ns;
};

struct groups_due {
    enum batch_state state;
    uint32_t group;        /* not BATCH_OPEN: the one that goes */
    int64_t look_again_ns; /* BATCH_OPEN: when one closes if nothing is taken before */
};

/* To be asked when all that is there was taken. Nothing held: open and due never. */
struct groups_due groups_due(const struct groups *groups, const struct groups_moment *moment);

/* The group with the oldest item; only if there is one. */
uint32_t groups_oldest(const struct groups *groups);

/* When the first group closes for the age of its oldest item; TIME_NEVER_NS if none is open. */
int64_t groups_close_ns(const struct groups *groups);

/* Whether the item that was taken last joined others of its model. */
bool groups_joined(const struct groups *groups);

/* How many items a group has. */
static inline uint32_t
groups_size(const struct groups *groups, uint32_t group)
{
    return groups->batches[group].count;
}

/* Takes a group out: its positions, as the items came, which are free from then on. Returns how
 * many; `*model`: whose they are. */
uint32_t groups_close(struct groups *groups, uint32_t group, uint32_t *positions, uint64_t *model);

/* Takes out those items of which `gone` says so; it is asked once for each, in the order in which
 * they came. */
void groups_sieve(struct groups *groups, int64_t now_ns,
                  bool (*gone)(void *context, uint32_t position), void *context);

/* Takes everything out, as it came. */
uint32_t groups_clear(struct groups *groups, uint32_t *positions);
