/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signals that steer a node, and its last resort. A thread of its own takes SIGTERM, SIGINT and
 * SIGHUP and hands them to the loop. It depends on nobody else, and exists before limits can be
 * met, so that the node can be ended whatever hangs:
 *
 *  1. The first SIGTERM or SIGINT is the loop's.
 *  2. The second one is the loop's, too, which has SIGNALS_SECOND_MS to end the process.
 *  3. The third one ends the process at once, and so does the second one when the loop has ended.
 *  4. Ending has a bound in any case: signals_bound.
 *
 * Ending the process means a line in the log and _exit: workers die with it, its unix sockets stay
 * and are replaced by the next start.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/loop/loop.h"

enum { SIGNALS_SECOND_MS = 3000 };

/* Called on the loop thread. */
struct signals_handler {
    void (*hangup)(void *context);
    /* SIGTERM or SIGINT; `times`: how many of them have come, this one included. */
    void (*terminate)(void *context, int number, uint32_t times);
    void *context;
};

/* Blocks these signals in the calling thread, and so in those that it starts from now on: to be
 * called before there are any. Once in a process. */
enum status signals_start(struct loop *loop, const struct signals_handler *handler,
                          struct error *error) WARN_UNUSED;

/* The loop has ended: it is told of nothing any more. */
void signals_end_loop(void);

/* Unless the process has ended by itself within `timeout_ns`, it is ended with `exit_code`. `what`
 * is kept; it says in the log what was to end. The earlier of two bounds holds. */
void signals_bound(int64_t timeout_ns, int exit_code, const char *what);
