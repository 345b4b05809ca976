/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker process: everything it has, made at start, and the steps of its life in order. One
 * process, one seat of one stage, one modelet; one thread, and where models come and go a second
 * one that loads them (loader.h).
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
#include "worker/cost.h"
#include "worker/groups.h"
#include "worker/host.h"
#include "worker/loader.h"
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
    cpu_set_t cpus; /* that it was started with, before it was pinned; none: it was not */
    struct sandbox sandbox;
    struct modelet modelet;
    const struct shoal_host *host;
    bool by_model;        /* models come and go here: items are run with the one that they name */
    struct loader loader; /* in a pipeline with models */
    void *model;          /* of the batch that runs */
    int32_t pid;          /* our own word: the coordinator may write the seat's after our start */
    uint16_t party;
    uint8_t place; /* of this stage; the next one is place + 1, the results' after the last */

    struct source sources[1 + GUESTS_MAX]; /* the lane, then guests by number */
    struct guests guests;                  /* those that are served */
    bool lane_turn;                        /* the last pick was the lane */
    uint32_t last_guest;                   /* the last pick that was not */
    uint32_t held;                         /* guests that we have items of, a bit each */
    bool leaving;                          /* some guest is to be unmapped when none are held */

    uint32_t ending;     /* guests that have ends set, likewise */
    bool said_blind;     /* that we can't sleep on guests' bells */
    uint64_t bells_owed; /* sources whose results or errors we pushed to, and did not ring yet */

    struct groups groups;      /* what is held, and waits for company */
    bool adaptive;             /* … as wait.h says */
    struct item *items;        /* by position, as groups.h says */
    uint32_t *positions;       /* what was just taken out of the groups */
    struct shoal_item **shown; /* those of the batch that runs, as the modelet sees them */
    struct cost cost;          /* of a turn that ends with a run */
    uint32_t ran_items;        /* of the last turn, in its run; 0: none */
    uint32_t halvings_left;    /* of the batch that runs */

    struct wait wait;                /* used if adaptive, with … */
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

/* Takes a slot that was claimed into the groups; passes it on at once, and returns false, when it
 * is not to be run: cancelled, late, unreadable, or of a model that is not held. */
bool item_take(struct worker *worker, struct source *source, struct shm_ticket ticket,
               int64_t now_ns);

/* Takes a group out of what is held, to be run next; returns how many items it has. */
uint32_t batch_close(struct worker *worker, uint32_t group, uint64_t *model);

/* Runs those items of that model and passes every one of them on. */
void batch_run(struct worker *worker, enum batch_state closed, uint32_t count, uint64_t model);

/* Gives all that is held back to the stage's ring, as it came. */
void hand_back(struct worker *worker);
