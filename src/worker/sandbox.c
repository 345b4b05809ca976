/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/sandbox.h"

#include <errno.h>
#include <execinfo.h>
#include <linux/capability.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

/* ---- sanitizers ---- */

/*
 * Builds with a sanitizer need this: it reads /proc/self/maps now, because it cannot when it
 * reports, and the leak check at exit, which needs ptrace, is off in a sandbox.
 */
__attribute__((weak)) void __sanitizer_sandbox_on_notify(void *arguments); /* NOLINT: its name */
int __lsan_is_turned_off(void);                                            /* NOLINT: its name */

static bool calls_restricted;

int
__lsan_is_turned_off(void) /* NOLINT: its name */
{
    return calls_restricted;
}

static void
sanitizer_prepare(void)
{
    if (__sanitizer_sandbox_on_notify != NULL)
        __sanitizer_sandbox_on_notify(NULL);
}

enum { REFUSED_BYTES = 256 };

/* ---- what is asked ---- */

uint32_t
sandbox_completed(uint32_t allow)
{
    if (allow & SANDBOX_ALLOW_FILES)
        allow |= SANDBOX_ALLOW_READING;
    if (allow & SANDBOX_ALLOW_PROCESSES)
        allow |= SANDBOX_ALLOW_READING | SANDBOX_ALLOW_CODE;
    return allow;
}

uint32_t
sandbox_lacking(uint32_t asked, uint32_t in_force)
{
    if (in_force & SANDBOX_PART_CALLS_STARTING)
        asked &= ~(uint32_t)(SANDBOX_PART_LANDLOCK_TCP | SANDBOX_PART_LANDLOCK_SOCKETS |
                             SANDBOX_PART_LANDLOCK_SIGNALS);
    return asked & ~in_force;
}

/* ---- what came of it ---- */

/* `failed` is the errno for the parts that are not in force. */
static void
note(struct sandbox *sandbox, uint32_t parts, uint32_t in_force, int failed)
{
    sandbox->in_force |= in_force & parts;
    for (uint32_t i = 0; i < SANDBOX_PART_COUNT; i++) {
        if (!(parts & ~in_force & 1u << i))
            continue;
        size_t used = strlen(sandbox->missing);
        const char *reason = strerrorname_np(failed);
        snprintf(sandbox->missing + used, sizeof(sandbox->missing) - used, "%s%s(%s)",
                 used > 0 ? " " : "", sandbox_part_name(i), reason != NULL ? reason : "?");
    }
}

static void
note_one(struct sandbox *sandbox, enum sandbox_part part, int failed)
{
    note(sandbox, part, failed == 0 ? part : 0, failed);
}

static enum status
judge(const struct sandbox *sandbox, uint32_t parts, struct error *error)
{
    uint32_t lacking = sandbox_lacking(sandbox->asked, sandbox->in_force) & parts;
    if (sandbox->need != SANDBOX_REQUIRED || lacking == 0)
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "sandbox: `required`, but this machine does not grant %s: set `sandbox: "
                     "best_effort` to go on without, or exempt this stage by "
                     "`sandbox_allow`",
                     sandbox->missing);
}

/* ---- the parts ---- */

/*
 * Lowers limits for good. RLIMIT_NPROC counts all processes of the user, not ours alone, so it is
 * only fixed at its current value: a lower one would hit the user's other processes.
 */
static int
limits_enter(uint32_t allow)
{
    static const struct {
        __rlimit_resource_t resource;
        rlim_t most; /* RLIM_INFINITY: unchanged */
    } limits[] = {
        {RLIMIT_NOFILE, 1024}, {RLIMIT_MEMLOCK, 1 << 20},       {RLIMIT_MSGQUEUE, 0},
        {RLIMIT_RTPRIO, 0},    {RLIMIT_NICE, 20 - LOADER_NICE}, {RLIMIT_NPROC, RLIM_INFINITY},
    };
    if (!(allow & SANDBOX_ALLOW_CORE)) {
        const struct rlimit none = {0, 0}; /* a core file would hold other callers' requests */
        if (setrlimit(RLIMIT_CORE, &none) != 0)
            return errno;
    }
    for (size_t i = 0; i < ARRAY_COUNT(limits); i++) {
        struct rlimit limit;
        if (getrlimit(limits[i].resource, &limit) != 0)
            return errno;
        if (limit.rlim_cur > limits[i].most)
            limit.rlim_cur = limits[i].most;
        limit.rlim_max = limit.rlim_cur;
        if (setrlimit(limits[i].resource, &limit) != 0)
            return errno;
    }
    return 0;
}

/* Sets the limit as large as the node's own allows. */
static void
core_enter(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_CORE, &limit);
    }
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

/* Workers of a node that runs as root own root's files but have no other power. */
static int
capabilities_drop(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return syscall(SYS_capset, &header, none) == 0 ? 0 : errno;
}

static int
no_new_privs_enter(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno;
}

/* ---- what it refused ---- */

#define REFUSES_FILES                                                                              \
    "its sandbox (Landlock) refuses open outside its folders, and `sandbox_allow: [files]` "       \
    "allows it, unless the file's own mode refuses it"
#define REFUSES_CALLS "its sandbox (seccomp) refuses system calls that `sandbox_allow` allows: "
#define REFUSED_CALLS                                                                              \
    "socket (network), fork, execve (processes), open to write (files), mmap, mprotect of code "   \
    "(code)"

