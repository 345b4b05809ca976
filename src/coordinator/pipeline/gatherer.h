/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets a submitting thread answer requests as well: while requests are in flight it looks at the
 * rings in turn with its other sources of work, so that under load no other thread has to be woken;
 * before it blocks it hands over to the lanes' own gather threads (DESIGN.md, "Gathering"). One
 * per thread:
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
    /* the lanes it gathers for now, each with a reference */
    struct lane *lanes[CONFIG_PIPELINES_MAX * LANES_MAX];
    uint32_t lane_count;
    struct payload_view view;
};

/* `pipelines` is kept, not copied; their `spin_ns` limits how long the thread looks. */
void gatherer_init(struct gatherer *gatherer, struct pipeline *const *pipelines,
                   uint32_t pipeline_count);

/* This thread has submitted a request. True: it has called gatherer_take and will look for the
 * answer; false: perhaps nobody will. */
bool gatherer_on_submitted(void);

/* Makes this thread gather for the lanes with requests in flight. Returns false if there are
 * none. */
bool gatherer_take(struct gatherer *gatherer);

/*
 * Calls `step` and gathers, in turn, until nothing is in flight or neither has found work for as
 * long as looking pays. `step` does the thread's other work without waiting and returns how much it
 * did; negative: the thread is to end. False: `step` was negative.
 */
bool gatherer_poll(struct gatherer *gatherer, int (*step)(void *context), void *context);

/* Leaves the lanes to their gather threads, which answers wake again; call before the thread
 * blocks. Returns false if answers have come meanwhile and this thread gathers on. */
bool gatherer_hand_over(struct gatherer *gatherer);

/* Adapts how long the thread looks, after it was blocked for `blocked_ns`. */
void gatherer_woke(struct gatherer *gatherer, int64_t blocked_ns);

/* Drops all references: the thread ends. */
void gatherer_leave(struct gatherer *gatherer);
