/* SPDX-License-Identifier: Apache-2.0 */
/* State of the work that a node does unasked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/containers/heap.h"

struct upkeep {
    int64_t cleaned_ms; /* now_ms of the janitor's last run */
    int64_t reaped_ms;  /* now_ms when the reaper last began a pass */
    uint32_t reap_at;   /* the reaper's position in the models; UINT32_MAX: resting */
    uint32_t bounds_at; /* the position of the leader's look at minima (B4) */
};

/* Loads in advance. */
struct preload {
    uint32_t units;       /* assumed size of a model loaded in advance */
    struct heap unloaded; /* models without a copy found by the reaper, by last use */
    struct heap queue;    /* models to load in advance, latest used first */
    /* G5: the mesh's budget for loads in advance, in thousandths of a load, and when it last grew.
     */
    int64_t budget;
    int64_t paid_ms;
};

struct drain {
    bool active;
    bool reported;         /* its end */
    bool keeps_unmovable;  /* D4: keep models that no other node may load */
    bool unmovable_called; /* D4: one of them has just been called */
    int64_t passed_ms;     /* now_ms of the last drain pass */
    uint32_t taker;        /* instance that could take the last examined model (D4) */
};
