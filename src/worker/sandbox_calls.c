/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls that a worker may make: a list for each of the two steps. Other calls fail with
 * EPERM, which the modelet sees like any other error. The second filter is added to the first, so
 * it can only take away.
 *
 * Calls that are allowed with any arguments cost nothing (the kernel keeps a bitmap of them since
 * 5.11), and a worker makes only such calls per request.
 *
 * To name the calls that a start failed for, the first filter can raise SIGSYS instead.
 *
 * Conditions compare exactly the bits that the kernel looks at: an int argument comes in a register
 * whose upper half may contain anything.
 */
#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/check.h"
#include "worker/sandbox.h"

/* Calls newer than the oldest supported libseccomp; their numbers are the same on every
 * architecture. */
enum {
    CALL_FCHMODAT2 = 452,
    CALL_MAP_SHADOW_STACK = 453,
    CALL_FUTEX_WAKE = 454,
    CALL_FUTEX_WAIT = 455,
    CALL_FUTEX_REQUEUE = 456,
    CALL_MSEAL = 462,
    /* Unknown calls get ENOSYS, as from a kernel that does not know them: the C library then does
     * without. Up to x86's gap in the numbers. */
    CALL_UNKNOWN_FIRST = 464,
    CALL_UNKNOWN_LAST = 511,
};

/* ---- calls with any arguments ---- */

/* Memory, time, threads, waiting, open descriptors, queries about oneself. */
static const int calls_always[] = {
    SCMP_SYS(arch_prctl),
    SCMP_SYS(brk),
    SCMP_SYS(mincore),
    SCMP_SYS(mlock),
    SCMP_SYS(mlock2),
    SCMP_SYS(mremap),
    SCMP_SYS(msync),
    SCMP_SYS(munlock),
    SCMP_SYS(munmap),
    SCMP_SYS(get_mempolicy),
    SCMP_SYS(set_mempolicy),
    SCMP_SYS(mbind),
    SCMP_SYS(pkey_alloc),
    SCMP_SYS(pkey_free),
    CALL_MAP_SHADOW_STACK,
    CALL_MSEAL,

    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(nanosleep),
    SCMP_SYS(time),
    SCMP_SYS(alarm),
    SCMP_SYS(getitimer),
    SCMP_SYS(setitimer),
    SCMP_SYS(timer_create),
    SCMP_SYS(timer_delete),
    SCMP_SYS(timer_getoverrun),
    SCMP_SYS(timer_gettime),
    SCMP_SYS(timer_settime),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_gettime),
    SCMP_SYS(timerfd_settime),

    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(futex),
    SCMP_SYS(futex_waitv),
    CALL_FUTEX_REQUEUE,
    CALL_FUTEX_WAIT,
    CALL_FUTEX_WAKE,
    SCMP_SYS(membarrier),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rseq),
    SCMP_SYS(sched_get_priority_max),
    SCMP_SYS(sched_get_priority_min),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_getparam),
    SCMP_SYS(sched_getscheduler),
    SCMP_SYS(sched_yield),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(set_tid_address),

    SCMP_SYS(pause),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigpending),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigsuspend),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(signalfd),
    SCMP_SYS(signalfd4),

    SCMP_SYS(close),
    SCMP_SYS(close_range),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(epoll_create),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(eventfd),
    SCMP_SYS(eventfd2),
    SCMP_SYS(fadvise64),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat), /* the C library's fstat */
    SCMP_SYS(statx),
    SCMP_SYS(fstatfs),
    SCMP_SYS(getdents),
    SCMP_SYS(getdents64),
    SCMP_SYS(lseek),
    SCMP_SYS(pipe),
    SCMP_SYS(pipe2),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(pread64),
    SCMP_SYS(preadv),
    SCMP_SYS(preadv2),
    SCMP_SYS(pselect6),
    SCMP_SYS(read),
    SCMP_SYS(readahead),
    SCMP_SYS(readv),
    SCMP_SYS(select),
    SCMP_SYS(write),
    SCMP_SYS(writev),

    SCMP_SYS(capget),
    SCMP_SYS(getcpu),
    SCMP_SYS(getegid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getgroups),
    SCMP_SYS(getpgid),
    SCMP_SYS(getpgrp),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(getpriority),
    SCMP_SYS(getrandom),
    SCMP_SYS(getresgid),
    SCMP_SYS(getresuid),
    SCMP_SYS(getrlimit),
    SCMP_SYS(getrusage),
    SCMP_SYS(getsid),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(sysinfo),
    SCMP_SYS(times),
    SCMP_SYS(ugetrlimit),
    SCMP_SYS(uname),
};

