/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/wait.h"

#include "base/check.h"
#include "base/clock.h"

enum { OCTAVE_LOG2 = 10, GAPS_MAX = 100 };

static const double KEPT = 31.0 / 32;
static const double GAIN_PART = 0.9;

/* More than the delay with which a worker sees an item that wakes it, if its CPU is free. */
static const int64_t LATE_NS = 50 * (int64_t)NS_PER_US;

/* The least fraction of our time spent looking from which a rate can be known. */
static const double LOOKED_PART = 1.0 / 64;

/* ---- gaps: rule 1 ---- */

static uint32_t
octave_of(int64_t gap_ns)
{
    uint64_t units = (uint64_t)gap_ns >> OCTAVE_LOG2;
    uint32_t octave = units == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(units);
    return octave < WAIT_OCTAVES ? octave : WAIT_OCTAVES - 1;
}

static int64_t
octave_end_ns(uint32_t octave)
{
    return INT64_C(1) << (OCTAVE_LOG2 + octave);
}

static int64_t
octave_begin_ns(uint32_t octave)
{
    return octave == 0 ? 0 : octave_end_ns(octave - 1);
}

static void
gaps_add(struct wait_gaps *gaps, int64_t length_ns, bool arrival)
{
    uint32_t octave = octave_of(length_ns);
    if (arrival)
        gaps->ended[octave]++;
    else if (length_ns - octave_begin_ns(octave) > octave_end_ns(octave) - length_ns)
        octave++; /* nearly to the octave's end: without it only gaps that ended there would count,
                   * and arrivals would look certain */
    if (!arrival && octave > 0) /* else not even the first octave was observed to its end */
        gaps->cut[octave < WAIT_OCTAVES ? octave : WAIT_OCTAVES - 1]++;
    if (++gaps->count < GAPS_MAX)
        return;
    gaps->count = 0;
    for (uint32_t i = 0; i < WAIT_OCTAVES; i++) {
        gaps->ended[i] /= 2;
        gaps->cut[i] -= gaps->cut[i] / 2; /* rounds up: octaves that were tried without success are
                                             tried less */
    }
}

/* Returns the length of the current gap as we observed it. For an item that was there when we
 * looked again it is known from its beginning. */
static int64_t
gap_ns(const struct wait *wait, int64_t time_ns)
{
    int64_t begin_ns = time_ns < wait->seen_ns ? wait->event_ns : wait->seen_ns;
    return time_ns > begin_ns ? time_ns - begin_ns : 0;
}

/* Ends the current gap: by an arrival, or because we stop looking. */
static void
gap_over(struct wait *wait, int64_t time_ns, bool arrival)
{
    if (!wait->looking)
        return;
    int64_t length_ns = gap_ns(wait, time_ns);
    if (wait->after == WAIT_AFTER_ARRIVAL || wait->found)
        gaps_add(&wait->gaps[wait->after], length_ns, arrival);
    bool within = (double)length_ns <= wait->run_ns;
    wait->looked_ns += within ? (double)length_ns : wait->run_ns;
    wait->looked_items += arrival && within ? 1 : 0;
}

/* ---- what happens ---- */

void
wait_arrived(struct wait *wait, int64_t enqueued_ns, int64_t now_ns)
{
    bool in_run = wait->after == WAIT_AFTER_RUN && enqueued_ns <= wait->event_ns;
    if (wait->looking && in_run) {
        wait->found = true;
        return; /* counted by wait_ran */
    }
    int64_t time_ns = enqueued_ns < now_ns ? enqueued_ns : now_ns;
    if (time_ns < wait->event_ns)
        time_ns = wait->event_ns;
    gap_over(wait, time_ns, true);
    wait->after = WAIT_AFTER_ARRIVAL;
    wait->event_ns = time_ns;
    wait->seen_ns = now_ns - time_ns > LATE_NS ? now_ns : time_ns;
    wait->looking = true;
}

void
wait_met(struct wait *wait, enum wait_company company)
{
    wait->others_items += 1;
    wait->joined_items += company == WAIT_JOINS;
}

static uint32_t
elsewhere(const struct wait_moment *moment)
{
    return moment->flight > moment->count ? moment->flight - moment->count : 0;
}

void
wait_closed(struct wait *wait, const struct wait_moment *moment)
{
    gap_over(wait, moment->now_ns, false);
    wait->looking = false;
    wait->elsewhere = elsewhere(moment);
}

/* Rule 2. */
static void
learn_held_up(struct wait *wait, uint32_t arrived)
{
    wait->due_items *= KEPT;
    wait->came_items *= KEPT;
    if (wait->looked_ns <= 0)
        return;
    double due = wait->looked_items / wait->looked_ns * wait->run_ns;
    if (due > wait->elsewhere)
        due = wait->elsewhere;
    wait->due_items += due;
    wait->came_items += arrived < due ? arrived : due;
}

