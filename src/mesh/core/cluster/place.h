/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses where to load a model: rules P1 to P7. Pure, one pass over the instances and two over the
 * candidates, no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/cluster/tables.h"

struct tried {
    int64_t since_ms; /* of MESH_LIST_HIT */
    uint16_t instance;
    uint8_t list; /* enum mesh_list */
    bool passed;  /* R15: skipped, not tried */
    bool left;    /* R17: left while it was loading */
    /* R12: HIT: its runtime refused the call, or was not there; LOAD: and the copy stays. */
    bool reported;
};

/* R12: the runtime of the copy there refused the call, and its node, if that is another, keeps the
 * copy or was not asked to load it again. */
bool tried_is_refusal(const struct tried *tried, uint32_t count, uint32_t number);

struct place_wish {
    const struct core_model *model;
    const struct tried *tried; /* FIXED and LOAD entries are excluded */
    uint32_t tried_count;
    int64_t now_ms;
    int64_t wall_ms;
    int64_t used_ms;  /* mesh time; in the future for a copy that takes over load (S4) */
    int64_t churn_ms; /* P2 */
    int64_t fresh_ms; /* F3 */
    bool own;         /* P7: prefer this node if it is as good */
    bool not_self;    /* exclude this node */
    bool again;       /* R12: a copy tried without success may be loaded again if no other node
                         can */
    bool roomy;       /* E6: only where there is room */
    bool urgent;      /* V3: wherever anything is loaded, however recently used */
    bool reachable;   /* unreachable nodes are not a last resort */
    bool leaves;      /* B3: this node's copy is none, since it goes if another node takes it */
    bool refused;     /* R12: a runtime that refuses the call has done so before */
    bool patient;     /* R14: the caller waits; ask full nodes only if they may accept */
    uint32_t units;   /* assumed size */
    /* G3 to G5: only into the share for loads in advance, of this size, and not where one began
     * after `paced_ms`; 0: not in advance. */
    uint64_t preload_units;
    int64_t paced_ms;
};

/* Returns the instance or NAME_NONE. Draws from `random` once if there is a choice. */
uint32_t place_choose(const struct tables *tables, const struct place_wish *wish, uint64_t *random);

/* The reason why no node was chosen, for the caller's error. */
enum place_refusal {
    PLACE_NO_LABELS,
    PLACE_TOO_LARGE,
    PLACE_ALL_TRIED,
    PLACE_ALL_FULL,
    PLACE_AT_MOST, /* B3 */
};
enum place_refusal place_refusal(const struct tables *tables, const struct place_wish *wish);
/* All nodes that could load it lack a runtime for its type. */
bool place_is_bare(const struct tables *tables, const struct place_wish *wish);
const char *place_refusal_text(enum place_refusal refusal);
/* The most that a node that may hold the model can load; 0: unknown for one of them. */
uint64_t place_largest(const struct tables *tables, const struct place_wish *wish);

/* R18: a node that may hold it drains, or all such nodes have gone, the last one recently. */
bool place_is_leaving(const struct tables *tables, const struct place_wish *wish);

/* R14: a reachable node that may hold it is only full or has just refused. */
bool place_may_have_room(const struct tables *tables, const struct place_wish *wish);

/* F3: whether a failure counts. */
bool failure_is_fresh(int64_t failed_ms, int64_t wall_ms, int64_t fresh_ms);

/* Next number of a splitmix64 stream. */
uint64_t random_next(uint64_t *random);
