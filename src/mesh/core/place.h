/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where to load a model: rules P1 to P7. Pure, one pass over the instances, two over the
 * candidates, nothing allocated.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/tables.h"

struct tried {
    int64_t since_ms; /* of MESH_LIST_HIT */
    uint16_t instance;
    uint8_t list; /* enum mesh_list */
    bool passed;  /* R15: it was not tried */
    bool left;    /* R17: it was still loading */
};

struct place_wish {
    const struct model *model;
    const struct tried *tried; /* FIXED and LOAD ones are left out */
    uint32_t tried_count;
    int64_t now_ms;
    int64_t wall_ms;
    int64_t used_ms;  /* wall clock; in the future for a copy that is to take load off (S4) */
    int64_t churn_ms; /* P2 */
    int64_t fresh_ms; /* F3 */
    bool own;         /* this node is preferred, if it is as good (P7) */
    bool not_self;    /* this node is none of them */
    bool again;     /* R12: a copy that was tried in vain may be loaded anew, if nobody else can */
    bool roomy;     /* only where there is room (E6) */
    bool urgent;    /* V3: where anything is loaded, however lately it was used */
    bool reachable; /* the unreachable are no last resort */
    bool patient;   /* R14: it waits; of full ones only those that may say yes */
    uint32_t units; /* that it is assumed to take */
    /* G3 to G5: only into what is set aside for loads in advance, so many units, and not where one
     * was begun after `paced_ms`; 0: not in advance. */
    uint64_t ahead_units;
    int64_t paced_ms;
};

/* The instance; NAME_NONE: nobody. Draws from `random` once if there is a choice. */
uint32_t place_choose(const struct tables *tables, const struct place_wish *wish, uint64_t *random);

/* Why nobody: for the caller's error. */
enum place_refusal { PLACE_NO_LABELS, PLACE_TOO_LARGE, PLACE_ALL_TRIED, PLACE_ALL_FULL };
enum place_refusal place_refusal(const struct tables *tables, const struct place_wish *wish);
const char *place_refusal_text(enum place_refusal refusal);
/* The most that anybody may load who may hold the model; 0: not known of one of them. */
uint64_t place_largest(const struct tables *tables, const struct place_wish *wish);

/* R18: a node that may hold it drains, or all of them have gone, the last one lately. */
bool place_is_leaving(const struct tables *tables, const struct place_wish *wish);

/* R14: somebody who may hold it, and is within reach, is only full, or said no for a moment. */
bool place_may_have_room(const struct tables *tables, const struct place_wish *wish);

/* F3: a failure that counts. */
bool failure_is_fresh(int64_t failed_ms, int64_t wall_ms, int64_t fresh_ms);

/* One number of a stream; splitmix64. */
uint64_t random_next(uint64_t *random);
