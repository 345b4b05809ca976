/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping and waking, the whole protocol in one place. Each process has one doorbell and is the
 * only one to sleep on it; any process may ring it.
 *
 *     sleeper                               waker
 *     doorbell_prepare(): asleep = 1        makes work visible
 *                         full fence        doorbell_ring(): full fence
 *     looks for work once more                               asleep? → 0, sequence++, FUTEX_WAKE
 *     none: doorbell_sleep()
 *     some: doorbell_cancel()
 *
 * The fences forbid the one bad outcome: that the sleeper misses the work and the waker misses the
 * flag. A bell whose owner is awake costs the waker a fence and a load. A waker that is killed half
 * way leaves a sleeper whose flag is clear, which no doorbell_ring would wake: therefore repair
 * wakes unconditionally, and every sleep has a time-out.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/layout.h"

/* Announces a sleep. Returns the value for doorbell_sleep. */
uint32_t doorbell_prepare(struct shm_doorbell *bell);
/* Takes the announcement back. */
void doorbell_cancel(struct shm_doorbell *bell);
/* Sleeps until rung, or for `timeout_ns`. False: time-out or signal. */
bool doorbell_sleep(struct shm_doorbell *bell, uint32_t prepared, int64_t timeout_ns);

/* Wakes the owner if it sleeps; the work must be visible before. True: it slept. */
bool doorbell_ring(struct shm_doorbell *bell);

/* Wakes the owner unconditionally; repair does this. */
void doorbell_wake(struct shm_doorbell *bell);

/*
 * Several bells at once: the caller's own, and others on which any process may sleep
 * (client_regions.h). A ring of such a bell wakes one of its sleepers. Its `asleep` says that a
 * worker sleeps and none that is awake is sure to look; sleepers do not clear it.
 */
enum { DOORBELLS_MAX = 33 };

struct doorbells {
    struct shm_doorbell *bells[DOORBELLS_MAX]; /* the first is the caller's own */
    uint32_t prepared[DOORBELLS_MAX];
    uint32_t count;
};

/* Like doorbell_prepare(), for several bells. The caller fills in `bells` and `count` before. */
void doorbells_prepare(struct doorbells *doorbells);
void doorbells_cancel(struct doorbells *doorbells);
/* Without futex_waitv (Linux before 5.16, a container's filter) this sleeps on the process's own
 * bell alone, for at most DOORBELLS_BLIND_NS. */
bool doorbells_sleep(struct doorbells *doorbells, int64_t timeout_ns);

#define DOORBELLS_BLIND_NS INT64_C(1000000)

/* Returns true if this process can sleep on several bells; else errno says why. Asks the kernel. */
bool doorbells_can_wait(void);

/*
 * The time to poll before sleeping. Private to the process. Successful polling doubles the budget,
 * unsuccessful polling halves it; a sleep shorter than the limit raises it to twice the sleep. A
 * limit of 0: never poll.
 *
 * Between two looks the process yields (spin_pause), because the awaited process may want this CPU.
 * If no process wants it, a yield costs a few hundred nanoseconds. If another process takes the CPU
 * and keeps it, a yield costs much, because the scheduler prefers a woken sleeper to a process that
 * yielded: a yield that lasts too long therefore bars polling for a multiple of its length.
 */
struct spin {
    int64_t limit_ns;
    int64_t budget_ns;
    int64_t barred_until_ns;
};

enum {
    SPIN_BUDGET_MIN_NS = 1000,
    SPIN_LIMIT_DEFAULT_NS = 200 * 1000,
    SPIN_PAUSE_NS_MAX = 2500 * 1000, /* longer than a neighbour that gives the CPU back by itself */
    SPIN_BAR_FACTOR = 32,            /* bounds the time lost by yielding to a thirty-second */
};

void spin_init(struct spin *spin, int64_t limit_ns);
void spin_rewarded(struct spin *spin);
void spin_failed(struct spin *spin);
void spin_after_sleep(struct spin *spin, int64_t slept_ns);

/* Returns for how long to poll from now on. */
int64_t spin_budget(const struct spin *spin, int64_t now_ns);

/* Yields between two looks. Returns the time afterwards. */
int64_t spin_pause(struct spin *spin, int64_t now_ns);
