/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pidfd_open and pidfd_send_signal for a shoald under a valgrind that does not know them (3.19 does
 * not): preloaded by instructions.py, which compiles it. An eventfd stands for a pidfd: one that
 * becomes readable when a thread has seen the process die; the reaping thread is not disturbed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FDS_MAX = 4096 };

static pid_t pids[FDS_MAX];

/* Valgrind hands it on to shoald; the workers are not to have it. */
__attribute__((constructor)) static void
keep_from_children(void)
{
    if (strcmp(program_invocation_short_name, "shoald") == 0)
        unsetenv("LD_PRELOAD");
}

static void *
wait_for_death(void *context)
{
    intptr_t fd = (intptr_t)context;
    siginfo_t info;
    sigset_t signals;
    sigfillset(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    while (waitid(P_PID, (id_t)pids[fd], &info, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        continue;
    eventfd_write((int)fd, 1);
    return NULL;
}

static long
watch(pid_t pid)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0 || fd >= FDS_MAX)
        return -1;
    pids[fd] = pid;
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_death, (void *)(intptr_t)fd) != 0)
        return -1;
    pthread_detach(thread);
    return fd;
}

long
syscall(long number, ...)
{
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_pidfd_open)
        return watch((pid_t)arguments[0]);
    if (number == SYS_pidfd_send_signal && arguments[0] >= 0 && arguments[0] < FDS_MAX)
        return kill(pids[arguments[0]], (int)arguments[1]);
    static long (*next)(long, ...);
    if (next == NULL)
        next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                arguments[5]);
}
