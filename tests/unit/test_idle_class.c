/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread in the idle class with too little CPU is put into the ordinary one, one with enough is
 * left there; each look has its time. Real threads of a real process: this one.
 *
 * ctest: presets=tsan
 */

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "coordinator/workers/idle_class.h"
#include "ipc/handshake.h"

enum { SLEEPS, BURNS, ENDS };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* under the lock: */
static pid_t loader; /* 0: it is not in the idle class yet */
static int task;
static int64_t burnt_ns; /* CPU time of the loader */

/* Until the loader is there and has used so much CPU time since it said so last. */
static void
wait_until_burns(int64_t more_ns)
{
    struct timespec until;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
    until.tv_sec += 120;
    int waited = 0;
    pthread_mutex_lock(&lock);
    int64_t wanted_ns = burnt_ns + more_ns;
    while ((loader == 0 || burnt_ns < wanted_ns) && waited == 0)
        waited = pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&lock);
    assert_int_equal(waited, 0);
}

static int64_t
burn(void)
{
    enum { ROUNDS = 1000 };
    struct timespec used = {0};
    for (int i = 0; i < ROUNDS; i++)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * NS_PER_S + used.tv_nsec;
}

static void *
load(void *context)
{
    const struct sched_param none = {.sched_priority = 0};
    (void)context;
    CHECK(setpriority(PRIO_PROCESS, 0, LOADER_NICE) == 0);
    CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
    pthread_mutex_lock(&lock);
    loader = (pid_t)syscall(SYS_gettid);
    pthread_cond_broadcast(&changed);
    while (task != ENDS) {
        if (task == SLEEPS) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        int64_t now_ns = burn();
        pthread_mutex_lock(&lock);
        burnt_ns = now_ns;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void
start(pthread_t *thread, int what)
{
    loader = 0; /* nobody else runs yet */
    burnt_ns = 0;
    task = what;
    assert_int_equal(pthread_create(thread, NULL, load, NULL), 0);
    wait_until_burns(0);
}

static void
end(pthread_t thread)
{
    pthread_mutex_lock(&lock);
    task = ENDS;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Time is as told: a look follows the one before when IDLE_LOOK_NS have passed. */
TEST_CASE(test_starved)
{
    struct idle_watch watch = {.looked_ns = 0};
    pthread_t thread;
    int64_t now_ns = 1000 * NS_PER_S;
    start(&thread, SLEEPS);
    assert_false(idle_watch_look(&watch, getpid(), now_ns)); /* nothing to compare with yet */
    now_ns += IDLE_LOOK_NS - 1;
    assert_false(idle_watch_look(&watch, getpid(), now_ns));
    assert_int_equal(sched_getscheduler(loader), SCHED_IDLE);
    now_ns += 1000 * NS_PER_S;
    bool left = idle_watch_look(&watch, getpid(), now_ns);
    assert_int_equal(left, idle_class_can_be_left());
    assert_int_equal(sched_getscheduler(loader), left ? SCHED_OTHER : SCHED_IDLE);
    assert_false(idle_watch_look(&watch, getpid(), now_ns + 1000 * NS_PER_S)); /* once a load */
    end(thread);
}

TEST_CASE(test_has_enough)
{
    struct idle_watch watch = {.looked_ns = 0};
    pthread_t thread;
    int64_t now_ns = 1000 * NS_PER_S;
    start(&thread, BURNS);
    for (int i = 0; i < 3; i++) {
        assert_false(idle_watch_look(&watch, getpid(), now_ns));
        wait_until_burns(IDLE_LOOK_NS / 8);
        now_ns += IDLE_LOOK_NS;
    }
    assert_int_equal(sched_getscheduler(loader), SCHED_IDLE);
    end(thread);
}

TEST_CASE(test_nothing_is_loaded)
{
    struct idle_watch watch = {.looked_ns = 0};
    for (int64_t now_ns = NS_PER_S; now_ns < 10 * NS_PER_S; now_ns += NS_PER_S)
        assert_false(idle_watch_look(&watch, getpid(), now_ns));
    assert_false(idle_watch_look(&watch, INT32_MAX, 20 * NS_PER_S)); /* no such process */
}

TEST_MAIN()
