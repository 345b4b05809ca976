/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks for what no reader of a ring ever meets: slots and blocks that were lost because a modelet
 * wrote over a word, a cell or a hint. An honest death is put right at once by repair; here is
 * found what repair cannot know of, by the one thing that the coordinator knows better than the
 * region: which requests are in flight. Loop thread.
 *
 * An object is lost when its word has not changed for AUDIT_STILL_NS, and nobody can ever change
 * it:
 *   1. it waits in a ring, and no cell there names it, or a popper would find the ring empty;
 *   2. it waits or is held where it cannot be: a slot that is in flight in the ring of free ones,
 * one that is not in flight anywhere else, a block of another size class or of no request;
 *   3. it is held by a party that is nobody, or at a stage where that party does not work;
 *   4. it is held by a worker that has since come back to look for work;
 *   5. it waits at a stage whose workers have all looked for work since, and nothing is taken from
 * there; or for the coordinator, which looks twice a second. A worker that is stopped or busy gives
 * no sign of life, and is never suspected. As all is read without a lock, only what is found twice
 * in a row counts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define AUDIT_STILL_NS (2 * (int64_t)NS_PER_S)

struct lane;
struct roster;
struct audit;

struct audit *audit_create(uint32_t slot_count, uint32_t block_count);
void audit_destroy(struct audit *audit);

/* One look; does nothing more often than once a second. NULL, or what was found lost. A stage where
 * requests wait and nothing moves has its workers woken: they look for themselves. */
const char *audit_look(struct audit *audit, const struct lane *lane, const struct roster *roster,
                       int64_t now_ns);
