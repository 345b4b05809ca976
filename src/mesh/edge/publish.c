/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures are those of the node, and of each of several pools.
 *
 * N1. At most every 2 s.
 * N2. At once: draining, full or no longer full, capacity changed by 2 %, loading or no longer.
 * N3. After 40 s: used space changed by a fifth, the oldest use by 20 s or a sixteenth of its age,
 *     copies by ten or 15 %, loads by three or across the number of loaders, calls a minute by a
 *     hundred or a tenth.
 * N4. After 160 s: anything.
 */
#include "mesh/edge/publish.h"

enum {
    AT_ONCE_MS = 2000,
    SOME_MS = 40000,
    ANY_MS = 160000,
    COPIES = 10,
    LOADS = 3,
    CALLS = 100,
    OLDEST_MS = 20000,
};

static uint64_t
distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Returns whether it changed by more than that percentage. */
static bool
moved(uint64_t was, uint64_t is, uint64_t percent)
{
    return distance(was, is) > was / 100 * percent + was % 100 * percent / 100;
}

/* One of the rules for the node's figures, or for those of a pool. */
typedef bool figures_rule(const struct mesh_figures *was, const struct mesh_figures *is,
                          int64_t age_ms);

static bool
is_urgent(const struct mesh_figures *was, const struct mesh_figures *is, int64_t age_ms)
{
    (void)age_ms;
    return was->full != is->full || moved(was->capacity_units, is->capacity_units, 2) ||
           (was->loading == 0) != (is->loading == 0);
}

static bool
oldest_moved(int64_t was_ms, int64_t is_ms, int64_t age_ms)
{
    uint64_t by = distance((uint64_t)was_ms, (uint64_t)is_ms);
    return by > OLDEST_MS || by > (uint64_t)age_ms / 16;
}

static bool
is_somewhat(const struct mesh_figures *was, const struct mesh_figures *is, int64_t age_ms)
{
    uint64_t used = was->capacity_units - was->free_units;
    return moved(used, is->capacity_units - is->free_units, 20) ||
           oldest_moved(was->oldest_ms, is->oldest_ms, age_ms) ||
           distance(was->copies, is->copies) >= COPIES || moved(was->copies, is->copies, 15) ||
           distance(was->loading, is->loading) >= LOADS ||
           distance(was->calls_per_minute, is->calls_per_minute) >= CALLS ||
           moved(was->calls_per_minute, is->calls_per_minute, 10);
}

static bool
is_any(const struct mesh_figures *was, const struct mesh_figures *is, int64_t age_ms)
{
    (void)age_ms;
    return was->capacity_units != is->capacity_units || was->free_units != is->free_units ||
           was->oldest_ms != is->oldest_ms || was->copies != is->copies ||
           was->loading != is->loading || was->calls_per_minute != is->calls_per_minute;
}

static bool
by_figures(figures_rule *rule, const struct publish *said, const struct publish *now,
           int64_t age_ms)
{
    bool due = rule(&said->figures, &now->figures, age_ms);
    for (uint32_t i = 0; i < now->pool_count; i++)
        due = due || rule(&said->pools[i], &now->pools[i], age_ms);
    return due;
}

/* More loads than loaders, or no longer. */
static bool
has_crossed(const struct publish *said, const struct publish *now)
{
    return (said->figures.loading > said->loaders) != (now->figures.loading > now->loaders);
}

bool
publish_is_due(const struct publish *said, const struct publish *now, int64_t age_ms)
{
    if (age_ms < AT_ONCE_MS) /* N1 */
        return false;
    if (said->draining != now->draining || by_figures(is_urgent, said, now, age_ms)) /* N2 */
        return true;
    if (age_ms >= SOME_MS && (said->loaders != now->loaders || has_crossed(said, now) ||
                              by_figures(is_somewhat, said, now, age_ms))) /* N3 */
        return true;
    return age_ms >= ANY_MS && by_figures(is_any, said, now, age_ms); /* N4 */
}
