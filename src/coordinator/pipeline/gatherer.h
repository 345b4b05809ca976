/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a thread that submits requests also answers them: while requests are in flight it looks at
 * the rings itself, in turn with whatever else it waits for, so that under load no other thread has
 * to be woken; before it blocks it hands over to the lanes' own gather threads (DESIGN.md, "Who
 * gathers"). One per thread:
 *
 *     for (;;) {
 *         if (gatherer_take(g)) {
 *             gatherer_poll(g, step, context);
 *             if (!gatherer_hand_over(g))
 *                 continue;
 *         }
 *         block until there is something to do
 *         gatherer_woke(g, how long that took)
 *     }
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/config/config.h"
#include "coordinator/pipeline/pipeline.h"
#include "shm/doorbell.h"
#include "shm/payload.h"

struct gatherer {
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct spin spin;
    /* those it gathers for now, each with a reference */
    struct lane *lanes[CONFIG_PIPELINES_MAX * LANES_MAX];
    uint32_t lane_count;
    struct payload_view view;
};

/* The pipelines are kept, not copied; their `spin_ns` is the limit of looking. */
void gatherer_init(struct gatherer *gatherer, struct pipeline *const *pipelines,
                   uint32_t pipeline_count);

/* This thread has submitted. True: it is one of these (it has called gatherer_take), and will look;
 * false: nobody is sure to. */
bool gatherer_on_submitted(void);

/* From now on this thread gathers for the lanes that have requests in flight. False: there are
 * none. */
bool gatherer_take(struct gatherer *gatherer);

/*
 * Calls `step` and gathers, in turn, until nothing is in flight or neither has found anything to do
 * for as long as looking is worth while. `step` does what else the thread has to do, without
 * waiting, and returns how much that was; negative: it is over. False: it was over.
 */
bool gatherer_poll(struct gatherer *gatherer, int (*step)(void *context), void *context);

/* Before the thread blocks: the lanes' gather threads are woken for answers again, the lanes are
 * left. False: answers have come meanwhile, and it gathers on. */
bool gatherer_hand_over(struct gatherer *gatherer);

/* After the thread was blocked: what that teaches about looking. */
void gatherer_woke(struct gatherer *gatherer, int64_t blocked_ns);

/* Drops all references: the thread ends. */
void gatherer_leave(struct gatherer *gatherer);
