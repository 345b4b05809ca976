/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All state of a node's core: one structure per noun, which its folder alone changes as far as
 * DESIGN.md does not say otherwise. Types only; functions are in the header of their noun.
 *
 * A step changes the tables and queues follow-up work on two lists: calls to route and models to
 * reconcile. step.c works them off at the end of the step, so nothing recurses.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/calls/calls_state.h"
#include "mesh/core/cluster/tables.h"
#include "mesh/core/cluster/vmodels.h"
#include "mesh/core/containers/scratch.h"
#include "mesh/core/copies/copies_state.h"
#include "mesh/core/mesh_core.h"
#include "mesh/core/orders/orders_state.h"
#include "mesh/core/upkeep/upkeep_state.h"

enum {
    RETRY_MS = 1000,       /* T4, T5 */
    CLAIM_MS_MAX = 30000,  /* R16 */
    UNREACHABLE_MS = 2000, /* how long a peer that did not answer is the last choice */
    HOP_MS = 5,            /* R10 */
    REFUSED_MS = 250,      /* R14: how long waiting calls avoid a node that refused a load */
    RETURN_MS = 5000,      /* D4, R14: a lost runtime may return within this time */
};

/* The extent of the view from etcd. */
struct mirror {
    uint64_t session; /* 0: no transactions */
    uint64_t seen;    /* revision up to which the mirror was last complete */
    bool whole;       /* the mirror has been complete once */
};

/* Actions of this step. */
struct actions {
    struct mesh_action *at;
    uint32_t count;
    uint32_t capacity;
    struct bump arena; /* what they point to */
};

struct mesh {
    struct mesh_config config;
    int64_t now_ms;
    int64_t wall_ms;
    int64_t wall_most_ms; /* maximum so far */
    uint64_t random;
    bool leader;

    /* the world */
    struct mirror mirror;
    struct tables tables;
    struct vmodels vmodels;

    /* copies/ */
    struct entries entries;
    struct pools pools;
    struct load_times load_times;
    struct reconcile reconcile;
    struct registry_rebuild registry_rebuild;
    struct early_ensures early;
    struct rates rates;

    /* upkeep/ */
    struct upkeep upkeep;
    struct preload preload;
    struct drain drain;

    /* calls/ */
    struct calls calls;
    struct room_queue room_queue;
    struct questions questions;

    struct orders orders;
    struct actions actions;
};
