/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of one worker on stdout and stderr: read from its pipe on the loop thread, cut into
 * lines, and put into the log, as much of it as a rate allows. What the modelet, an engine, an
 * assertion or a sanitizer says comes as the event `worker_said`; lines of the worker's own log
 * have a stamp and go through as they are.
 *
 * A flood costs the loop little: 64 KiB are read in 10 ms, and a worker that writes more finds its
 * pipe full, which it does not wait for. Lines beyond the rate are dropped and counted, and a line
 * says how many. The last words of a worker are not: what its pipe holds when it is dead,
 * LAST_BYTES of it at least, is always logged.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "coordinator/loop/loop.h"

struct worker_log_options {
    struct loop *loop;
    int fd;                     /* our end, which does not wait; stays the caller's */
    uint64_t bytes_per_s;       /* on average; four seconds' worth at once. 0: no limit */
    char prefix[192];           /* which worker it is */
    _Atomic uint64_t *counters; /* of the stage: LINES_DROPPED */
};

struct worker_log *worker_log_create(const struct worker_log_options *options);
/* Of a worker that is dead: logs what it has said last. NULL is left alone. */
void worker_log_destroy(struct worker_log *log);
