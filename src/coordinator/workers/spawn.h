/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting one worker process, by posix_spawn of shoal-worker: never a bare fork from a process
 * with gRPC's threads and a large heap. The child gets the descriptors of handshake.h and nothing
 * else.
 */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "shm/handshake.h"

struct spawned {
    pid_t pid;
    int pidfd;
    int control; /* our end of the control socket */
    int models;  /* likewise of the one for models; -1: the worker serves none */
};

#define SPAWNED_NONE ((struct spawned){.pid = -1, .pidfd = -1, .control = -1, .models = -1})

/* Workers start on the CPUs that the calling thread may use now: to be called before the
 * coordinator pins itself, else those that are not pinned would share its CPUs. */
void spawn_keep_cpus(void);

/* Starts the program and sends it `start`. On failure nothing is left behind. */
enum status spawn_worker(const char *program, int region_fd, int counters_fd,
                         const struct handshake_start *start, struct spawned *spawned,
                         struct error *error) WARN_UNUSED;

/* Closes what is left of a process that is dead, and forgets it. */
void spawned_close(struct spawned *spawned);

/* To this very process, or, when it is dead or none, to nobody. */
void spawned_signal(const struct spawned *spawned, int number);
