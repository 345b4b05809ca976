/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker processes of a lane: starting them, knowing when they are ready or dead, putting right
 * what the dead left, starting successors with back-off. Death is known by pidfd and nothing else.
 * It is done in workers/, and declared down here because pipelines stand below that. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct roster;
struct lane;
struct pipeline;

/*
 * Back-off: a worker that dies is replaced at once. One that has been ready for less than a second
 * is a quick death; after QUICK_DEATHS_MAX of them in a row its successor waits, twice as long each
 * time.
 */
enum {
    QUICK_DEATHS_MAX = 3,
    QUICK_DEATH_MS = 1000,
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MAX_MS = 10000
};

/* Starts a worker in every seat. `*roster` is set before the first can fail, which
 * pipeline_on_start_failed is told. */
void roster_create(struct pipeline *pipeline, struct lane *lane, struct roster **roster);
void roster_destroy(struct roster *roster); /* when no process is left */

/* SIGTERM to all, SIGKILL to those still there after `grace_ns`; then pipeline_on_roster_stopped.
 */
void roster_stop(struct roster *roster, int64_t grace_ns);
/* SIGKILL to all; then, when the last is gone, pipeline_on_roster_stopped. */
void roster_kill(struct roster *roster);

/* Live and ready workers of a stage. */
uint32_t roster_live(const struct roster *roster, uint32_t stage);
/* Nobody is started in one of its stages for a while. */
bool roster_quarantined(const struct roster *roster);
/* The seat of a stage's worker and the party of the process in it; NULL: there is no process. */
struct shm_worker *roster_seat(const struct roster *roster, uint32_t stage, uint32_t index,
                               uint16_t *party);
/* The process there; 0: none. */
int32_t roster_pid(const struct roster *roster, uint32_t stage, uint32_t index);
/* Signs of life; of the roster of the lane that serves, the stages' gauges too. */
void roster_publish(struct roster *roster, bool serving);

/* ---- its guests, the regions of local clients (workers/guest.h) ---- */

/* The lane ends, or has a successor: each owner is told when no worker is in its guest any more. */
void roster_guests_end(struct roster *roster);
uint32_t roster_guests_served(const struct roster *roster);
/* Those of which workers still finish something. */
uint32_t roster_guests_ending(const struct roster *roster);
