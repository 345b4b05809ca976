/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a batch closes. Pure: time and circumstances are arguments, nothing is waited for. The
 * caller offers what there is and then asks; the rules, in the order in which they are looked at:
 *
 *  1. A batch holds items of one model. The next one of another model closes it as if it were full.
 *  2. An item that is to run alone makes a batch of its own. It closes the one before it likewise.
 *  3. It closes when it has `size` items. A size of 1 makes singletons.
 *  4. It closes at once when the stage drains.
 *  5. It closes when its oldest item has been at the stage for `wait`. So time that an item spent
 * in the ring while the workers were busy counts, and no item waits longer than `wait` for company.
 *     A wait of 0 takes what is there.
 *  6. It closes when the tightest deadline in it leaves only the time that a run is expected to
 * take.
 *  7. If the stage's wait is adaptive, it closes when no company is expected that is worth waiting
 *     for: wait.h says until when.
 *
 * Where batches of several models are open side by side: groups.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum batch_state {
    BATCH_OPEN,
    BATCH_CLOSED_SINGLE,
    BATCH_CLOSED_FULL,
    BATCH_CLOSED_WAIT,
    BATCH_CLOSED_DEADLINE,
    BATCH_CLOSED_DRAINING,
    BATCH_CLOSED_ADAPTIVE,
    BATCH_CLOSED_CROWDED, /* by groups.h */
};

struct batch {
    uint32_t size;   /* at least 1 */
    int64_t wait_ns; /* >= 0 */
    bool adaptive;   /* rule 7; of a batch that was just made: not */

    uint32_t count;
    bool refused;        /* an item of another model waits to be offered again */
    bool alone;          /* its one item runs alone */
    uint64_t model;      /* of all items */
    int64_t oldest_ns;   /* the least time of arrival at the stage */
    int64_t tightest_ns; /* the least deadline */
};

struct batch_item {
    uint64_t model; /* model_word; 0: no matter */
    bool alone;
    int64_t enqueued_ns;
    int64_t deadline_ns;
};

struct batch_moment {
    int64_t now_ns;
    int64_t run_expected_ns; /* what is to be left before a deadline */
    bool draining;
    int64_t company_until_ns; /* rule 7: until when to wait for it */
};

struct batch_due {
    enum batch_state state;
    int64_t look_again_ns; /* BATCH_OPEN: when it closes if nothing is offered before */
};

/* An empty batch. */
void batch_init(struct batch *batch, uint32_t size, int64_t wait_ns);
/* Empties it for the next round. */
void batch_begin(struct batch *batch);

static inline bool
batch_full(const struct batch *batch)
{
    return batch->count == batch->size || batch->alone;
}

/* The next item in the ring runs alone: it is left there for the next batch. */
void batch_refuse(struct batch *batch);

/* Takes an item; false: offer it again to the next batch. */
bool batch_offer(struct batch *batch, struct batch_item item, int64_t now_ns);

/* When the oldest item has been at the stage for `wait`: rule 5. Only if there is an item. */
int64_t batch_wait_over_ns(const struct batch *batch);

/* To be asked when all that is there was offered. An empty batch is open and due never. */
struct batch_due batch_due(const struct batch *batch, struct batch_moment moment);
