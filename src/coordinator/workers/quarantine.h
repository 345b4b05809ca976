/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a stage's workers are not started again for a while. Pure: time is an argument, and what a
 * death proves has been judged before (death.c). The rules:
 *
 *  1. A death counts if in its life the worker finished nothing. One in whose life the stage
 *     finished an item ends the row: neither a request that kills its workers nor kills at random
 *     make a row among requests that are served.
 *  2. A death that nobody can blame the modelet for (killed from outside, with nothing in hand)
 *     neither counts nor ends the row.
 *  3. `deaths_max` in a row: quarantine. Nobody is started for `length`; then a single worker is
 *     tried.
 *  4. If that one dies and has finished nothing, or does not get ready: quarantine again, at once.
 *  5. If it has finished an item, or lives on for TRIAL_NS, the stage is restored. Who only lived
 *     may have had no request to die of: half of the row stays.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum quarantine_state {
    QUARANTINE_NONE,
    QUARANTINE_ON,    /* until `until_ns` */
    QUARANTINE_TRIAL, /* one worker is tried */
};

enum death_blame {
    DEATH_BLAMELESS,
    DEATH_FRUITLESS, /* nothing was finished in its life */
    DEATH_FRUITFUL,
};

struct quarantine {
    uint32_t deaths_max; /* 0: never */
    int64_t length_ns;
    enum quarantine_state state;
    uint32_t deaths; /* in a row */
    int64_t until_ns;
};

/* How long a worker that is tried has to live, from its readiness on. */
enum { TRIAL_MS = 1000 };

void quarantine_init(struct quarantine *quarantine, uint32_t deaths_max, int64_t length_ns);

/* A worker of the stage has died. True: quarantine begins now, or begins again. */
bool quarantine_on_death(struct quarantine *quarantine, enum death_blame blame, int64_t now_ns);

/* True: the quarantine is over, and one worker is to be tried. */
bool quarantine_try(struct quarantine *quarantine, int64_t now_ns);

/* The worker that was tried lives; `fruitful`: something was finished since it was ready. */
void quarantine_lift(struct quarantine *quarantine, bool fruitful);
