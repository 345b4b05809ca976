/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last words of a worker that crashes: which signal, at which address, during what, with which
 * requests, and a backtrace. Then the process dies of that signal, as it would without this, so
 * that the coordinator judges and repairs as ever.
 *
 * The modelet may have corrupted anything, so the handler trusts nothing and needs nothing: it
 * calls only what is safe in a signal handler, runs on a stack of its own, and writes each line
 * before it reads the memory that the next one needs. A fault of the handler itself is caught by it
 * again and costs the step that faulted. After CRASH_SECONDS the process dies with what was
 * written.
 *
 * A signal for which somebody else has installed a handler before (a sanitizer) stays theirs.
 * Threads that the modelet starts have no stack for the handler: if their own overflows, the
 * process dies without last words.
 */
#pragma once

#include <stdint.h>

#include <shoal/modelet.h>

#include "ipc/handshake.h"

enum { CRASH_SECONDS = 1, CRASH_FRAMES_MAX = 48, CRASH_SLOTS_MAX = 16 };

enum crash_doing {
    CRASH_NOTHING,
    CRASH_START,
    CRASH_LOAD,
    CRASH_UNLOAD,
    CRASH_PREDICT,
    CRASH_RUN,
};

/* Installs the handlers; `start` is kept. Call before the sandbox, on the main thread: this
 * program's own file can be read then. Call crash_symbols_keep again before files cannot be opened
 * any more. */
void crash_catch(const struct handshake_start *start);

/* Gives the calling thread a stack for the handler. One thread beside the main one may have one. */
void crash_stack_for_loader(void);

/* Says what this thread does from now on, and for which model ("": none); both are kept. */
void crash_begin(enum crash_doing doing, const char *model);
void crash_begin_run(const char *model, struct shoal_item *const *items, uint32_t count);
void crash_end(void);
