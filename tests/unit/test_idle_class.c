/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the idle class and has too little of the CPU is put into the ordinary one, what has
 * enough is left there; each look has its time. Real threads of a real process: this one.
 *
 * ctest: presets=tsan
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/workers/idle_class.h"
#include "shm/handshake.h"

enum { SLEEPS, BURNS, ENDS };

static _Atomic pid_t loader; /* 0: it is not in the idle class yet */
static _Atomic int task;
static _Atomic int64_t burnt_ns;

static void
wait_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = NS_PER_MS};
    nanosleep(&moment, NULL);
}

/* Asleep in between: who looks again and again would take the CPU that the other lives on. */
static void
wait_until_burnt(int64_t wanted_ns)
{
    int64_t until_ns = clock_now_ns() + 120 * NS_PER_S;
    while (atomic_load(&loader) == 0 || atomic_load(&burnt_ns) < wanted_ns) {
        assert_true(clock_now_ns() < until_ns);
        wait_a_moment();
    }
}

static void *
load(void *context)
{
    const struct sched_param none = {.sched_priority = 0};
    struct timespec used;
    (void)context;
    CHECK(setpriority(PRIO_PROCESS, 0, LOADER_NICE) == 0);
    CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
    atomic_store(&loader, (pid_t)syscall(SYS_gettid));
    while (atomic_load(&task) != ENDS) {
        if (atomic_load(&task) == SLEEPS)
            wait_a_moment();
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        atomic_store(&burnt_ns, used.tv_sec * NS_PER_S + used.tv_nsec);
    }
    return NULL;
}

static void
start(pthread_t *thread, int what)
{
    atomic_store(&loader, 0);
    atomic_store(&task, what);
    assert_int_equal(pthread_create(thread, NULL, load, NULL), 0);
    wait_until_burnt(0);
}

static void
end(pthread_t thread)
{
    atomic_store(&task, ENDS);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Time is as told: a look follows the one before when IDLE_LOOK_NS have passed. */
static void
test_starved(void **state)
{
    (void)state;
    struct idle_watch watch = {.looked_ns = 0};
    pthread_t thread;
    int64_t now_ns = 1000 * NS_PER_S;
    start(&thread, SLEEPS);
    assert_false(idle_watch_look(&watch, getpid(), now_ns)); /* nothing to compare with yet */
    now_ns += IDLE_LOOK_NS - 1;
    assert_false(idle_watch_look(&watch, getpid(), now_ns));
    assert_int_equal(sched_getscheduler(atomic_load(&loader)), SCHED_IDLE);
    now_ns += 1000 * NS_PER_S;
    bool left = idle_watch_look(&watch, getpid(), now_ns);
    assert_int_equal(left, idle_class_can_be_left());
    assert_int_equal(sched_getscheduler(atomic_load(&loader)), left ? SCHED_OTHER : SCHED_IDLE);
    assert_false(idle_watch_look(&watch, getpid(), now_ns + 1000 * NS_PER_S)); /* once a load */
    end(thread);
}

static void
test_has_enough(void **state)
{
    (void)state;
    struct idle_watch watch = {.looked_ns = 0};
    pthread_t thread;
    int64_t now_ns = 1000 * NS_PER_S;
    start(&thread, BURNS);
    for (int i = 0; i < 3; i++) {
        assert_false(idle_watch_look(&watch, getpid(), now_ns));
        wait_until_burnt(atomic_load(&burnt_ns) + IDLE_LOOK_NS / 8);
        now_ns += IDLE_LOOK_NS;
    }
    assert_int_equal(sched_getscheduler(atomic_load(&loader)), SCHED_IDLE);
    end(thread);
}

static void
test_nothing_is_loaded(void **state)
{
    (void)state;
    struct idle_watch watch = {.looked_ns = 0};
    for (int64_t now_ns = NS_PER_S; now_ns < 10 * NS_PER_S; now_ns += NS_PER_S)
        assert_false(idle_watch_look(&watch, getpid(), now_ns));
    assert_false(idle_watch_look(&watch, INT32_MAX, 20 * NS_PER_S)); /* no such process */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starved),
        cmocka_unit_test(test_has_enough),
        cmocka_unit_test(test_nothing_is_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
