/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repairs a region after a process died. Only the coordinator repairs (in a client region its
 * client), only after proof of death, and beside live processes that go on working. DESIGN.md,
 * "Death", has the passes and why they suffice.
 */
#pragma once

#include <stdint.h>

#include "shm/region.h"

enum repair_verdict {
    REPAIR_RUN_AGAIN,
    REPAIR_FAIL,    /* with the status and text that the judge set */
    REPAIR_CORRUPT, /* no such request is in flight: the region is corrupt */
};

struct repair_judge {
    /* Decides about a request that the dead owner held at `stage`. */
    enum repair_verdict (*judge)(void *context, struct shm_ticket ticket, uint8_t stage,
                                 struct error *error);
    void *context;
};

struct repair_report {
    uint32_t run_again;       /* slots pushed to the same stage again */
    uint32_t failed;          /* slots pushed to PLACE_ERROR */
    uint32_t pushed;          /* slots and blocks whose push the dead owner owed */
    uint32_t blocks_released; /* blocks that no valid payload named */
};

struct repair_dead {
    uint16_t owner;
    uint32_t stage; /* STAGES_MAX: it was no worker */
    uint32_t worker_index;
};

/* `self` is the caller. DATA_LOSS: the region is corrupt, drop it; RESOURCE_EXHAUSTED: no memory
 * for the scan, try again. */
enum status region_repair(const struct region *region, const struct repair_dead *dead,
                          uint16_t self, const struct repair_judge *judge,
                          struct repair_report *report, struct error *error) WARN_UNUSED;
