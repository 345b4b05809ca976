/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leader and followers of a stage: of its workers that want work exactly one, the former, gathers a
 * batch; the others sleep. So two workers do not each take half a batch, and a push wakes at most
 * one process, and none when the former is awake. DESIGN.md, "Sleeping and waking".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

/* Tries to take the role, or accepts it if it is offered to the caller; true also if the caller has
 * it. From then on nobody takes it away: the caller may sleep with it, and pushes ring its bell.
 * `worker_index` is the caller's index in the stage. */
bool former_take(const struct region *region, uint32_t stage, uint32_t worker_index,
                 uint16_t party);

/* Leaves the role; if the stage's ring still holds something, appoints and wakes an idle worker. */
void former_leave(const struct region *region, uint32_t stage, uint32_t worker_index,
                  uint16_t party);

/*
 * After a push to the stage's ring: sees to it that somebody is awake for it. With a former in the
 * role that is its bell. Without one, the role is offered to an idle worker, which is woken: so
 * that the pushes that follow find a former, and wake nobody else.
 */
void stage_notify(const struct region *region, uint32_t stage);

/* Rings the bell of the stage's former, if there is one; false: there is none. */
bool former_ring(const struct region *region, uint32_t stage);

/*
 * How a worker goes to rest when it has no work and not the role:
 *
 *     idle_enter(), doorbell_prepare(), then stage_wants_former()?  yes: doorbell_cancel()
 *                                                                  no: doorbell_sleep()
 *     idle_leave(), former_take() again
 */
void idle_enter(const struct region *region, uint32_t stage, uint32_t worker_index);
void idle_leave(const struct region *region, uint32_t stage, uint32_t worker_index);

/* True if there is work and nobody in the role, or the caller has been appointed to it. */
bool stage_wants_former(const struct region *region, uint32_t stage, uint32_t worker_index,
                        uint16_t party);

/* Empties the seat of a party that is proved dead: its party, its idle bit, its role. */
void former_evict(const struct region *region, uint32_t stage, uint32_t worker_index,
                  uint16_t dead);

/* Makes every worker look for work again, whatever a dead party began and did not finish: offered
 * the role to somebody who is busy or no more, or took a sleeper's flag and did not wake him. */
void stages_awaken(const struct region *region);
