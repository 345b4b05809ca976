/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when a batch closes. Pure: time and circumstances are arguments. The caller offers the
 * waiting items and then asks. The rules, in order of precedence:
 *
 *  1. A batch holds items of one model. The next item of another model closes it as if it were
 *     full.
 *  2. An item that must run alone makes a batch of its own, and closes the one before it likewise.
 *  3. A batch closes when it has `size` items. A size of 1 makes single items.
 *  4. It closes at once when the stage drains.
 *  5. It closes when its oldest item has been at the stage for `wait`. Time that an item spent in
 *     the ring while the workers were busy counts, and no item waits longer than `wait` for
 *     company. With a wait of 0 a batch takes only the waiting items.
 *  6. It closes when the tightest deadline in it leaves only the expected time of a run.
 *  7. If the stage's wait is adaptive, it closes when no company is expected that is worth waiting
 *     for: wait.h says until when.
 *
 * groups.h manages open batches of several models.
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
    bool adaptive;   /* rule 7; false in a new batch */

    uint32_t count;
    bool refused;        /* an item of another model must be offered again */
    bool alone;          /* its only item runs alone */
    uint64_t model;      /* of all items */
    int64_t oldest_ns;   /* the earliest arrival at the stage */
    int64_t tightest_ns; /* the earliest deadline */
};

struct batch_item {
    uint64_t model; /* model_word; 0: no models */
    bool alone;
    int64_t enqueued_ns;
    int64_t deadline_ns;
};

struct batch_moment {
    int64_t now_ns;
    int64_t run_expected_ns; /* to be left before a deadline */
    bool draining;
    int64_t company_until_ns; /* rule 7 */
};

struct batch_due {
    enum batch_state state;
    int64_t look_again_ns; /* BATCH_OPEN: when it closes if no item comes before */
};

/* Makes an empty batch. */
void batch_init(struct batch *batch, uint32_t size, int64_t wait_ns);
/* Empties the batch for the next round. */
void batch_begin(struct batch *batch);

static inline bool
batch_full(const struct batch *batch)
{
    return batch->count == batch->size || batch->alone;
}

/* The next item in the ring runs alone and stays there for the next batch. */
void batch_refuse(struct batch *batch);

/* Takes an item. False: offer it again to the next batch. */
bool batch_offer(struct batch *batch, struct batch_item item, int64_t now_ns);

/* Returns when the oldest item will have been at the stage for `wait` (rule 5). Only if there is an
 * item. */
int64_t batch_wait_over_ns(const struct batch *batch);

/* Call when all waiting items were offered. An empty batch is open and due never. */
struct batch_due batch_due(const struct batch *batch, struct batch_moment moment);