/* Finding and querying files. Opening depends on arguments, below. */
static const int calls_reading[] = {
    SCMP_SYS(access),     SCMP_SYS(chdir),  SCMP_SYS(faccessat), SCMP_SYS(faccessat2),
    SCMP_SYS(fchdir),     SCMP_SYS(getcwd), SCMP_SYS(lstat),     SCMP_SYS(readlink),
    SCMP_SYS(readlinkat), SCMP_SYS(stat),   SCMP_SYS(statfs),    SCMP_SYS(umask),
};

/* Calls that change files, within the user's rights. */
static const int calls_files[] = {
    SCMP_SYS(chmod),
    SCMP_SYS(chown),
    SCMP_SYS(copy_file_range),
    SCMP_SYS(creat),
    SCMP_SYS(fallocate),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(fchown),
    SCMP_SYS(fchownat),
    SCMP_SYS(fdatasync),
    SCMP_SYS(fgetxattr),
    SCMP_SYS(flistxattr),
    SCMP_SYS(flock),
    SCMP_SYS(fremovexattr),
    SCMP_SYS(fsetxattr),
    SCMP_SYS(fsync),
    SCMP_SYS(ftruncate),
    SCMP_SYS(futimesat),
    SCMP_SYS(getxattr),
    SCMP_SYS(inotify_add_watch),
    SCMP_SYS(inotify_init),
    SCMP_SYS(inotify_init1),
    SCMP_SYS(inotify_rm_watch),
    SCMP_SYS(lchown),
    SCMP_SYS(lgetxattr),
    SCMP_SYS(link),
    SCMP_SYS(linkat),
    SCMP_SYS(listxattr),
    SCMP_SYS(llistxattr),
    SCMP_SYS(lremovexattr),
    SCMP_SYS(lsetxattr),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(openat2),
    SCMP_SYS(pwrite64),
    SCMP_SYS(pwritev),
    SCMP_SYS(pwritev2),
    SCMP_SYS(removexattr),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(rmdir),
    SCMP_SYS(sendfile),
    SCMP_SYS(setxattr),
    SCMP_SYS(splice),
    SCMP_SYS(symlink),
    SCMP_SYS(symlinkat),
    SCMP_SYS(sync_file_range),
    SCMP_SYS(tee),
    SCMP_SYS(truncate),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(utime),
    SCMP_SYS(utimensat),
    SCMP_SYS(utimes),
    CALL_FCHMODAT2,
};

static const int calls_network[] = {
    SCMP_SYS(accept),      SCMP_SYS(accept4),     SCMP_SYS(bind),       SCMP_SYS(connect),
    SCMP_SYS(getpeername), SCMP_SYS(getsockname), SCMP_SYS(getsockopt), SCMP_SYS(listen),
    SCMP_SYS(recvfrom),    SCMP_SYS(recvmmsg),    SCMP_SYS(recvmsg),    SCMP_SYS(sendmmsg),
    SCMP_SYS(sendmsg),     SCMP_SYS(sendto),      SCMP_SYS(setsockopt), SCMP_SYS(shutdown),
    SCMP_SYS(socket),      SCMP_SYS(socketpair),
};

