/* SPDX-License-Identifier: Apache-2.0 */
#include "base/join.h"

#include <time.h>

#include "base/clock.h"

static struct timespec
timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

#ifdef __SANITIZE_THREAD__
/* gcc's ThreadSanitizer does not know pthread_clockjoin_np and would report races with the joined
 * thread. */
bool
join_until(pthread_t thread, int64_t deadline_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t left_ns = deadline_ns - clock_now_ns();
    struct timespec until =
        timespec_of((int64_t)now.tv_sec * NS_PER_S + now.tv_nsec + (left_ns > 0 ? left_ns : 0));
    return pthread_timedjoin_np(thread, NULL, &until) == 0;
}
#else
bool
join_until(pthread_t thread, int64_t deadline_ns)
{
    struct timespec until = timespec_of(deadline_ns);
    return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}
#endif
