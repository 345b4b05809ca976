/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how long the open batch of a stage with `batch_wait: adaptive` waits for company. Pure:
 * arrivals, runs and circumstances are arguments with their times, in nanoseconds of the monotonic
 * clock and in order. Other processes wrote the times of arrivals; they are moved between the last
 * event and now. The worst effect of a wrong answer is that a batch closes early or waits up to
 * `batch_wait_ms`, which batch.h enforces.
 *
 * It learns:
 *
 *  1. Gaps: the time to the next arrival from the last event, which is the end of our run or the
 *     previous arrival. Each kind of event has a table of gaps by octave. A gap counts if items
 *     were in hand, and as far as we observed it while not running: a gap in which a batch closed
 *     says that nothing had come by then. If we see an arrival later than the time to wake up, we
 *     were without a CPU, and perhaps the processes that make the items were too: the next gap then
 *     begins when we see the arrival. Every 100 gaps a table is halved, so that old knowledge fades
 *     and is eventually tested again.
 *  2. Whether our runs delay the callers, because they need our CPU: of the items that should have
 *     come during a run, at the rate at which they come while we do not run but at most as many as
 *     were in flight elsewhere, the fraction that did not. A gap longer than a run counts in that
 *     rate as one run's time without arrivals. Old runs fade by a thirty-second with each run.
 *     While the rate is unknown, all items count as delayed, so that waiting is tried. With models,
 *     also the fraction of items that joined others of their model when items were held, since an
 *     item of another model saves no run; it fades likewise.
 *  3. The population: how many items may come at all. As many as are in flight now, or were in the
 * last batch and came while it ran. A lone caller is a population of one.
 *
 * It decides, with n items in hand, each time that all waiting items were taken:
 *
 *  4. No item is expected once n is the population.
 *  5. Company saves nine tenths of the fixed part of a run (cost.h; nothing while that is unknown)
 *     in the fraction of items that join others (2). That counts once, and again for each item of
 *     the rest of the population that our runs delay (2) or, while that is unknown, for each item
 * in flight elsewhere. Company makes the run longer by one item's part, for each of the n.
 *  6. Waiting costs its length: for each of the n, for the item that comes, and for each of the
 *     rest of the population that is expected during our run.
 *  7. For the end of each octave, by the gaps (1) and counted from the last event: the chance that
 *     the next item has come, times its gain, minus the mean cost of waiting until then. The batch
 *     stays open until the end of the best octave, and closes at once if none is positive. A gap
 *     that was never observed ends in each octave with a chance of a half, so that cheap waits are
 *     tried. Nothing counts beyond the time at which the batch closes anyway, because it cannot be
 *     tried.
 *  8. After a run the callers just answered return together: then the next item stands for the
 *     whole rest of the population, each item valued in the same way in its turn.
 *
 * Consequences: a lone caller never waits (3, 4). Callers in a loop are waited for if they return
 * in less time than a run costs, until the last of them has come (4, 8). Poisson arrivals at a CPU
 * of our own are taken as they come (6). Where all share a CPU, batches grow with the population
 * (5).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { WAIT_OCTAVES = 28 }; /* from one microsecond to more than a minute */

enum wait_event { WAIT_AFTER_RUN, WAIT_AFTER_ARRIVAL, WAIT_EVENTS };

struct wait_gaps {
    uint16_t ended[WAIT_OCTAVES]; /* ended by an arrival */
    uint16_t cut[WAIT_OCTAVES];   /* observed no further */
    uint16_t count;               /* of both, since the last halving */
};

/* All zero: nothing known. */
struct wait {
    struct wait_gaps gaps[WAIT_EVENTS];
    double looked_items; /* arrivals while not running, and the time: fading */
    double looked_ns;
    double ran_ns;    /* time of runs, and arrivals meanwhile: fading */
    double ran_items; /* … */
    double due_items; /* rule 2: expected and actual arrivals: fading */
    double came_items;
    double others_items; /* with models: arrivals while items were held, and those that joined
                          * others: fading */
    double joined_items;
    double run_ns;      /* length of the last run */
    uint32_t elsewhere; /* in flight when the last batch closed, but not in it */
    uint32_t around;    /* in the last batch, plus arrivals while it ran */
    enum wait_event after;
    int64_t event_ns; /* the last known event */
    int64_t seen_ns;  /* start of our observation that nothing came after it */
    bool looking;     /* we have observed without a break since */
    bool found;       /* after a run: items had come during it */
};

struct wait_moment {
    int64_t now_ns;
    uint32_t count;   /* in hand, at least 1 */
    uint32_t flight;  /* in the pipeline, including those in hand */
    int64_t fixed_ns; /* fixed cost of a run; 0: unknown */
    int64_t item_ns;  /* cost per item */
    int64_t close_ns; /* when the batch closes in any case */
};

/* An item was taken that came to the stage at `enqueued_ns`. */
void wait_arrived(struct wait *wait, int64_t enqueued_ns, int64_t now_ns);

/* An item was taken while others were held, in a stage with models: JOINS others of its model. */
enum wait_company { WAIT_STRANGER, WAIT_JOINS };
void wait_met(struct wait *wait, enum wait_company company);

/* Returns until when company is worth waiting for; `now_ns` or earlier: not at all. */
int64_t wait_until(const struct wait *wait, const struct wait_moment *moment);

/* The batch closed, for any reason. */
void wait_closed(struct wait *wait, const struct wait_moment *moment);

/* The batch ran, with `items`; `arrived` came to the stage meanwhile. */
void wait_ran(struct wait *wait, int64_t began_ns, int64_t ended_ns, uint32_t items,
              uint32_t arrived);

/* Another worker gathers: we do not observe arrivals until our next event. */
void wait_looked_away(struct wait *wait);