/* Only `all` allows ptrace, other processes' memory, namespaces and users. */
static const int calls_processes[] = {
    SCMP_SYS(clone),
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(kill),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(rt_sigqueueinfo),
    SCMP_SYS(rt_tgsigqueueinfo),
    SCMP_SYS(sched_setaffinity),
    SCMP_SYS(setpgid),
    SCMP_SYS(setsid),
    SCMP_SYS(tgkill),
    SCMP_SYS(tkill),
    SCMP_SYS(vfork),
    SCMP_SYS(wait4),
    SCMP_SYS(waitid),
};

static const int calls_code[] = {
    SCMP_SYS(memfd_create),
    SCMP_SYS(mmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(pkey_mprotect),
};

/* Calls of the second filter. */
static const int calls_starting[] = {SCMP_SYS(seccomp)};

/* `starting` and `serving`: the names of which any one allows these calls in that step. */
#define ALWAYS UINT32_MAX
#define NEVER 0

static const struct {
    const int *calls;
    size_t count;
    uint32_t starting;
    uint32_t serving;
} groups[] = {
    {calls_always, ARRAY_COUNT(calls_always), ALWAYS, ALWAYS},
    {calls_reading, ARRAY_COUNT(calls_reading), ALWAYS,
     SANDBOX_ALLOW_READING | SANDBOX_ALLOW_FILES | SANDBOX_SERVES_MODELS | SANDBOX_IMPORTS},
    {calls_files, ARRAY_COUNT(calls_files), SANDBOX_ALLOW_FILES, SANDBOX_ALLOW_FILES},
    {calls_network, ARRAY_COUNT(calls_network), SANDBOX_ALLOW_NETWORK, SANDBOX_ALLOW_NETWORK},
    {calls_processes, ARRAY_COUNT(calls_processes), SANDBOX_ALLOW_PROCESSES,
     SANDBOX_ALLOW_PROCESSES},
    {calls_code, ARRAY_COUNT(calls_code), ALWAYS, SANDBOX_ALLOW_CODE},
    {calls_starting, ARRAY_COUNT(calls_starting), ALWAYS, NEVER},
};

/* ---- calls with certain arguments ---- */

/* Mask and value for the comparison of an argument. */
#define INT_IS(value) UINT32_MAX, (value)
#define BITS_CLEAR(bits) (bits), 0
#define WHOLE_IS(value) UINT64_MAX, (value)

/* The permissions to open files for reading while it serves. */
#define OPENS (SANDBOX_ALLOW_READING | SANDBOX_SERVES_MODELS | SANDBOX_IMPORTS)

enum {
    ADVICE_GUARD_INSTALL = 102, /* used by newer C libraries to guard threads' stacks */
    ADVICE_GUARD_REMOVE = 103,
    OPEN_CHANGES = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY),
    CLONE_NEW_NAMESPACES = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                           CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET,
};

