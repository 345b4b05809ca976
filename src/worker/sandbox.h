/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights, limits, files and system calls that a worker gives up before it runs foreign code. The
 * first step comes before the plug-in is opened, whose constructors run then, and is the border for
 * a hostile plug-in. The second comes when the modelet is ready, and removes what only starting
 * needed. Nothing can be undone.
 *
 * DESIGN-sandbox.md says what is allowed and why, and what the sandbox does not protect from.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ipc/handshake.h"
#include "ipc/sandbox.h"

enum { SANDBOX_TEXT_BYTES = 512 };

/* Bits beside the names of `sandbox_allow`: models come and go, or an interpreted modelet imports,
 * so files are opened and libraries loaded while the worker serves. */
enum { SANDBOX_SERVES_MODELS = 1u << 16, SANDBOX_IMPORTS = 1u << 17 };

_Static_assert(((SANDBOX_SERVES_MODELS | SANDBOX_IMPORTS) & SANDBOX_ALLOW_EVERY) == 0,
               "no name's bit");

/* The parts in force, and the parts that the kernel lacks. */
struct sandbox {
    uint32_t allow;    /* enum sandbox_allow, SANDBOX_SERVES_MODELS, SANDBOX_IMPORTS */
    uint32_t asked;    /* parts for this stage */
    uint32_t in_force; /* parts in force */
    enum sandbox_need need;
    bool names;                       /* the calls that it refuses are noted */
    bool unnamed;                     /* sandbox_explain could not name the calls */
    char missing[SANDBOX_TEXT_BYTES]; /* "landlock_files(ENOSYS) calls_serving(EPERM)" */
};

/* ---- sandbox.c ---- */

/* Adds implied permissions: a program needs its libraries, and a file that may be written may also
 * be read. Pure. */
uint32_t sandbox_completed(uint32_t allow);
/* Returns the missing parts for which `required` refuses to start. Landlock's TCP, sockets and
 * signals may be missing while the system calls, which deny the same, are in force. Pure. */
uint32_t sandbox_lacking(uint32_t asked, uint32_t in_force);

/* The first step. FAILED_PRECONDITION: a required part is missing. */
enum status sandbox_enter(struct sandbox *sandbox, const struct handshake_start *start,
                          struct error *error) WARN_UNUSED;

/* The second step, in all threads that the modelet may have started. */
enum status sandbox_narrow(struct sandbox *sandbox, struct error *error) WARN_UNUSED;

/* Adds to a failure of the modelet whose text has the C library's EPERM, EACCES or failed name
 * look-up: the part of the sandbox, the calls that it refuses, and the names
 * that allow them. */
void sandbox_explain(struct sandbox *sandbox, struct error *error);

/* Returns what sandbox_explain would add to the text of a request that failed while the worker
 * serves; NULL: the sandbox is not the reason. */
const char *sandbox_suspected(const struct sandbox *sandbox, const char *text);

/* ---- sandbox_landlock.c ---- */

/* The rights that a Landlock ruleset takes away: bits as in <linux/landlock.h>. */
struct landlock_rights {
    uint64_t files;
    uint64_t tcp;
    uint64_t scopes;
};

/* Returns the rights that a kernel with this Landlock version can take away, given `allow`.
 * Pure. */
struct landlock_rights landlock_rights_for(int abi, uint32_t allow);
/* Returns the corresponding parts of the sandbox. Pure. */
uint32_t landlock_parts(const struct landlock_rights *rights);

/* Applies Landlock to this thread and those that it starts. Returns the parts in force;
 * `*missing_errno` explains the others. */
uint32_t landlock_enter(const struct handshake_start *start, uint32_t allow, int *missing_errno);

/* ---- sandbox_calls.c ---- */

/* SANDBOX_NAMING: as SANDBOX_STARTING, but refused calls raise SIGSYS, whose handler notes the call
 * and makes it fail with EPERM. A thread that blocks that signal would die, so only a start that
 * has failed is made once more in this way. */
enum sandbox_step { SANDBOX_STARTING, SANDBOX_SERVING, SANDBOX_NAMING };

/* Restricts this process to the system calls of that step. Returns 0 or an errno. */
int calls_restrict(enum sandbox_step step, uint32_t allow);

/* The calls noted so far, each with the name that allows it: "socket (network), ptrace (all)". */
void calls_refused(char *text, size_t room);
/* The name of `sandbox_allow` with which a worker may make the call, with arguments that it must
 * not have without: "network". Pure. */
const char *calls_allowed_by(int call);