void
wait_ran(struct wait *wait, int64_t began_ns, int64_t ended_ns, uint32_t items, uint32_t arrived)
{
    wait->after = WAIT_AFTER_RUN;
    wait->event_ns = ended_ns;
    wait->seen_ns = ended_ns;
    wait->looking = true;
    wait->found = false;
    wait->run_ns = ended_ns > began_ns ? (double)(ended_ns - began_ns) : 1;
    wait->around = items + arrived;
    learn_held_up(wait, arrived);
    wait->looked_items *= KEPT;
    wait->looked_ns *= KEPT;
    wait->others_items *= KEPT;
    wait->joined_items *= KEPT;
    wait->ran_items = KEPT * wait->ran_items + arrived;
    wait->ran_ns = KEPT * wait->ran_ns + wait->run_ns;
}

void
wait_looked_away(struct wait *wait)
{
    wait->looking = false;
}

/* ---- what is decided ---- */

/* Rule 3. */
static uint32_t
population(const struct wait *wait, const struct wait_moment *moment)
{
    return wait->around > moment->flight ? wait->around : moment->flight;
}

/* Returns how many items a run delays: rules 2 and 5. Without any due items, none. */
static double
held_up(const struct wait *wait, const struct wait_moment *moment, uint32_t expected)
{
    if (wait->looked_ns <= LOOKED_PART * wait->ran_ns)
        return elsewhere(moment);
    double part = (wait->due_items - wait->came_items) / (wait->due_items + 1);
    return part * (expected - moment->count);
}

struct prospect {
    double worth_ns;  /* summed over the items concerned */
    int64_t until_ns; /* since the event */
};

/* Rule 7, when `since_ns` of the gap have passed and the batch closes at `close_ns` of it
 * anyway. */
static struct prospect
prospect(const struct wait_gaps *gaps, int64_t since_ns, int64_t close_ns, double gain_ns,
         double delayed)
{
    double reached[WAIT_OCTAVES]; /* gaps that reached an octave and were not cut in it */
    double later = 0;
    for (uint32_t i = WAIT_OCTAVES; i-- > 0;) {
        reached[i] = later + gaps->ended[i];
        later += gaps->ended[i] + gaps->cut[i];
    }
    struct prospect best = {0, since_ns};
    double worth_ns = 0;
    double open = 1; /* the chance that no item has come before the octave */
    for (uint32_t i = octave_of(since_ns); i < WAIT_OCTAVES; i++) {
        int64_t begin_ns = octave_begin_ns(i) > since_ns ? octave_begin_ns(i) : since_ns;
        int64_t end_ns = octave_end_ns(i) < close_ns ? octave_end_ns(i) : close_ns;
        if (end_ns <= begin_ns)
            break;
        double left_ns = (double)(end_ns - begin_ns);
        double left = left_ns / (double)(octave_end_ns(i) - octave_begin_ns(i));
        double chance = left > 0 ? left * (gaps->ended[i] + 0.5) / (reached[i] + 1) : 0;
        worth_ns += open * (chance * gain_ns - delayed * left_ns * (1 - chance / 2));
        open *= 1 - chance;
        if (worth_ns > best.worth_ns)
            best = (struct prospect){worth_ns, end_ns};
        if (worth_ns + open * gain_ns <= best.worth_ns)
            break; /* not worth it even if it were certain from here on */
    }
    return best;
}

int64_t
wait_until(const struct wait *wait, const struct wait_moment *moment)
{
    CHECK(moment->count >= 1);
    uint32_t expected = population(wait, moment);
    if (moment->count >= expected || !wait->looking || moment->close_ns <= moment->now_ns)
        return moment->now_ns;
    int64_t since_ns = gap_ns(wait, moment->now_ns);
    int64_t left_ns = moment->close_ns - moment->now_ns;
    double count = moment->count;
    double fixed_ns = (double)moment->fixed_ns;
    double item_ns = (double)moment->item_ns;
    double joins = (wait->joined_items + 1) / (wait->others_items + 1);
    double gain_ns = GAIN_PART * fixed_ns * joins * (1 + held_up(wait, moment, expected));
    double still = expected - count - 1; /* after the next item */
    double in_run =
        wait->ran_ns > 0 ? wait->ran_items / wait->ran_ns * (fixed_ns + item_ns * count) : 0;
    double delayed = count + 1 + (in_run < still ? in_run : still);
    gain_ns -= item_ns * count;
    double all_ns = gain_ns;
    if (wait->after == WAIT_AFTER_RUN && still > 0) /* rule 8: mean of the rest */
        all_ns += still * prospect(&wait->gaps[WAIT_AFTER_ARRIVAL], 0, left_ns,
                                   gain_ns - item_ns * still / 2, delayed + still)
                              .worth_ns;
    struct prospect next =
        prospect(&wait->gaps[wait->after], since_ns, since_ns + left_ns, all_ns, delayed);
    return next.worth_ns > 0 ? moment->now_ns + next.until_ns - since_ns : moment->now_ns;
}