static const struct condition {
    int call;
    unsigned argument;
    uint64_t mask;
    uint64_t value;
    uint32_t starting;
    uint32_t serving;
} conditions[] = {
    /* for reading; writing needs FILES, on any kernel */
    {SCMP_SYS(open), 1, BITS_CLEAR(OPEN_CHANGES), ALWAYS, OPENS},
    {SCMP_SYS(openat), 2, BITS_CLEAR(OPEN_CHANGES), ALWAYS, OPENS},

    {SCMP_SYS(mmap), 2, BITS_CLEAR(PROT_EXEC), NEVER, ALWAYS},
    {SCMP_SYS(mprotect), 2, BITS_CLEAR(PROT_EXEC), NEVER, ALWAYS},
    {SCMP_SYS(pkey_mprotect), 2, BITS_CLEAR(PROT_EXEC), NEVER, ALWAYS},

    /* not MADV_REMOVE, MADV_HWPOISON: they take pages from other processes */
    {SCMP_SYS(madvise), 2, INT_IS(MADV_NORMAL), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_RANDOM), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_SEQUENTIAL), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_WILLNEED), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_DONTNEED), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_FREE), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_DONTFORK), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_DOFORK), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_HUGEPAGE), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_NOHUGEPAGE), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_DONTDUMP), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_DODUMP), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_WIPEONFORK), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_KEEPONFORK), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_COLD), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_POPULATE_READ), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(MADV_POPULATE_WRITE), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(ADVICE_GUARD_INSTALL), ALWAYS, ALWAYS},
    {SCMP_SYS(madvise), 2, INT_IS(ADVICE_GUARD_REMOVE), ALWAYS, ALWAYS},

    /* a thread, not a process; without CLONE_THREAD it is `processes` */
    {SCMP_SYS(clone), 0, CLONE_THREAD | CLONE_NEW_NAMESPACES, CLONE_THREAD, ALWAYS, ALWAYS},

    /* not F_SETOWN, F_SETSIG: signals to other processes; no locks that other processes would wait
     * for */
    {SCMP_SYS(fcntl), 1, INT_IS(F_DUPFD), ALWAYS, ALWAYS},
    {SCMP_SYS(fcntl), 1, INT_IS(F_DUPFD_CLOEXEC), ALWAYS, ALWAYS},
    {SCMP_SYS(fcntl), 1, INT_IS(F_GETFD), ALWAYS, ALWAYS},
    {SCMP_SYS(fcntl), 1, INT_IS(F_SETFD), ALWAYS, ALWAYS},
    {SCMP_SYS(fcntl), 1, INT_IS(F_GETFL), ALWAYS, ALWAYS},
    {SCMP_SYS(fcntl), 1, INT_IS(F_SETFL), ALWAYS, ALWAYS},
    {SCMP_SYS(fcntl), 1, INT_IS(F_GETPIPE_SZ), ALWAYS, ALWAYS},
    {SCMP_SYS(fcntl), 1, INT_IS(F_SETPIPE_SZ), ALWAYS, ALWAYS},
    {SCMP_SYS(fcntl), 1, INT_IS(F_GETLK), SANDBOX_ALLOW_FILES, SANDBOX_ALLOW_FILES},
    {SCMP_SYS(fcntl), 1, INT_IS(F_SETLK), SANDBOX_ALLOW_FILES, SANDBOX_ALLOW_FILES},
    {SCMP_SYS(fcntl), 1, INT_IS(F_SETLKW), SANDBOX_ALLOW_FILES, SANDBOX_ALLOW_FILES},
    {SCMP_SYS(fcntl), 1, INT_IS(F_OFD_GETLK), SANDBOX_ALLOW_FILES, SANDBOX_ALLOW_FILES},
    {SCMP_SYS(fcntl), 1, INT_IS(F_OFD_SETLK), SANDBOX_ALLOW_FILES, SANDBOX_ALLOW_FILES},
    {SCMP_SYS(fcntl), 1, INT_IS(F_OFD_SETLKW), SANDBOX_ALLOW_FILES, SANDBOX_ALLOW_FILES},
    {SCMP_SYS(fcntl), 1, INT_IS(F_GET_SEALS), ALWAYS, ALWAYS}, /* for a client region's region */
    {SCMP_SYS(fcntl), 1, INT_IS(F_ADD_SEALS), SANDBOX_ALLOW_FILES, SANDBOX_ALLOW_FILES},

    /* not TIOCSTI, which types into the operator's terminal, nor FIOSETOWN */
    {SCMP_SYS(ioctl), 1, INT_IS(TCGETS), ALWAYS, ALWAYS},
    {SCMP_SYS(ioctl), 1, INT_IS(TIOCGWINSZ), ALWAYS, ALWAYS},
    {SCMP_SYS(ioctl), 1, INT_IS(FIONREAD), ALWAYS, ALWAYS},
    {SCMP_SYS(ioctl), 1, INT_IS(FIONBIO), ALWAYS, ALWAYS},
    {SCMP_SYS(ioctl), 1, INT_IS(FIOCLEX), ALWAYS, ALWAYS},
    {SCMP_SYS(ioctl), 1, INT_IS(FIONCLEX), ALWAYS, ALWAYS},

    /* not PR_SET_PDEATHSIG, which would outlive the coordinator, nor PR_SET_DUMPABLE */
    {SCMP_SYS(prctl), 0, INT_IS(PR_SET_NAME), ALWAYS, ALWAYS},
    {SCMP_SYS(prctl), 0, INT_IS(PR_GET_NAME), ALWAYS, ALWAYS},
    {SCMP_SYS(prctl), 0, INT_IS(PR_SET_VMA), ALWAYS, ALWAYS},
    {SCMP_SYS(prctl), 0, INT_IS(PR_GET_DUMPABLE), ALWAYS, ALWAYS},
    {SCMP_SYS(prctl), 0, INT_IS(PR_CAPBSET_READ), ALWAYS, ALWAYS},
    {SCMP_SYS(prctl), 0, INT_IS(PR_GET_NO_NEW_PRIVS), ALWAYS, ALWAYS},
    {SCMP_SYS(prctl), 0, INT_IS(PR_SET_NO_NEW_PRIVS), ALWAYS, NEVER},
    {SCMP_SYS(prctl), 0, INT_IS(PR_SET_TIMERSLACK), ALWAYS, NEVER},

    /* messages to the coordinator */
    {SCMP_SYS(sendto), 0, INT_IS(HANDSHAKE_FD_CONTROL), ALWAYS, ALWAYS},
    /* messages from it: client regions, with their regions */
    {SCMP_SYS(recvmsg), 0, INT_IS(HANDSHAKE_FD_CONTROL), ALWAYS, ALWAYS},
    /* messages about models */
    {SCMP_SYS(sendto), 0, INT_IS(HANDSHAKE_FD_MODELS), SANDBOX_SERVES_MODELS,
     SANDBOX_SERVES_MODELS},
    {SCMP_SYS(recvfrom), 0, INT_IS(HANDSHAKE_FD_MODELS), SANDBOX_SERVES_MODELS,
     SANDBOX_SERVES_MODELS},

    {SCMP_SYS(prlimit64), 2, WHOLE_IS(0), ALWAYS, ALWAYS}, /* to query, not to set */
    {SCMP_SYS(sched_setaffinity), 0, INT_IS(0), ALWAYS, SANDBOX_SERVES_MODELS}, /* the pacer */
};

