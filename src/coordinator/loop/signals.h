/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signals that control a node. A thread of its own takes SIGTERM, SIGINT and SIGHUP and hands
 * them to the loop. It depends on nothing else and starts before any limit can be reached, so the
 * node can be ended even if any part hangs:
 *
 *  1. The first SIGTERM or SIGINT goes to the loop.
 *  2. So does the second, and the loop then has SIGNALS_SECOND_MS to end the process.
 *  3. The third ends the process at once, and so does the second when the loop has ended.
 *  4. signals_bound bounds the end in any case.
 *
 * Ending the process means a log line and _exit: workers die with it, its unix sockets stay and are
 * replaced by the next start.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "loop/loop.h"

enum { SIGNALS_SECOND_MS = 3000 };

/* Called on the loop thread. */
struct signals_handler {
    void (*hangup)(void *context);
    /* SIGTERM or SIGINT; `times` counts those received, this one included. */
    void (*terminate)(void *context, int number, uint32_t times);
    void *context;
};

/* Blocks these signals in the calling thread and so in all threads that it starts later: call it
 * before there are any. Once per process. */
enum status signals_start(struct loop *loop, const struct signals_handler *handler,
                          struct error *error) WARN_UNUSED;

/* The loop has ended and gets no more events. */
void signals_end_loop(void);

/* Ends the process with `exit_code` unless it ends by itself within `timeout_ns`. `what` is kept
 * and logged then; it says what hangs. The earlier of two bounds holds. */
void signals_bound(int64_t timeout_ns, int exit_code, const char *what);
