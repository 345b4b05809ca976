/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the stress tests: a small region, and the two halves of a pipeline in their plainest
 * form. `rig_submit` and `rig_gather` are the coordinator, with the private ledger by which it
 * knows the requests that it has answered; `rig_stage` is a worker's step. A request carries its
 * serial number in a tensor, and each stage forwards it and adds a tensor that follows from it, so
 * that an answer proves which request it belongs to and that its blocks were nobody else's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/payload.h"
#include "shm/region.h"
#include "shm/repair.h"
#include "shm/slot.h"

enum { RIG_SLOTS_MAX = 256 };

/* The coordinator's private memory: what no worker can write. */
struct rig_ledger {
    uint32_t generation[RIG_SLOTS_MAX]; /* in flight; 0: the slot is not */
    uint64_t serial[RIG_SLOTS_MAX];
    uint32_t attempts[RIG_SLOTS_MAX];
    uint64_t submitted;
    uint64_t answered;
    uint64_t failed;  /* of these, through PLACE_ERROR */
    uint64_t strange; /* popped a ticket that is not in flight: answered twice, or never asked */
    uint64_t wrong;   /* an answer that is not its request's */
};

/* stages × workers, so many slots, two size classes of blocks. */
struct region_plan rig_plan(uint32_t stages, uint32_t workers, uint32_t slots);

/* Acquires a slot, writes a payload into it and pushes it to stage 0. RING_EMPTY: no slot or block.
 */
enum ring_result rig_submit(const struct region *region, struct rig_ledger *ledger,
                            uint64_t serial);

/* Pops one result or failure, checks and answers it, releases the slot. RING_EMPTY: there is none.
 */
enum ring_result rig_gather(const struct region *region, struct rig_ledger *ledger);

/* Answers the ticket that was popped from `place`: checks it against the ledger. */
void rig_answer(const struct region *region, struct rig_ledger *ledger, struct shm_ticket ticket,
                uint8_t place);

/* A worker's step at a stage: pop, read, build the next payload, push. No notify. */
enum ring_result rig_stage(const struct region *region, uint32_t stage, uint16_t owner);
/* All of it but the pop. */
enum ring_result rig_run(const struct region *region, uint32_t stage, uint16_t owner,
                         struct shm_ticket ticket);

/* Reads a payload and checks that it is `serial` after `stages_done` stages. */
bool rig_payload_right(const struct region *region, const struct shm_payload *payload,
                       uint32_t stages_done, uint64_t *serial);

/* RUN_AGAIN until a request's attempts are used up, then FAIL. `context` is the ledger. */
enum repair_verdict rig_judge(void *context, struct shm_ticket ticket, uint8_t stage,
                              struct error *error);

/* With nobody else at work and nothing in flight: NULL if every slot and every block is free and
 * can be had, once each; else the fault. */
const char *rig_conserved(const struct region *region);