/* Conditions on two arguments. */
static const struct condition_pair {
    struct condition first;
    unsigned argument;
    uint64_t mask;
    uint64_t value;
} pairs[] = {
    /* libraries that an engine loads with a model, or an import: code from files that it cannot
     * write */
    {{SCMP_SYS(mmap), 2, PROT_EXEC | PROT_WRITE, PROT_EXEC, NEVER,
      SANDBOX_SERVES_MODELS | SANDBOX_IMPORTS},
     3,
     BITS_CLEAR(MAP_ANONYMOUS)},
    /* the loader lowers its own priority; the limits prevent raising it */
    {{SCMP_SYS(setpriority), 0, INT_IS(PRIO_PROCESS), SANDBOX_SERVES_MODELS, SANDBOX_SERVES_MODELS},
     1,
     INT_IS(0)},
    {{SCMP_SYS(sched_setscheduler), 0, INT_IS(0), SANDBOX_SERVES_MODELS, SANDBOX_SERVES_MODELS},
     1,
     INT_IS(SCHED_IDLE)},
    {{SCMP_SYS(sched_setscheduler), 0, INT_IS(0), SANDBOX_SERVES_MODELS, SANDBOX_SERVES_MODELS},
     1,
     INT_IS(SCHED_NORMAL)},
};

/* Signals to itself, for abort() and raise(). */
static const int calls_own_process[] = {
    SCMP_SYS(kill),
    SCMP_SYS(tgkill),
    SCMP_SYS(rt_sigqueueinfo),
    SCMP_SYS(rt_tgsigqueueinfo),
};

/* Answered with ENOSYS: clone3 and openat2 take their flags through a pointer, which a filter
 * cannot follow; the C library then uses the older call. */
static const int calls_hidden[] = {SCMP_SYS(clone3), SCMP_SYS(openat2)};

/* ---- the filter ---- */

