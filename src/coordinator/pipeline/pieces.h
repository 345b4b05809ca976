/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers in pieces, on their way out. One thread at a time pops pieces and passes them to their
 * callers, under the lane's `pieces_lock`, so they keep the order of the ring, which is that of
 * their worker. A request in the stages is ended under the same lock, after its pieces were taken
 * out of the ring: none comes after the end. Requests without pieces never meet the lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/pipeline/lane.h"
#include "shm/piece.h"

/* Returns whether there are pieces to gather. */
static inline bool
pieces_have_come(const struct lane *lane)
{
    return atomic_load_explicit(&lane->streaming, memory_order_relaxed) != 0 &&
           pieces_wait(&lane->region);
}

/* Call for a request that is being admitted: its caller takes pieces if both can. */
void pieces_admit(struct lane *lane, struct request *request, struct shm_ticket ticket);
/* Call for a request whose slot is being released. */
void pieces_release(struct lane *lane, struct request *request);

/* Takes a request out of REQUEST_IN_FLIGHT while no piece of it is under way, and none follows.
 * False: another thread was faster. */
bool pieces_leave(struct request *request, uint32_t generation, enum request_state to);

/* Passes on pieces, a bounded number; returns how many. */
uint32_t pieces_gather(struct lane *lane, struct payload_view *view);

/* Passes on all pieces of a request that came back and is not claimed yet. False: some are missing,
 * which only a corrupt region or a worker's death explains. */
bool pieces_gather_all(struct lane *lane, struct request *request, struct shm_ticket ticket,
                       struct payload_view *view);
