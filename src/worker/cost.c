/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cost.h"

#include "base/clock.h"

static const double KEPT = 31.0 / 32;

/* The factor beyond which a run is extreme, and the number of runs below which they are not relied
 * on. */
static const double OUTLIER_TIMES = 8;
static const double FEW_RUNS = 4;

/* The least variance of batch sizes that shows a division, relative to their squared mean. */
static const double VARIANCE_LEAST = 1.0 / 16;

static const int64_t TESTED_NS = NS_PER_S;

/* Fits the division from the sums. False: they do not suffice. */
static bool
fit(const struct cost *cost, double *fixed_items)
{
    double mean_items = cost->items / cost->weight;
    double mean_ns = cost->ns / cost->weight;
    double variance = cost->items_items / cost->weight - mean_items * mean_items;
    if (variance < VARIANCE_LEAST * mean_items * mean_items)
        return false;
    double slope = (cost->items_ns / cost->weight - mean_items * mean_ns) / variance;
    double slope_max = mean_ns / mean_items; /* beyond it the fixed part would be negative */
    if (slope > slope_max)
        slope = slope_max;
    if (slope < slope_max / 1000) /* negligible, but avoids a division by zero */
        slope = slope_max / 1000;
    *fixed_items = mean_ns / slope - mean_items;
    return true;
}

struct cost_line
cost_line(const struct cost *cost)
{
    if (cost->weight == 0)
        return (struct cost_line){0, 0};
    double mean_ns = cost->ns / cost->weight;
    if (!cost->divided)
        return (struct cost_line){mean_ns, 0};
    double item_ns = mean_ns / (cost->fixed_items + cost->items / cost->weight);
    return (struct cost_line){cost->fixed_items * item_ns, item_ns};
}

static double
expect(const struct cost *cost, uint32_t items)
{
    struct cost_line line = cost_line(cost);
    return line.fixed_ns + line.item_ns * items;
}

/* The expectation if all of a run's cost is per item; rule 4 takes the extremes of both. */
static double
by_items(const struct cost *cost, uint32_t items)
{
    return cost->ns / cost->items * items;
}

static double
expect_at_most(const struct cost *cost, uint32_t items)
{
    double line_ns = expect(cost, items);
    double items_ns = by_items(cost, items);
    return line_ns > items_ns ? line_ns : items_ns;
}

static double
expect_at_least(const struct cost *cost, uint32_t items)
{
    double line_ns = expect(cost, items);
    double items_ns = by_items(cost, items);
    return line_ns < items_ns ? line_ns : items_ns;
}

static void
learn(struct cost *cost, uint32_t items, double ns)
{
    double expected_ns = expect(cost, items);
    if (cost->weight > 0) {
        double off_ns = ns > expected_ns ? ns - expected_ns : expected_ns - ns;
        cost->spread_ns = KEPT * cost->spread_ns + (1 - KEPT) * off_ns;
    }
    cost->weight = KEPT * cost->weight + 1;
    cost->items = KEPT * cost->items + items;
    cost->ns = KEPT * cost->ns + ns;
    cost->items_items = KEPT * cost->items_items + (double)items * items;
    cost->items_ns = KEPT * cost->items_ns + items * ns;
    cost->divided = fit(cost, &cost->fixed_items) || cost->divided;
}

void
cost_learn(struct cost *cost, uint32_t items, int64_t run_ns, int64_t ended_ns)
{
    if (cost->runs < 2 && ++cost->runs == 2)
        *cost = (struct cost){.runs = 2};
    cost->ran_ns = ended_ns;
    double ns = run_ns > 0 ? (double)run_ns : 1;
    bool extreme = cost->weight > 0 && ns > OUTLIER_TIMES * expect_at_most(cost, items);
    bool were_extreme = cost->weight > 0 && cost->weight < FEW_RUNS &&
                        ns * OUTLIER_TIMES < expect_at_least(cost, items);
    if (were_extreme)
        *cost = (struct cost){.runs = 2, .ran_ns = ended_ns};
    if (extreme && cost->aside_items == 0) {
        cost->aside_items = items;
        cost->aside_ns = ns;
        return;
    }
    if (extreme) {
        struct cost before = *cost;
        *cost = (struct cost){.runs = 2, .ran_ns = ended_ns};
        learn(cost, before.aside_items, before.aside_ns);
    }
    cost->aside_items = 0;
    learn(cost, items, ns);
}

int64_t
cost_expect_ns(const struct cost *cost, uint32_t items)
{
    return (int64_t)expect(cost, items);
}

int64_t
cost_tested_ns(const struct cost *cost, uint32_t items, int64_t now_ns)
{
    return now_ns - cost->ran_ns > TESTED_NS ? 0 : cost_expect_ns(cost, items);
}