static bool
allowed(enum sandbox_step step, uint32_t allow, uint32_t starting, uint32_t serving)
{
    uint32_t by = step == SANDBOX_SERVING ? serving : starting;
    return by == (uint32_t)ALWAYS || (by & allow) != 0;
}

/* libseccomp gives calls that an architecture lacks a negative number. */
static int
rule_add(scmp_filter_ctx filter, uint32_t action, int call)
{
    return call < 0 ? 0 : seccomp_rule_add(filter, action, call, 0);
}

static int
rule_add_if(scmp_filter_ctx filter, int call, unsigned argument, uint64_t mask, uint64_t value)
{
    const struct scmp_arg_cmp compare = {argument, SCMP_CMP_MASKED_EQ, mask, value};
    return call < 0 ? 0 : seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, call, 1, &compare);
}

static int
rule_add_pair(scmp_filter_ctx filter, const struct condition_pair *pair)
{
    const struct condition *first = &pair->first;
    const struct scmp_arg_cmp compare[] = {
        {first->argument, SCMP_CMP_MASKED_EQ, first->mask, first->value},
        {pair->argument, SCMP_CMP_MASKED_EQ, pair->mask, pair->value},
    };
    return first->call < 0
               ? 0
               : seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, first->call, 2, compare);
}

static int
add_groups(scmp_filter_ctx filter, enum sandbox_step step, uint32_t allow)
{
    int failed = 0;
    for (size_t i = 0; i < ARRAY_COUNT(groups); i++) {
        if (!allowed(step, allow, groups[i].starting, groups[i].serving))
            continue;
        for (size_t k = 0; k < groups[i].count && failed == 0; k++)
            failed = rule_add(filter, SCMP_ACT_ALLOW, groups[i].calls[k]);
    }
    return failed;
}

static int
add_conditions(scmp_filter_ctx filter, enum sandbox_step step, uint32_t allow)
{
    int failed = 0;
    for (size_t i = 0; i < ARRAY_COUNT(conditions) && failed == 0; i++) {
        const struct condition *rule = &conditions[i];
        if (allowed(step, allow, rule->starting, rule->serving))
            failed = rule_add_if(filter, rule->call, rule->argument, rule->mask, rule->value);
    }
    for (size_t i = 0; i < ARRAY_COUNT(pairs) && failed == 0; i++)
        if (allowed(step, allow, pairs[i].first.starting, pairs[i].first.serving))
            failed = rule_add_pair(filter, &pairs[i]);
    for (size_t i = 0; i < ARRAY_COUNT(calls_own_process) && failed == 0; i++)
        failed = rule_add_if(filter, calls_own_process[i], 0, INT_IS((uint32_t)getpid()));
    return failed;
}

static int
add_hidden(scmp_filter_ctx filter, uint32_t allow)
{
    int failed = 0;
    for (size_t i = 0; i < ARRAY_COUNT(calls_hidden) && failed == 0; i++)
        if (calls_hidden[i] != SCMP_SYS(openat2) || !(allow & SANDBOX_ALLOW_FILES))
            failed = rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), calls_hidden[i]);
    for (int call = CALL_UNKNOWN_FIRST; call <= CALL_UNKNOWN_LAST && failed == 0; call++)
        failed = rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), call);
    return failed;
}

/*
 * TSYNC: all threads, because a plug-in may have started some before the second step. SSB: without
 * it kernels before 5.16 disable speculative stores for the whole process, which would slow every
 * run, to protect the process from code that runs in it anyway.
 */
static int
set_attributes(scmp_filter_ctx filter)
{
    const struct {
        enum scmp_filter_attr attribute;
        uint32_t value;
    } attributes[] = {
        {SCMP_FLTATR_API_SYSRAWRC, 1}, /* the kernel's errno; must be set first */
        {SCMP_FLTATR_CTL_NNP, 0},      /* done already */
        {SCMP_FLTATR_CTL_TSYNC, 1},
        {SCMP_FLTATR_CTL_SSB, 1},
        {SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)},
        {SCMP_FLTATR_CTL_OPTIMIZE, 2},
    };
    int failed = 0;
    for (size_t i = 0; i < ARRAY_COUNT(attributes) && failed == 0; i++)
        failed = seccomp_attr_set(filter, attributes[i].attribute, attributes[i].value);
    return failed;
}

