/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes are about to be replaced: rules U1 to U3. A generation is counted from the table of
 * instances, by value; it is there as long as one of its nodes is. Pure; times as in mesh_core.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/names.h"

enum { GENERATION_PREFIX = 6, UPGRADE_MS = 15 * 60000 };

struct generation {
    int64_t version;
    int64_t first_ms; /* wall clock: when the first of its nodes began */
    int64_t last_ms;  /* and the last, as far as they have been shown */
    int64_t lost_ms;  /* now_ms when one of its nodes last went, or began to drain */
    uint32_t label_set;
    bool old; /* U2: it is being replaced */
};

struct generations {
    struct names names;
    struct generation *at;
    uint32_t *newest; /* by label set; scratch memory */
    uint32_t capacity;
    uint32_t newest_capacity;
};

void generations_init(struct generations *generations, uint32_t limit, uint64_t key);
void generations_fini(struct generations *generations);

/* An instance, whose label set keeps its number while it is a member. NAME_NONE: no room. */
uint32_t generations_join(struct generations *generations, const char *id, int64_t version,
                          uint32_t label_set, int64_t start_ms);
/* It has left, or joined twice. */
void generations_leave(struct generations *generations, uint32_t number);
/* It goes, or drains. */
void generations_lose(struct generations *generations, uint32_t number, int64_t now_ms);

/* U2: what is old, as of now, in three steps: begin, show each node that is there, judge. */
void generations_begin(struct generations *generations);
void generations_show(struct generations *generations, uint32_t number, int64_t start_ms,
                      int64_t wall_ms);
void generations_judge(struct generations *generations, int64_t now_ms, int64_t wall_ms);
