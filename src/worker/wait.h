/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the open batch of a stage with `batch_wait: adaptive` waits for company. Pure: arrivals,
 * runs and circumstances are told with their times, nothing is waited for. Times are nanoseconds of
 * the monotonic clock, in the order in which they are told; those of arrivals were written by other
 * processes and are moved between the last event and now. All that can be wrong with an answer is
 * that a batch closes early, or waits up to `batch_wait_ms`, over which batch.h watches.
 *
 * It learns:
 *
 *  1. Gaps: the time to the next arrival from the last event, which is the end of our run or the
 *     arrival before. Each of the two has a table of gaps by octave. A gap counts if somebody was
 *     in hand, and as far as it was seen while we did not run: one in which a batch closed says
 *     that nothing had come by then. An arrival that we see later than it takes to wake up found
 *     us without a CPU, and with us perhaps those who make the items: the gap after it begins when
 *     we see it. With each 100th gap a table is halved, so that what was learned fades, and is
 *     tried again in the end.
 *  2. Whether our runs hold up those who make the items, because the CPU is theirs, too: of the
 *     items that should have come in a run, at the rate at which they come when we do not run, but
 *     no more than were in flight elsewhere, the part that did not. A gap longer than a run counts
 *     in that rate as a run's time in which nothing came. Old runs fade by a thirty-second with
 *     each run. Who never looks does not know the rate: then all are thought to be held up, so that
 *     it is tried.
 *     With models, of the items that came when others were held, the part that joined others of its
 *     model: an item of another model saves no run. It fades as the runs do.
 *  3. The crowd: how many may come at all. As many as are in flight now, or were in the last batch
 *     and came while it ran. A lone caller is a crowd of one.
 *
 * It decides, with n in hand, each time that all that is there was taken:
 *
 *  4. Nobody is expected once n is the crowd.
 *  5. Company gains nine tenths of the fixed part of a run, which one run less costs (cost.h;
 *     before that is known, nothing is gained), in the part in which items join others (2); times
 *     the rest of the crowd, too, in the part in which our runs hold them up (2); where that is not
 *     known, times those in flight elsewhere. It makes the run longer by the part of an item, for
 *     each of the n.
 *  6. Waiting costs its length: for each of the n, for the one that comes, and for each that is
 *     expected while we run, of the rest of the crowd.
 *  7. By the gaps (1), from the time that has passed since the last event on: the chance that the
 *     next has come by the end of each octave, times its gain, less what waiting until then costs
 *     in the mean. The batch stays open until the octave's end where that is most, and closes at
 *     once if it is nowhere above nothing. A gap that was not seen yet may end in each octave with
 *     a chance of a half: so what costs little is tried. What lies beyond the time at which the
 *     batch closes anyway counts for nothing, because it is never tried.
 *  8. After a run the callers just answered come back together: then the next one stands for all of
 *     the crowd that may still come, each for what it is worth by the same reckoning in its turn.
 *
 * So a lone caller is not waited for (3, 4); callers in a loop are waited for if they come back in
 * less time than a run costs, and until the last of them has come (4, 8); Poisson arrivals at a
 * CPU of our own are taken as they come (6); and where all share a CPU, batches grow with the
 * crowd (5).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { WAIT_OCTAVES = 28 }; /* the first ends after a microsecond, the last begins after a minute */

enum wait_event { WAIT_AFTER_RUN, WAIT_AFTER_ARRIVAL, WAIT_EVENTS };

struct wait_gaps {
    uint16_t ended[WAIT_OCTAVES]; /* by an arrival */
    uint16_t cut[WAIT_OCTAVES];   /* we did not look on */
    uint16_t count;               /* of both, since the last halving */
};

/* All zero: nothing known. */
struct wait {
    struct wait_gaps gaps[WAIT_EVENTS];
    double looked_items; /* what came while we did not run, in how long: fading */
    double looked_ns;
    double ran_ns;    /* how long we ran, and what came meanwhile: fading */
    double ran_items; /* … */
    double due_items; /* rule 2: what should have come, and did, as far as it should: fading */
    double came_items;
    double others_items; /* with models: came when others were held, and joined others: fading */
    double joined_items;
    double run_ns;      /* the last run's length */
    uint32_t elsewhere; /* in flight when the last batch closed, but not in it */
    uint32_t around;    /* in the last batch, and those that came while it ran */
    enum wait_event after;
    int64_t event_ns; /* the last event that we know of */
    int64_t seen_ns;  /* since when we have seen that nothing came after it */
    bool looking;     /* we have looked since, without a break */
    bool found;       /* after a run: something had come while it went on */
};

struct wait_moment {
    int64_t now_ns;
    uint32_t count;   /* in hand, at least 1 */
    uint32_t flight;  /* in the pipeline, with those in hand */
    int64_t fixed_ns; /* what a run costs; 0: not known */
    int64_t item_ns;  /* and each item in it */
    int64_t close_ns; /* when the batch closes even if company is worth waiting for */
};

/* An item was taken that came to the stage at `enqueued_ns`. */
void wait_arrived(struct wait *wait, int64_t enqueued_ns, int64_t now_ns);

/* An item was taken while others were held, in a stage with models. */
void wait_joined(struct wait *wait, bool joined);

/* Until when company is worth waiting for; not after now: it is not. */
int64_t wait_until(const struct wait *wait, const struct wait_moment *moment);

/* The batch closed, for whatever reason. */
void wait_closed(struct wait *wait, const struct wait_moment *moment);

/* It ran, with `items`, and `arrived` came to the stage meanwhile. */
void wait_ran(struct wait *wait, int64_t began_ns, int64_t ended_ns, uint32_t items,
              uint32_t arrived);

/* Somebody else gathers: what comes until our next event is not seen by us. */
void wait_looked_away(struct wait *wait);
