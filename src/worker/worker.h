/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker process: its state, all made at start, and the steps of its life in order. A process
 * serves one entry of one stage with one modelet. It has one thread, and where models come and go a
 * second one that loads them (loader.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "ipc/counters.h"
#include "ipc/handshake.h"
#include "ipc/worker_entry.h"
#include "shm/doorbell.h"
#include "shm/client_regions.h"
#include "shm/region.h"
#include "worker/cost.h"
#include "worker/groups.h"
#include "worker/host.h"
#include "worker/loader.h"
#include "worker/modelet.h"
#include "worker/sandbox.h"
#include "worker/source.h"
#include "worker/wait.h"

enum worker_exit {
    EXIT_STOPPED = 0,                      /* on request */
    EXIT_REFUSED = 2,                      /* could not start: handshake, descriptors, modelet */
    EXIT_CORRUPT = HANDSHAKE_EXIT_CORRUPT, /* the region is corrupt: the coordinator builds a new
                                            * one */
};

struct worker {
    struct handshake_start start;
    const struct handshake_ready *ready; /* as sent to the coordinator */
    struct region region;                /* the lane's */
    struct counters counters;
    struct worker_entry entry;
    cpu_set_t cpus; /* the CPUs before pinning; empty: not pinned */
    struct sandbox sandbox;
    struct modelet modelet;
    const struct shoal_host *host;
    bool by_model;        /* models come and go: each item names its model */
    struct loader loader; /* in a pipeline with models */
    void *model;          /* of the batch that runs */
    const char *model_id; /* its id; "": none */
    int32_t pid;          /* our own: the coordinator may write the entry's later */
    uint16_t owner;
    uint8_t place; /* of this stage; place + 1 is the next stage or the results */

    struct source sources[1 + CLIENT_REGIONS_MAX]; /* the lane, then client regions by number */
    struct client_regions client_regions;          /* the client regions being served */
    bool lane_turn;                                /* the last pick was the lane */
    uint32_t last_client_region;                   /* the last pick among client regions */
    uint32_t held; /* client regions whose items we hold, a bit each */
    bool leaving;  /* a client region is to be unmapped when no items are held */

    uint32_t ending;     /* client regions with `ends` set, a bit each */
    bool said_blind;     /* logged that we cannot sleep on client regions' bells */
    uint64_t bells_owed; /* sources to ring for results or errors, a bit each */

    struct groups groups;      /* items held that wait for company */
    bool adaptive;             /* … by wait.h */
    struct host_item *items;   /* by position in `groups` */
    uint32_t *positions;       /* just taken out of `groups` */
    struct shoal_item **shown; /* the running batch, as the modelet sees it */
    struct cost cost;          /* of a turn that ends with a run */
    uint32_t ran_items;        /* items of the last turn's run; 0: none */
    uint32_t halvings_left;    /* of the batch that runs */

    struct wait wait;                        /* if adaptive */
    int64_t company_until_ns;                /* its last answer */
    uint64_t pushes[1 + CLIENT_REGIONS_MAX]; /* pushes to each source's ring when the last batch
                                                closed */
    uint32_t arrived;                        /* pushes since then until its run was over */

    bool former; /* we have the role */
    bool corrupt;
    struct spin spin;
    int64_t control_look_ns; /* time of the next look at the control socket */
};

/* ---- attach.c ---- */

/* The first step: from here on the process dies with its coordinator. */
void worker_bind_to_parent(void);

/* Receives and checks the start message, names and pins the process, attaches region and
 * counters. */
enum status worker_attach(struct worker *worker, struct error *error) WARN_UNUSED;

/* Loads and starts the modelet and allocates all memory for serving. */
enum status worker_prepare(struct worker *worker, struct handshake_ready *ready,
                           struct error *error) WARN_UNUSED;

/* Installs the SIGTERM handler. */
void worker_catch_stop(const struct worker *worker);
/* Returns true if SIGTERM has come. */
bool worker_stop_requested(void);

/* ---- step.c ---- */

/* Serves until asked to stop or until the region is found corrupt. */
enum worker_exit worker_serve(struct worker *worker);

/* Does one turn of worker_serve, without housekeeping and rest: gathers, and runs the batch if it
 * is due. Returns 0 if there was nothing to do. */
uint32_t worker_turn(struct worker *worker, int64_t now_ns);

/* ---- run.c ---- */

/* Takes a claimed slot into the groups. An item that must not run (cancelled, late, unreadable, or
 * of a model that is not held) is passed on at once; then returns false. */
bool item_take(struct worker *worker, struct source *source, struct shm_ticket ticket,
               int64_t now_ns);

/* Takes a group out of the held items to run it next. Returns its number of items. */
uint32_t batch_close(struct worker *worker, uint32_t group, uint64_t *model);

/* Runs these items of one model and passes every one of them on. */
void batch_run(struct worker *worker, enum batch_state closed, uint32_t count, uint64_t model);

/* Pushes all held items back to the stage's ring, unchanged. */
void hand_back(struct worker *worker);

/* ---- emit.c ---- */

/* Makes this the process's worker, whose items emit. */
void emit_init(struct worker *worker);

/* The host table's `emit`. */
int32_t worker_emit(struct shoal_item *shown);