/* ---- naming what is refused ---- */

enum { REFUSED_MAX = 8, BY_SECCOMP = 1 /* si_code; older headers lack SYS_SECCOMP */ };

static volatile sig_atomic_t refused[REFUSED_MAX];
static volatile sig_atomic_t refused_count;

static void
note_refused(int call)
{
    int i = 0;
    while (i < refused_count && refused[i] != call)
        i++;
    if (i < REFUSED_MAX && i == refused_count) {
        refused[i] = call;
        refused_count = i + 1;
    }
}

/* The kernel has not carried out the call: it returns what is written here. */
static void
on_refused(int number, siginfo_t *info, void *context)
{
    ucontext_t *machine = context;
    (void)number;
    if (info->si_code != BY_SECCOMP)
        abort();
    note_refused(info->si_syscall);
#if defined(__x86_64__)
    machine->uc_mcontext.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
    machine->uc_mcontext.regs[0] = (unsigned long long)-EPERM;
#endif
}

/* The C library blocks all signals while it makes a process, so that call is refused without. */
static int
add_naming(scmp_filter_ctx filter, uint32_t allow)
{
    const struct scmp_arg_cmp process = {0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0};
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigfillset(&action.sa_mask);
    if (sigaction(SIGSYS, &action, NULL) != 0)
        return errno;
    return allow & SANDBOX_ALLOW_PROCESSES ? 0
                                           : seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM),
                                                                    SCMP_SYS(clone), 1, &process);
}

/* NULL: none of them. */
static const char *
first_name(uint32_t allow)
{
    for (uint32_t bit = 0; allow != (uint32_t)ALWAYS && bit < SANDBOX_ALLOW_COUNT; bit++)
        if (allow & 1u << bit)
            return sandbox_allow_name(bit);
    return NULL;
}

const char *
calls_allowed_by(int call)
{
    const char *name = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(groups) && name == NULL; i++)
        for (size_t k = 0; k < groups[i].count && name == NULL; k++)
            if (groups[i].calls[k] == call)
                name = first_name(groups[i].serving);
    for (size_t i = 0; i < ARRAY_COUNT(conditions) && name == NULL; i++)
        if (conditions[i].call == call)
            name = first_name(conditions[i].serving);
    return name != NULL ? name : "all";
}

void
calls_refused(char *text, size_t room)
{
    size_t used = 0;
    if (refused_count == 0) /* the one that raises no signal */
        snprintf(text, room, "clone (%s), if any", calls_allowed_by(SCMP_SYS(clone)));
    for (int i = 0; i < refused_count && used < room; i++) {
        char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, refused[i]);
        used += (size_t)snprintf(text + used, room - used, "%s%s (%s)", i > 0 ? ", " : "",
                                 name != NULL ? name : "?", calls_allowed_by(refused[i]));
        free(name);
    }
}

/* ---- in force ---- */

int
calls_restrict(enum sandbox_step step, uint32_t allow)
{
    scmp_filter_ctx filter =
        seccomp_init(step == SANDBOX_NAMING ? SCMP_ACT_TRAP : SCMP_ACT_ERRNO(EPERM));
    if (filter == NULL)
        return ENOMEM;
    int failed = set_attributes(filter);
    if (failed == 0 && step == SANDBOX_NAMING)
        failed = add_naming(filter, allow);
    if (failed == 0)
        failed = add_groups(filter, step, allow);
    if (failed == 0)
        failed = add_conditions(filter, step, allow);
    if (failed == 0)
        failed = add_hidden(filter, allow);
    if (failed == 0)
        failed = seccomp_load(filter);
    seccomp_release(filter);
    return failed < 0 ? -failed : failed;
}
