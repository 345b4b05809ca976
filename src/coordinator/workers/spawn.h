/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts one worker process by posix_spawn of shoal-worker, never by a bare fork from a process
 * with gRPC's threads and a large heap. The child gets only the descriptors of handshake.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "ipc/handshake.h"

struct spawned {
    pid_t pid;
    int pidfd;
    int control; /* our end of the control socket */
    int models;  /* likewise of the one for models; -1: the worker serves none */
    int words;   /* our end of its stdout and stderr; non-blocking */
};

#define SPAWNED_NONE                                                                               \
    ((struct spawned){.pid = -1, .pidfd = -1, .control = -1, .models = -1, .words = -1})

/* Workers without `cpus` start on the CPUs that the calling thread may use now. To be called before
 * the coordinator pins itself, or they would share its CPUs. */
void spawn_keep_cpus(void);

/*
 * Keeps descriptors in reserve: as many as one start needs at most, and those of dead workers for
 * their successors. A start that finds none uses them, and they are taken again afterwards, so that
 * connections cannot use up the descriptors of supervision.
 */
void spawn_reserve(void);
/* Frees the reserve of a node that ends or starts no more workers. */
void spawn_reserve_end(void);

/* Reasons why a start failed: for good, or for a shortage that may pass. */
enum spawn_failure { SPAWN_WRONG, SPAWN_SCARCE };

/*
 * Makes this process the reaper of processes that dead workers leave behind, and kills those.
 * Children that it already has are left alone. To be called before a worker starts that may start
 * processes; from then on orphans of any other child come here, too, and are killed as well.
 */
void spawn_adopt_orphans(void);
/* Call after a worker's death, and periodically, as a killed orphan may have had children. */
void spawn_kill_orphans(void);
uint64_t spawn_orphans_killed(void);
/* Waits for the last orphans to end. Call when no worker is left. */
void spawn_end_orphans(void);

struct spawn_order {
    const char *program;
    int region_fd;
    int counters_fd;
    const struct handshake_start *start; /* sent to it */
    char *const *variables;              /* "NAME=value", NULL-terminated; NULL: none */
};

/* Starts a worker. Its environment is `variables`, then the permitted part of ours
 * (spawn_passes_on). On failure nothing is left behind, and `*failure` says whether descriptors,
 * processes or memory were scarce. */
enum status spawn_worker(const struct spawn_order *order, struct spawned *spawned,
                         enum spawn_failure *failure, struct error *error) WARN_UNUSED;

/* A program that is no worker: it gets the whole environment given, and lives on when this process
 * ends. */
struct spawn_program_order {
    const char *program;
    char *const *arguments;
    char *const *environment;
    const int *fds; /* that it has, too, under the same numbers; the rest are to be FD_CLOEXEC */
    unsigned fd_count;
    int words;            /* becomes its stderr */
    bool words_of_stdout; /* and its stdout */
};

/* Starts it; `spawned` gets its pid and pidfd. */
enum status spawn_program(const struct spawn_program_order *order, struct spawned *spawned,
                          struct error *error) WARN_UNUSED;

/* Returns whether a variable of our environment ("NAME=value") is passed on to workers: paths of
 * programs and libraries, language, time zone, threads of numeric libraries, options of sanitizers.
 * Any other may be a secret. */
bool spawn_passes_on(const char *variable);

/* Closes the descriptors of a dead process and forgets it. */
void spawned_close(struct spawned *spawned);
/* Like spawned_close(), but puts the descriptors into the reserve, for the successor. */
void spawned_keep(struct spawned *spawned);

/* Sends a signal to exactly this process; does nothing if it is dead or none. */
void spawned_signal(const struct spawned *spawned, int number);
