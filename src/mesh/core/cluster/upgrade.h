/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the nodes that are being replaced: rules U1 to U3. Generations are counted from the
 * instance table, by value; one exists as long as one of its nodes does. Pure; times as in
 * mesh_core.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/containers/names.h"

enum { GENERATION_PREFIX = 6, UPGRADE_MS = 15 * 60000 };

struct upgrade_generation {
    int64_t version;
    int64_t first_ms; /* mesh time of its first node's start */
    int64_t last_ms;  /* and of its last node's */
    int64_t lost_ms;  /* now_ms when one of its nodes last left or began to drain */
    uint32_t label_set;
    bool old; /* U2: it is being replaced */
};

struct generations {
    struct names names;
    struct upgrade_generation *at;
    uint32_t *newest; /* by label set; scratch memory */
    uint32_t capacity;
    uint32_t newest_capacity;
};

void generations_init(struct generations *generations, uint32_t limit, uint64_t key);
void generations_fini(struct generations *generations);

/* Adds an instance; its label set keeps its number meanwhile. NAME_NONE: no room. */
uint32_t generations_join(struct generations *generations, const char *id, int64_t version,
                          uint32_t label_set, int64_t start_ms);
/* Removes an instance that has left or joined twice. */
void generations_leave(struct generations *generations, uint32_t number);
/* An instance leaves or drains. */
void generations_lose(struct generations *generations, uint32_t number, int64_t now_ms);

/* U2: finds old generations in three steps: begin, show each living node, judge. */
void generations_begin(struct generations *generations);
void generations_show(struct generations *generations, uint32_t number, int64_t start_ms,
                      int64_t wall_ms);
void generations_judge(struct generations *generations, int64_t now_ms, int64_t wall_ms);
