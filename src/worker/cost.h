/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a run, with all that a worker does around it: learned from the runs themselves as a
 * fixed part and a part per item. Pure.
 *
 *  1. The line is a least squares fit in which each run counts 31/32 of the one after it, so about
 *     the last 64 matter.
 *  2. Batches that hardly differ in size say what a run costs, not how that divides. The division
 *     of the last fit that could tell is kept then; before there was one all is fixed, because
 *     that admits too much once, where the opposite would keep batches small, and itself untested.
 *  3. The first run of a process is forgotten when the second has come: its caches and pages were
 *     cold.
 *  4. A run of more than eight times what was expected is set aside: a process that was stopped
 *     for a while, or a machine, has not become slow. If the next one takes so long, too, it has:
 *     what was known is forgotten, and both count. While less than four runs are known, they are
 *     forgotten, too, when one takes less than an eighth: it was they that were stopped. What is
 *     expected here goes by the size of the batch even while nothing is known of the division.
 *  5. What is dropped for the sake of an expectation must not rest on one that is no longer tested:
 *     one without a run in the last second is not used for that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing known. */
struct cost {
    uint32_t runs;      /* counted up to 2 */
    bool divided;       /* there was a fit that could tell */
    double fixed_items; /* then: as how many items the fixed part counts */
    double weight;      /* sums over the runs, each with its weight: of 1, items, ns, … */
    double items;
    double ns;
    double items_items;
    double items_ns;
    uint32_t aside_items; /* of a run that was set aside; 0: none was */
    double aside_ns;
    double spread_ns; /* moving mean of how far runs were from what was expected */
    int64_t ran_ns;   /* when the last run ended */
};

struct cost_line {
    double fixed_ns;
    double item_ns;
};

/* `items` >= 1. */
void cost_learn(struct cost *cost, uint32_t items, int64_t run_ns, int64_t ended_ns);

/* Zeros when nothing is known. */
struct cost_line cost_line(const struct cost *cost);

/* How long a run of so many items should take; 0: not known. */
int64_t cost_expect_ns(const struct cost *cost, uint32_t items);

/* The same for deciding what not to run: 0 also when rule 5 forbids it. */
int64_t cost_tested_ns(const struct cost *cost, uint32_t items, int64_t now_ns);
