/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting one worker process, by posix_spawn of shoal-worker: never a bare fork from a process
 * with gRPC's threads and a large heap. The child gets the descriptors of handshake.h and nothing
 * else.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "shm/handshake.h"

struct spawned {
    pid_t pid;
    int pidfd;
    int control; /* our end of the control socket */
    int models;  /* likewise of the one for models; -1: the worker serves none */
    int words;   /* what it writes to stdout and stderr; never waits */
};

#define SPAWNED_NONE                                                                               \
    ((struct spawned){.pid = -1, .pidfd = -1, .control = -1, .models = -1, .words = -1})

/* Workers start on the CPUs that the calling thread may use now: to be called before the
 * coordinator pins itself, else those that are not pinned would share its CPUs. */
void spawn_keep_cpus(void);

/*
 * Descriptors in reserve: as many as starting one worker takes at most, and those that the dead had
 * and their successors will need. They are given up for a start that finds none, and taken again
 * after it, so that connections cannot use up what supervision needs.
 */
void spawn_reserve(void);
/* Of a node that ends, and of one that starts no more workers. */
void spawn_reserve_end(void);

/* Why a start has failed: what a later try may find otherwise, or not. */
enum spawn_failure { SPAWN_WRONG, SPAWN_SCARCE };

/*
 * Processes that workers leave behind come to us when they are dead, and are killed. Children that
 * the process already has are none of those. To be called before a worker starts that may start
 * processes; from then on orphans of anything else below us come here, too, and are ended with
 * them.
 */
void spawn_adopt_orphans(void);
/* After a worker's death, and every now and then: who is killed may have had children itself. */
void spawn_kill_orphans(void);
uint64_t spawn_orphans_killed(void);
/* When no worker is left: waits for the end of the last ones. */
void spawn_end_orphans(void);

/* Starts the program and sends it `start`. Its environment is what workers may see of ours
 * (spawn_passes_on) and `variables` ("NAME=value", NULL-terminated; NULL: none), which come first.
 * On failure nothing is left behind, and `*failure` says whether descriptors, processes or memory
 * were scarce. */
enum status spawn_worker(const char *program, int region_fd, int counters_fd,
                         const struct handshake_start *start, char *const *variables,
                         struct spawned *spawned, enum spawn_failure *failure,
                         struct error *error) WARN_UNUSED;

/* Whether a variable of our environment ("NAME=value") is passed on to workers: what says where
 * programs and libraries lie, language, time zone, threads of numeric libraries and options of
 * sanitizers. All else may be a secret. */
bool spawn_passes_on(const char *variable);

/* Closes what is left of a process that is dead, and forgets it. */
void spawned_close(struct spawned *spawned);
/* The same, but its descriptors go into the reserve, for its successor. */
void spawned_keep(struct spawned *spawned);

/* To this very process, or, when it is dead or none, to nobody. */
void spawned_signal(const struct spawned *spawned, int number);
