/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a run, with all that a worker does around it: learned from the runs as a fixed part
 * and a part per item. Pure.
 *
 *  1. The line is a least squares fit in which each run counts 31/32 of the next one, so about the
 *     last 64 matter.
 *  2. Batches of nearly equal size show the cost of a run but not its division. The division of the
 *     last fit that showed it is then kept. Before there was one, the whole cost is fixed: that
 *     admits too much once, whereas the opposite would keep batches small and itself untested.
 *  3. The first run of a process is forgotten after the second: its caches and pages were cold.
 *  4. A run of more than eight times the expected cost is set aside, because a process or machine
 *     that was stopped has not become slow. If the next run takes as long, it has: the old
 *     knowledge is forgotten, and both runs count. While fewer than four runs are known, they are
 *     also forgotten when a run takes less than an eighth, because then those runs were the ones
 *     that were stopped. This rule expects by batch size even while the division is unknown.
 *  5. Items may not be dropped for an expectation that is no longer tested: without a run in the
 *     last second it is not used for that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing known. */
struct cost {
    uint32_t runs;      /* counted up to 2 */
    bool divided;       /* a fit has shown the division */
    double fixed_items; /* if divided: the fixed part, in items */
    double weight;      /* weighted sums over the runs: of 1, items, ns, … */
    double items;
    double ns;
    double items_items;
    double items_ns;
    uint32_t aside_items; /* of a run set aside; 0: none */
    double aside_ns;
    double spread_ns; /* moving mean of runs' deviation from expectation */
    int64_t ran_ns;   /* end of the last run */
};

struct cost_line {
    double fixed_ns;
    double item_ns;
};

/* Learns from a run. `items` >= 1. */
void cost_learn(struct cost *cost, uint32_t items, int64_t run_ns, int64_t ended_ns);

/* Returns the line; zeros if nothing is known. */
struct cost_line cost_line(const struct cost *cost);

/* Returns the expected time of a run of `items`; 0: unknown. */
int64_t cost_expect_ns(const struct cost *cost, uint32_t items);

/* Like cost_expect_ns(), but for deciding what to drop: also returns 0 when rule 5 forbids it. */
int64_t cost_tested_ns(const struct cost *cost, uint32_t items, int64_t now_ns);
