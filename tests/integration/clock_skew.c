/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded (LD_PRELOAD) by a shoald whose wall clock is to be off by the seconds that stand in the
 * file CLOCK_SKEW_FILE, as of now. The monotonic clock is as it is. The file is read at most once
 * in ten milliseconds, and not by workers, whose sandbox may not let them. A futex that waits until
 * a wall-clock time (Abseil's locks, in gRPC) waits by the kernel's clock, so its deadline is
 * shifted back: otherwise a node whose clock is behind would spin.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int clock_function(clockid_t clock, struct timespec *time);
typedef long syscall_function(long number, ...);

enum { LOOK_NS = 10000000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static clock_function *real;
static syscall_function *real_syscall;
static const char *path;
static _Atomic long skew_s;
static _Atomic long long looked_ns;

static void
begin(void)
{
    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    *(void **)&real_syscall = dlsym(RTLD_NEXT, "syscall");
    if (strcmp(program_invocation_short_name, "shoald") == 0)
        path = getenv("CLOCK_SKEW_FILE");
}

static void
look(void)
{
    struct timespec now;
    real(CLOCK_MONOTONIC, &now);
    long long now_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
    if (path == NULL || now_ns - looked_ns < LOOK_NS)
        return;
    looked_ns = now_ns;
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
        skew_s = strtol(text, NULL, 10);
    if (fd >= 0)
        close(fd);
}

int
clock_gettime(clockid_t clock, struct timespec *time)
{
    pthread_once(&once, begin);
    int failed = real(clock, time);
    if (failed != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    look();
    time->tv_sec += skew_s;
    return 0;
}

int
gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t
time(time_t *at)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL)
        *at = now.tv_sec;
    return now.tv_sec;
}

long
syscall(long number, ...)
{
    pthread_once(&once, begin);
    long argument[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(list, long);
    va_end(list);
    struct timespec until;
    if (number == SYS_futex && (argument[1] & FUTEX_CLOCK_REALTIME) != 0 && argument[3] != 0) {
        until = *(const struct timespec *)argument[3];
        until.tv_sec = until.tv_sec > skew_s ? until.tv_sec - skew_s : 0;
        argument[3] = (long)&until;
    }
    return real_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                        argument[5]);
}
