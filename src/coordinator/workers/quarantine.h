/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when a stage's workers are not started again for a while. Pure: time is an argument, and
 * death.c has judged what a death proves. The rules:
 *
 *  1. A death counts if nothing was finished in that life. A death in whose life the stage finished
 *     an item ends the row, so neither a poison request nor random kills make a row among requests
 *     that are served.
 *  2. A death that the modelet cannot be blamed for (killed from outside with nothing in hand)
 *     neither counts nor ends the row.
 *  3. `deaths_max` in a row begin the quarantine: nobody is started for `length_ns`; then a single
 *     worker is tried.
 *  4. If that one dies and has finished nothing, or does not get ready, quarantine begins again.
 *  5. If it finishes an item or lives for TRIAL_MS, the stage is restored. A worker that only lived
 *     may have had no request to die of, so half of the row stays.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum quarantine_state {
    QUARANTINE_NONE,
    QUARANTINE_ON,    /* until `until_ns` */
    QUARANTINE_TRIAL, /* one worker is being tried */
};

enum death_blame {
    DEATH_BLAMELESS,
    DEATH_FRUITLESS, /* nothing was finished in that life */
    DEATH_FRUITFUL,
};

struct quarantine {
    uint32_t deaths_max; /* 0: never */
    int64_t length_ns;
    enum quarantine_state state;
    uint32_t deaths; /* in a row */
    int64_t until_ns;
};

/* The time that a worker on trial must live after it is ready. */
enum { TRIAL_MS = 1000 };

void quarantine_init(struct quarantine *quarantine, uint32_t deaths_max, int64_t length_ns);

/* A worker of the stage has died. True: quarantine begins now, or begins again. */
bool quarantine_on_death(struct quarantine *quarantine, enum death_blame blame, int64_t now_ns);

/* True: the quarantine is over, and one worker is to be tried. */
bool quarantine_try(struct quarantine *quarantine, int64_t now_ns);

/* The worker on trial lives. */
enum trial_result {
    TRIAL_LIVED,
    TRIAL_FRUITFUL /* and something was finished since it was ready */
};
void quarantine_lift(struct quarantine *quarantine, enum trial_result result);
