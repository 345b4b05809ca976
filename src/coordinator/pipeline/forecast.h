/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission under overload. The workers' reports of their runs become a forecast of when a new
 * request would be answered; the forecast, the free slots, the request's priority and its caller's
 * requests in flight become a verdict. Pure; DESIGN-overload.md has the rules and the rejected
 * alternatives.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/protocol/priority.h"

/* ---- from the workers' words ---- */

/* A worker's report, each word loaded once. Not trusted. */
struct forecast_words {
    uint64_t fixed_ns;
    uint64_t item_ns;
    uint64_t spread_ns;
    int64_t ran_ns;   /* when its last run ended; 0: none yet */
    int64_t began_ns; /* when the run under way began; 0: none */
};

struct forecast_stage {
    uint32_t batch_size; /* 0 counts as 1 */
    uint32_t live;       /* workers */
    uint32_t reporting;  /* workers of these with a usable estimate */
    uint64_t fixed_ns;   /* this and the next two: sums over those */
    uint64_t item_ns;
    uint64_t spread_ns;
    int64_t run_ns; /* the age of the longest run under way */
};

/* All zero: nothing is known, and nobody is refused by time. */
struct forecast {
    int64_t fixed_ns; /* a request's way through all stages, plus … */
    int64_t slope_ns; /* … this for each item in its batch … */
    int64_t full_ns;  /* … and this at most */
    int64_t item_ns;  /* from one answer to the next under constant load */
    int64_t run_ns;   /* the age of the longest run under way */
};

enum { FORECAST_WORDS = sizeof(struct forecast) / sizeof(int64_t) };

/* Leaves out an estimate that no run has tested for ten seconds, unless a run is under way. */
void forecast_receive(struct forecast_stage *stage, const struct forecast_words *words,
                      int64_t now_ns);
void forecast_add(struct forecast *forecast, const struct forecast_stage *stage);

/* The time that a request would take behind `waiting` others. */
int64_t forecast_take_ns(const struct forecast *forecast, uint32_t waiting);

/* The retry hint for a caller that found all slots or all memory taken, with `waiting` requests
 * ahead: the forecast, or, if nothing is known, the age of the longest run under way. */
uint32_t forecast_retry_ms(const struct forecast *forecast, uint32_t waiting);

/* ---- the verdict ---- */

struct forecast_demand {
    enum priority priority;
    int64_t limit_ns;  /* until the answer is due; TIME_NEVER_NS: no limit */
    uint32_t waiting;  /* unanswered requests */
    uint32_t at_once;  /* workers of the first stage: so many waiting requests are no queue */
    uint32_t held;     /* slots in use, by requests and by answers still being sent */
    uint32_t slots;    /* all slots */
    uint32_t own_held; /* slots of this caller */
    uint32_t callers;  /* callers with slots, this one included; at least 1 */
};

enum verdict { VERDICT_ADMIT, VERDICT_LATE, VERDICT_FULL, VERDICT_SHARE };

struct judgement {
    enum verdict verdict;
    int64_t take_ns;   /* the prediction */
    int64_t open_ns;   /* VERDICT_LATE: the time that was open to it */
    uint32_t retry_ms; /* of a refusal: when there should be room */
};

/* Retry hints: the maximum; the minimum when nothing is known; while workers start. */
enum { RETRY_MS_MAX = 10000, RETRY_UNKNOWN_MS = 50, RETRY_STARTING_MS = 250 };

struct judgement forecast_judge(const struct forecast *forecast,
                                const struct forecast_demand *demand);
