/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's output on stdout and stderr: read from its pipe on the loop thread, cut into lines,
 * and logged at a limited rate. Output of the modelet, an engine, an assertion or a sanitizer is
 * the event `worker_said`; lines of the worker's own log go through unchanged.
 *
 * A flood costs the loop little: it reads 64 KiB in 10 ms, and a worker that writes more finds its
 * pipe full and goes on. Lines beyond the rate are dropped and counted, and a line says how many.
 * Of a dead worker's pipe at least the last LAST_BYTES are always logged.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "loop/loop.h"

struct worker_log_options {
    struct loop *loop;
    int fd;               /* our end, non-blocking; stays the caller's */
    uint64_t bytes_per_s; /* on average; bursts of four seconds' worth. 0: no limit */
    const char *pipeline; /* kept, as `stage` */
    const char *stage;
    uint32_t worker;
    pid_t pid;
    _Atomic uint64_t *counters; /* of the stage: LINES_DROPPED */
};

struct worker_log *worker_log_create(const struct worker_log_options *options);
/* Logs the last output of the dead worker. NULL is left alone. */
void worker_log_destroy(struct worker_log *log);
