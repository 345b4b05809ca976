/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's output on stdout and stderr: read from its pipe on the loop thread, cut into lines,
 * and logged at a limited rate. Output of the modelet, an engine, an assertion or a sanitizer is
 * the event `worker_said`; lines of the worker's own log go through unchanged. A container of a
 * ServingRuntime is treated alike: `container_said`.
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

enum worker_log_source { WORKER_LOG_OF_WORKER, WORKER_LOG_OF_CONTAINER };

struct worker_log_options {
    struct loop *loop;
    int fd;               /* our end, non-blocking; stays the caller's */
    uint64_t bytes_per_s; /* on average; bursts of four seconds' worth. 0: no limit */
    enum worker_log_source source;
    const char *pipeline; /* kept, as `stage`; of a container its runtime */
    const char *stage;    /* of a container its name */
    uint32_t worker;
    pid_t pid;
    _Atomic uint64_t *counters; /* those with: */
    uint32_t dropped;           /* STAGE_LINES_DROPPED, for one */
    /* Each line before it is judged; NULL: nobody listens. */
    void (*on_line)(void *context, const char *text, size_t bytes);
    void *context;
};

struct worker_log *worker_log_create(const struct worker_log_options *options);
/* Logs the last output of the dead worker. NULL is ignored. */
void worker_log_destroy(struct worker_log *log);
