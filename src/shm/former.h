/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leader and followers of a stage. Exactly one of the workers that want work, the former, gathers a
 * batch; the others sleep. So no two workers each take half a batch, and a push wakes at most one
 * process, none if the former is awake. DESIGN.md, "Sleeping and waking".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* Tries to take the role, or accepts an offer; also true if the caller has the role already. No
 * process takes an accepted role away: the caller may sleep with it, and pushes ring its bell.
 * `worker_index` is the caller's index in the stage. */
bool former_take(const struct region *region, uint32_t stage, uint32_t worker_index,
                 uint16_t owner);

/* Leaves the role. If the stage's ring still holds work, appoints and wakes an idle worker. */
void former_leave(const struct region *region, uint32_t stage, uint32_t worker_index,
                  uint16_t owner);

/*
 * Call after a push to the stage's ring: makes sure that a worker is awake for it. Rings the
 * former's bell; without a former it offers the role to an idle worker and wakes that one, so that
 * the next pushes find a former and wake nobody.
 */
void stage_notify(const struct region *region, uint32_t stage);

/* Rings the bell of the stage's former. False: there is none. */
bool former_ring(const struct region *region, uint32_t stage);

/*
 * A worker without work and without the role goes to rest like this:
 *
 *     idle_enter(), doorbell_prepare(), then stage_wants_former()?  yes: doorbell_cancel()
 *                                                                   no: doorbell_sleep()
 *     idle_leave(), former_take() again
 */
void idle_enter(const struct region *region, uint32_t stage, uint32_t worker_index);
void idle_leave(const struct region *region, uint32_t stage, uint32_t worker_index);

/* Returns true if there is work and no former, or the caller was appointed. */
bool stage_wants_former(const struct region *region, uint32_t stage, uint32_t worker_index,
                        uint16_t owner);

/* Empties the entry of an owner that is proven dead: its owner number, its idle bit, its role. */
void former_evict(const struct region *region, uint32_t stage, uint32_t worker_index,
                  uint16_t dead);

/* Makes every worker look for work again, however a dead owner left the roles: a role offered to a
 * busy or dead worker, or a sleeper whose flag it cleared without waking it. */
void stages_awaken(const struct region *region);
