/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping and waking, the whole protocol in one place. Each process has one doorbell and is the
 * only one to sleep on it; anybody may ring it.
 *
 *     sleeper                               waker
 *     doorbell_prepare(): asleep = 1        makes work visible
 *                         full fence        doorbell_ring(): full fence
 *     looks for work once more                               asleep? → 0, sequence++, FUTEX_WAKE
 *     none: doorbell_sleep()
 *     some: doorbell_cancel()
 *
 * The fences forbid the one bad outcome: that the sleeper does not see the work and the waker does
 * not see the flag. A bell whose owner is awake costs the waker a fence and a load. A waker that is
 * killed half way leaves a sleeper whose flag is clear, and whom no doorbell_ring would wake any
 * more: so repair wakes whether the flag is set or not, and every sleep ends by itself after a
 * while.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/layout.h"

/* Says that the caller is about to sleep; returns what to give to doorbell_sleep. */
uint32_t doorbell_prepare(struct shm_doorbell *bell);
/* Not going to sleep after all. */
void doorbell_cancel(struct shm_doorbell *bell);
/* Sleeps until rung, or for `timeout_ns`. False: it was the time-out (or a signal). */
bool doorbell_sleep(struct shm_doorbell *bell, uint32_t prepared, int64_t timeout_ns);

/* Wakes the owner if it sleeps. The work must have been made visible before. True if it slept. */
bool doorbell_ring(struct shm_doorbell *bell);

/* Wakes the owner whatever the flag says: for repair. */
void doorbell_wake(struct shm_doorbell *bell);

/*
 * Several bells at once: one's own, and others on which anybody may sleep (guests.h). Of those who
 * sleep on such a bell one ring wakes one. Its `asleep` says that somebody sleeps and nobody who is
 * awake is sure to look; it is not the sleeper's to clear.
 */
enum { DOORBELLS_MAX = 33 };

struct doorbells {
    struct shm_doorbell *bells[DOORBELLS_MAX]; /* the first is one's own */
    uint32_t prepared[DOORBELLS_MAX];
    uint32_t count;
};

/* As those of one bell; the bells and their number are filled in before. */
void doorbells_prepare(struct doorbells *doorbells);
void doorbells_cancel(struct doorbells *doorbells);
/* Without futex_waitv (Linux before 5.16, a container's filter) on one's own bell alone, for at
 * most DOORBELLS_BLIND_NS. */
bool doorbells_sleep(struct doorbells *doorbells, int64_t timeout_ns);

#define DOORBELLS_BLIND_NS INT64_C(1000000)

/* Whether this process can sleep on several bells. Asks the kernel; errno says why not. */
bool doorbells_can_wait(void);

/*
 * How long to look before sleeping: private to the process. Rewarded looking doubles the budget,
 * vain looking halves it; a sleep that turns out shorter than the limit shows how long looking
 * would have had to last. A limit of 0 means never to spin.
 *
 * The spinning process yields between two looks (spin_pause): the process that is waited for may
 * want this very CPU, and then pausing only keeps it from running. Where nobody wants it, that
 * costs a few hundred nanoseconds. It costs much where somebody takes the CPU and keeps it: a
 * woken sleeper goes before that process, one that gave way does not. So giving way that lasted
 * long bars looking, for many times as long.
 */
struct spin {
    int64_t limit_ns;
    int64_t budget_ns;
    int64_t barred_until_ns;
};

enum {
    SPIN_BUDGET_MIN_NS = 1000,
    SPIN_LIMIT_DEFAULT_NS = 200 * 1000,
    SPIN_PAUSE_NS_MAX =
        2500 * 1000,      /* more than a neighbour takes that gives the CPU back by itself */
    SPIN_BAR_FACTOR = 32, /* so that at most a thirty-second of the time is lost by giving way */
};

void spin_init(struct spin *spin, int64_t limit_ns);
void spin_rewarded(struct spin *spin);
void spin_in_vain(struct spin *spin);
void spin_after_sleep(struct spin *spin, int64_t slept_ns);

/* For how long to look from now on. */
int64_t spin_budget(const struct spin *spin, int64_t now_ns);

/* Between two looks; returns the time after it. */
int64_t spin_pause(struct spin *spin, int64_t now_ns);
