/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission under overload: the workers' reports of their runs
 * become a forecast of when a request that came now would be answered, and that, the slots there
 * are, its priority and what its caller already has in flight become a verdict. Pure; the rules and
 * what was rejected stand in DESIGN-overload.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/protocol/priority.h"

/* ---- from the workers' words ---- */

/* A worker's report, each word loaded once. Nothing of it is trusted. */
struct forecast_words {
    uint64_t fixed_ns;
    uint64_t item_ns;
    uint64_t spread_ns;
    int64_t ran_ns;   /* when its last run ended; 0: none yet */
    int64_t began_ns; /* when the one that is under way began; 0: none is */
};

struct forecast_stage {
    uint32_t batch_size; /* 0 counts as 1 */
    uint32_t live;       /* workers */
    uint32_t heard;      /* of these, with an estimate that may be used */
    uint64_t fixed_ns;   /* sums over those */
    uint64_t item_ns;
    uint64_t spread_ns;
    int64_t run_ns; /* how long the longest run under way has lasted */
};

/* All zero: nothing is known, and nobody is refused for it. */
struct forecast {
    int64_t fixed_ns; /* passing all stages alone, but for what depends on the batch … */
    int64_t slope_ns; /* … this for each item in it … */
    int64_t full_ns;  /* … and this at most */
    int64_t item_ns;  /* from one answer to the next when there is always something to do */
    int64_t run_ns;   /* how long the longest run under way has lasted */
};

enum { FORECAST_WORDS = sizeof(struct forecast) / sizeof(int64_t) };

/* An estimate that no run has tested for ten seconds is left out, unless one is under way. */
void forecast_hear(struct forecast_stage *stage, const struct forecast_words *words,
                   int64_t now_ns);
void forecast_add(struct forecast *forecast, const struct forecast_stage *stage);

/* How long a request would take that finds `waiting` others before it. */
int64_t forecast_take_ns(const struct forecast *forecast, uint32_t waiting);

/* The wait told to a caller that found all slots or all memory taken, `waiting` requests ahead:
 * as forecast; where nothing is known, as long again as the run under way has lasted. */
uint32_t forecast_retry_ms(const struct forecast *forecast, uint32_t waiting);

/* ---- the verdict ---- */

struct demand {
    enum priority priority;
    int64_t limit_ns;  /* until the answer is due; TIME_NEVER_NS: no limit */
    uint32_t waiting;  /* requests that are not answered yet */
    uint32_t at_once;  /* so many waiting are no wait: workers of the first stage */
    uint32_t held;     /* slots in use, by requests and by answers still being sent */
    uint32_t slots;    /* there are */
    uint32_t own_held; /* slots that this caller has */
    uint32_t callers;  /* that have any, this one included; at least 1 */
};

enum verdict { VERDICT_ADMIT, VERDICT_LATE, VERDICT_FULL, VERDICT_SHARE };

struct judgement {
    enum verdict verdict;
    int64_t take_ns;   /* what was predicted */
    int64_t open_ns;   /* VERDICT_LATE: what it might have taken */
    uint32_t retry_ms; /* refused: when there should be room */
};

/* The wait told to a refused caller: at most; at least when nothing is known; for workers that
 * start, which is a matter of a few hundred milliseconds. */
enum { RETRY_MS_MAX = 10000, RETRY_UNKNOWN_MS = 50, RETRY_STARTING_MS = 250 };

struct judgement forecast_judge(const struct forecast *forecast, const struct demand *demand);
