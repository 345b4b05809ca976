/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks for what no reader of a ring ever meets: slots and blocks that were lost because a modelet
 * wrote over a word, a cell or a hint. An honest death is put right at once by repair; here is
 * found what repair cannot know of, by the one thing that the coordinator knows better than the
 * region: which requests are in flight. Loop thread.
 *
 * An object is lost when its word has not changed for AUDIT_STILL_NS, and nobody can ever change
 * it:
 *   1. it waits in a ring, and a popper there would not meet it;
 *   2. it waits or is held where it cannot be: a slot that is in flight in the ring of free ones,
 * one that is not in flight anywhere else, a block of another size class, a block of a slot that
 * nobody uses, or that has a new user since;
 *   3. it is held by a party that is nobody, or at a stage where that party does not work;
 *   4. it is held by a worker that has done a whole turn of its loop since it had to be run;
 *   5. it waits at a stage whose workers have all done a whole turn of their loops since, and
 * nothing was taken from there meanwhile; or for the coordinator, which looks twice a second.
 *
 * A turn is proved by two signs of life: a worker gives one when a turn begins, before it looks for
 * work. One sign alone proves nothing, as the turn that it began may be the one that runs a batch
 * for minutes, or that was stopped. So neither the slow nor the stopped are ever suspected. As all
 * is read without a lock, only what is found twice in a row counts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "shm/layout.h"

#define AUDIT_STILL_NS (2 * (int64_t)NS_PER_S)
#define AUDIT_EVERY_NS ((int64_t)NS_PER_S)

struct lane;
struct roster;
struct audit;

/* The source about processes: `seat` gives a stage's worker with the party of the process in that
 * seat; NULL: there is none. */
struct audit_workers {
    struct shm_worker *(*seat)(const void *context, uint32_t stage, uint32_t index,
                               uint16_t *party);
    const void *context;
};

struct audit *audit_create(uint32_t slot_count, uint32_t block_count);
void audit_destroy(struct audit *audit);

/* One look; does nothing more often than once a second. NULL, or what was found lost. A stage where
 * requests wait and nothing moves has its workers woken: they look for themselves. */
const char *audit_look(struct audit *audit, const struct lane *lane,
                       const struct audit_workers *workers, int64_t now_ns);

/* The workers of a lane that has a roster. */
struct audit_workers audit_workers_of(const struct roster *roster);
