/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker gives these up before it runs foreign code: rights, limits, files, system calls.
 * It is done in two steps. The first comes before the plug-in is opened, whose constructors run
 * then, and is the border that a hostile one meets; the second comes when the modelet is ready, and
 * takes away what only starting needed. All of it is for good: nothing here can be undone.
 *
 * DESIGN-sandbox.md says what is allowed and why, and what the sandbox does not protect from.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/handshake.h"
#include "shm/sandbox.h"

enum { SANDBOX_TEXT_BYTES = 512 };

/* Beside the names of `sandbox_allow`: models come and go, so files are opened and libraries loaded
 * while the worker serves. */
enum { SANDBOX_SERVES_MODELS = 1u << 16 };

_Static_assert((SANDBOX_SERVES_MODELS & SANDBOX_ALLOW_EVERY) == 0, "no name's bit");

/* The parts in force, and the parts that the kernel lacks. */
struct sandbox {
    uint32_t allow;    /* enum sandbox_allow, SANDBOX_SERVES_MODELS */
    uint32_t asked;    /* parts that this stage is to have */
    uint32_t in_force; /* parts that it has */
    enum sandbox_need need;
    char missing[SANDBOX_TEXT_BYTES]; /* "landlock_files(ENOSYS) calls_serving(EPERM)" */
};

/* ---- sandbox.c ---- */

/* With what a name brings along: a program needs its libraries, and a file that may be written may
 * also be read. Pure. */
uint32_t sandbox_completed(uint32_t allow);
/* Parts for want of which `required` refuses to start. What Landlock says of sockets and signals is
 * said twice: with the system calls in force nothing gets that far, so an older Landlock will do.
 * Pure. */
uint32_t sandbox_lacking(uint32_t asked, uint32_t in_force);

/* The first step. FAILED_PRECONDITION: a part is missing that is required. */
enum status sandbox_enter(struct sandbox *sandbox, const struct handshake_start *start,
                          struct error *error) WARN_UNUSED;

/* The second step, in every thread that the modelet may have made by now. */
enum status sandbox_narrow(struct sandbox *sandbox, struct error *error) WARN_UNUSED;

/* ---- sandbox_landlock.c ---- */

/* The rights that a Landlock ruleset takes away: bits as in <linux/landlock.h>. */
struct landlock_rights {
    uint64_t files;
    uint64_t tcp;
    uint64_t scopes;
};

/* The rights that a kernel of this version can take away from a stage that allows this.
 * Pure. */
struct landlock_rights landlock_rights_for(int abi, uint32_t allow);
/* Which parts of the sandbox these are. Pure. */
uint32_t landlock_parts(const struct landlock_rights *rights);

/* Puts Landlock in force for this thread and those it makes. Returns the parts in force; of the
 * others `*missing_errno` says why. */
uint32_t landlock_enter(const struct handshake_start *start, uint32_t allow, int *missing_errno);

/* ---- sandbox_calls.c ---- */

enum sandbox_step { SANDBOX_STARTING, SANDBOX_SERVING };

/* Allows this process the system calls of that step and no others. 0, or an errno. */
int calls_restrict(enum sandbox_step step, uint32_t allow);
