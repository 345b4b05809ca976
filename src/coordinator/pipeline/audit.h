/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds slots and blocks that no reader of a ring ever meets, because a modelet wrote over a word,
 * a cell or a hint. Repair puts an honest death right at once. The audit finds what repair cannot
 * know of, by the one thing that the coordinator knows better than the region: which requests are
 * in flight. Loop thread.
 *
 * An object is lost when its word has not changed for AUDIT_STILL_NS, and nobody can ever change
 * it:
 *   1. it waits in a ring, and a popper there would not meet it;
 *   2. it waits or is held where it cannot be: a slot in flight in the ring of free ones, a slot
 * not in flight anywhere else, a block of another size class, a block of a slot that is unused or
 *      has been reused since;
 *   3. it is held by an owner that does not exist, or at a stage where that owner does not work;
 *   4. it is held by a worker that has done a whole turn of its loop since it had to run it;
 *   5. it waits at a stage whose workers have all done a whole turn of their loops since, and
 *      nothing was taken from there meanwhile; or it waits for the coordinator, which looks twice a
 *      second.
 *
 * Two signs of life prove a turn: a worker gives one when a turn begins, before it looks for work.
 * One alone proves nothing, since the turn that it began may run a batch for minutes, or be
 * stopped. So slow and stopped workers are never suspected. Everything is read without a lock, so
 * only what is found twice in a row counts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "shm/layout.h"

#define AUDIT_STILL_NS (2 * (int64_t)NS_PER_S)
#define AUDIT_EVERY_NS ((int64_t)NS_PER_S)

struct lane;
struct audit;

/* Gives the processes: `member` returns the worker and the owner number of the process in a place;
 * NULL: there is none. */
struct audit_workers {
    struct shm_worker *(*member)(const void *context, uint32_t stage, uint32_t index,
                                 uint16_t *owner);
    const void *context;
};

struct audit *audit_create(uint32_t slot_count, uint32_t block_count);
void audit_destroy(struct audit *audit);

/* Looks once, at most once a second. Returns NULL, or a text that says what is lost. Wakes the
 * workers of a stage where requests wait and nothing moves: they look for themselves. */
const char *audit_look(struct audit *audit, const struct lane *lane,
                       const struct audit_workers *workers, int64_t now_ns);
