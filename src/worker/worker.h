/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker process: everything it has, made at start, and the steps of its life in order. One
 * process, one thread, one seat of one stage, one modelet.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/counters.h"
#include "shm/doorbell.h"
#include "shm/guests.h"
#include "shm/handshake.h"
#include "shm/region.h"
#include "shm/seat.h"
#include "worker/batch.h"
#include "worker/cost.h"
#include "worker/host.h"
#include "worker/modelet.h"
#include "worker/sandbox.h"
#include "worker/source.h"
#include "worker/wait.h"

enum worker_exit {
    EXIT_STOPPED = 0,                      /* asked to */
    EXIT_REFUSED = 2,                      /* could not start: handshake, descriptors, modelet */
    EXIT_CORRUPT = HANDSHAKE_EXIT_CORRUPT, /* the region is not to be trusted: the coordinator
                                              builds a new one */
};

struct worker {
    struct handshake_start start;
    const struct handshake_ready *ready; /* what we have said of ourselves */
    struct region region;                /* the lane's */
    struct counters counters;
    struct seat seat;
    struct sandbox sandbox;
    struct modelet modelet;
    const struct shoal_host *host;
    int32_t pid; /* our own word: the coordinator may write the seat's after our start */
    uint16_t party;
    uint8_t place; /* of this stage; the next one is place + 1, the results' after the last */

    struct source sources[1 + GUESTS_MAX]; /* the lane, then guests by number */
    struct guests guests;                  /* those that are served */
    bool lane_turn;                        /* the last pick was the lane */
    uint32_t last_guest;                   /* the last pick that was not */
    uint32_t held;                         /* guests that the batch has items of, a bit each */
    bool leaving;                          /* some guest is to be unmapped with an empty batch */

    uint32_t ending;     /* guests that have ends set, likewise */
    bool said_blind;     /* that we can't sleep on guests' bells */
    uint64_t bells_owed; /* sources whose results or errors we pushed to, and did not ring yet */

    struct batch batch;
    struct item *items;        /* one per position of the batch */
    struct shoal_item **shown; /* those that are in the batch, as the modelet sees them */
    struct cost cost;          /* of a turn that ends with a run */
    uint32_t ran_items;        /* of the last turn, in its run; 0: none */
    uint32_t halvings_left;    /* of the batch that runs */

    struct wait wait;                /* used if the batch is adaptive, with … */
    int64_t company_until_ns;        /* … what it said when it was last asked */
    uint64_t pushes[1 + GUESTS_MAX]; /* to the stage's ring of each source, when the last batch
                                      * closed */
    uint32_t arrived;                /* since then, until its run was over */

    bool former; /* we have the role */
    bool corrupt;
    struct spin spin;
    int64_t control_look_ns; /* when to look at the control socket again */
};

/* ---- attach.c ---- */

/* The very first step: from here on the process dies with its coordinator. */
void worker_bind_to_parent(void);

/* Receives what to do, checks it, names and pins the process, attaches region and counters. */
enum status worker_attach(struct worker *worker, struct error *error) WARN_UNUSED;

/* Loads and starts the modelet and makes all the memory that serving needs. */
enum status worker_prepare(struct worker *worker, struct handshake_ready *ready,
                           struct error *error) WARN_UNUSED;

/* Catches SIGTERM from now on. */
void worker_catch_stop(const struct worker *worker);
/* SIGTERM has come. */
bool worker_stop_requested(void);

/* ---- step.c ---- */

/* Serves until it is asked to stop, or the region turns out to be corrupt. */
enum worker_exit worker_serve(struct worker *worker);

/* One turn of that, without looking after anything else or resting: gathers, and runs the batch if
 * it is due. 0: there was nothing to do. */
uint32_t worker_turn(struct worker *worker, int64_t now_ns);

/* ---- run.c ---- */

/* Prepares the next position of the batch for a slot that was claimed; fails it at once, and
 * returns false, when it is not to be run: cancelled, late, or unreadable. */
bool item_take(struct worker *worker, struct source *source, struct shm_ticket ticket,
               int64_t now_ns);

/* Runs the closed batch and passes every item of it on. */
void batch_run(struct worker *worker, enum batch_state closed);