static void
explain_calls(struct sandbox *sandbox, struct error *error)
{
    char calls[REFUSED_BYTES];
    bool in_force = (sandbox->in_force & SANDBOX_PART_CALLS_STARTING) != 0;
    bool named = sandbox->names && in_force;
    sandbox->unnamed = in_force && !named;
    if (!named) {
        (void)error_prefix(error, REFUSES_CALLS REFUSED_CALLS);
        return;
    }
    calls_refused(calls, sizeof(calls));
    (void)error_prefix(
        error, "its sandbox (seccomp) refused system calls that `sandbox_allow` allows: %s", calls);
}

/* Whether the text has the words of `code` at its end or before a mark, as libraries put them. A
 * modelet may have the words for reasons of its own: "Permission denied for this tier". */
static bool
has_error(const char *text, int code)
{
    const char *words = strerror(code);
    const char *found = strstr(text, words);
    while (found != NULL) {
        const char *after = found + strlen(words);
        if (strchr(":,;.)\"'\n", *after) != NULL || strncmp(after, " (", 2) == 0)
            return true;
        found = strstr(after, words);
    }
    return false;
}

/* A failed look-up of a name hides the EPERM of its socket. */
static bool
call_was_refused(const struct sandbox *sandbox, const char *text)
{
    bool has_network = (sandbox->allow & SANDBOX_ALLOW_NETWORK) != 0;
    return has_error(text, EPERM) ||
           (!has_network && strstr(text, gai_strerror(EAI_AGAIN)) != NULL);
}

void
sandbox_explain(struct sandbox *sandbox, struct error *error)
{
    if (sandbox->asked == 0)
        return;
    if (has_error(error->text, EACCES) && !(sandbox->allow & SANDBOX_ALLOW_FILES))
        (void)error_prefix(error, REFUSES_FILES);
    else if (call_was_refused(sandbox, error->text))
        explain_calls(sandbox, error);
}

const char *
sandbox_suspected(const struct sandbox *sandbox, const char *text)
{
    const uint32_t reads = SANDBOX_ALLOW_READING | SANDBOX_SERVES_MODELS | SANDBOX_IMPORTS;
    if ((sandbox->in_force & SANDBOX_PART_LANDLOCK_FILES) != 0 && has_error(text, EACCES))
        return REFUSES_FILES;
    if ((sandbox->in_force & SANDBOX_PART_CALLS_SERVING) == 0 || !call_was_refused(sandbox, text))
        return NULL;
    return sandbox->allow & reads ? REFUSES_CALLS REFUSED_CALLS
                                  : REFUSES_CALLS "open to read (reading), " REFUSED_CALLS;
}

/* ---- the steps ---- */

enum status
sandbox_enter(struct sandbox *sandbox, const struct handshake_start *start, struct error *error)
{
    *sandbox = (struct sandbox){
        .allow = sandbox_completed(start->sandbox_allow),
        .asked = sandbox_parts(start->sandbox_allow),
        .need = start->sandbox_need == SANDBOX_REQUIRED ? SANDBOX_REQUIRED : SANDBOX_BEST_EFFORT,
        .names = start->sandbox_names != 0,
    };
    if (sandbox->allow & SANDBOX_ALLOW_CORE)
        core_enter();
    if (sandbox->asked == 0)
        return STATUS_OK;
    if (start->serves_models != 0)
        sandbox->allow |= SANDBOX_SERVES_MODELS;
    if (start->script[0] != '\0')
        sandbox->allow |= SANDBOX_IMPORTS;
    sanitizer_prepare();
    note_one(sandbox, SANDBOX_PART_NO_NEW_PRIVS, no_new_privs_enter());
    note_one(sandbox, SANDBOX_PART_LIMITS, limits_enter(sandbox->allow));
    int failed = 0;
    uint32_t landlock = landlock_enter(start, sandbox->allow, &failed);
    note(sandbox, sandbox->asked & SANDBOX_PARTS_LANDLOCK, landlock, failed);
    note_one(sandbox, SANDBOX_PART_CAPABILITIES, capabilities_drop());
    calls_restricted = true;
    note_one(sandbox, SANDBOX_PART_CALLS_STARTING,
             calls_restrict(sandbox->names ? SANDBOX_NAMING : SANDBOX_STARTING, sandbox->allow));
    return judge(sandbox, ~(uint32_t)SANDBOX_PART_CALLS_SERVING, error);
}

enum status
sandbox_narrow(struct sandbox *sandbox, struct error *error)
{
    if (sandbox->asked == 0)
        return STATUS_OK;
    /* Loads libgcc now: the C library opens it at a thread's first pthread_exit, which the second
     * step would refuse. */
    void *frame;
    (void)backtrace(&frame, 1);
    sanitizer_prepare();
    int failed = calls_restrict(SANDBOX_SERVING, sandbox->allow);
    note_one(sandbox, SANDBOX_PART_CALLS_SERVING, failed);
    if (failed != 0 && (sandbox->in_force & SANDBOX_PART_CALLS_STARTING))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "sandbox: the second filter of system calls was refused (%s) although "
                         "the first was not: has the modelet set one of its own?",
                         strerrordesc_np(failed));
    return judge(sandbox, SANDBOX_PART_CALLS_SERVING, error);
}
