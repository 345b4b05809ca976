/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One container of a ServingRuntime: a process of this host, under `shoal-worker --keep`
 * (worker/keep.h), started again when it ends, after a pause that grows.
 *
 * Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/workers/spawn.h"
#include "coordinator/workers/worker_log.h"
#include "loop/loop.h"
#include "serving/runtimes/plan.h"

enum { CONTAINER_SAID_BYTES = 256, CONTAINER_ERROR_BYTES = 512 };

enum container_state {
    CONTAINER_PAUSES, /* until its next start */
    CONTAINER_RUNS,
    CONTAINER_STOPS,
    CONTAINER_STOPPED,
};

struct container_options {
    struct loop *loop;
    const char *worker_program;
    const char *runtime;                  /* its name */
    const struct runtime_container *plan; /* outlives it */
    int64_t stop_ns;
    int64_t restart_ns_max;
    struct worker_log_options log; /* its budget and counters; restarts are counted there, too */
    uint32_t restarts;             /* the counter */
    /* It has started or ended. It may not be destroyed from there. */
    void (*on_change)(void *context);
    void *context;
};

struct container {
    struct container_options options;
    enum container_state state;
    struct spawned process;
    struct loop_watch *exits;
    struct loop_timer *timer;
    struct worker_log *log;
    int64_t started_ns;
    int64_t pause_ns; /* the next one */
    uint64_t starts;
    char said[CONTAINER_SAID_BYTES];   /* its last line since its start */
    char error[CONTAINER_ERROR_BYTES]; /* how it ended last, or why it cannot start; "": never */
};

/* Starts it. */
void container_init(struct container *container, const struct container_options *options);
/* SIGTERM, and after `stop_ns` the death of all that it has started. */
void container_stop(struct container *container);
/* The latter at once. */
void container_kill(struct container *container);
/* Kills what is left of it, and waits for that. */
void container_fini(struct container *container);
