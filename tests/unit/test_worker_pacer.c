/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pacer wakes up while something is loaded, and only then, on the CPU where that is; it can be
 * stopped in either state; a thread that loads is of the idle class if it may be. The bench shows
 * its use (`./dev bench --only models`).
 *
 * ctest: presets=tsan
 */

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "coordinator/workers/idle_class.h"
#include "ipc/handshake.h"
#include "worker/pacer.h"

static void
wait_for_wakes(struct pacer *pacer, uint64_t count)
{
    int64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    while (pacer_wakes(pacer) < count) {
        assert_true(clock_now_ns() < until_ns);
        sched_yield();
    }
}

/* It may have been in its sleep when it was told, and no more than that. */
TEST_CASE(test_wakes_while_wanted)
{
    struct pacer pacer;
    struct error error = ERROR_NONE;
    assert_int_equal(pacer_start(&pacer, PACER_STAYS, &error), STATUS_OK);
    assert_int_equal(pacer_wakes(&pacer), 0);
    for (int i = 0; i < 3; i++) {
        pacer_begin(&pacer);
        wait_for_wakes(&pacer, pacer_wakes(&pacer) + 5);
        pacer_end(&pacer);
        uint64_t at_end = pacer_wakes(&pacer);
        int64_t until_ns = clock_now_ns() + 20 * NS_PER_MS;
        while (clock_now_ns() < until_ns)
            sched_yield();
        assert_in_range(pacer_wakes(&pacer), at_end, at_end + 1);
    }
    pacer_stop(&pacer);
}

TEST_CASE(test_stops_in_either_state)
{
    struct pacer pacer;
    struct error error = ERROR_NONE;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pacer_start(&pacer, PACER_STAYS, &error), STATUS_OK);
        if (i % 2 == 0)
            pacer_begin(&pacer);
        pacer_stop(&pacer);
        pacer_stop(&pacer);
    }
    struct pacer none = {.started = false};
    pacer_begin(&none);
    pacer_end(&none);
    pacer_stop(&none);
}

struct loads {
    struct pacer pacer;
    int class_within, class_after, nice;
    cpu_set_t pacers_cpus;
};

/* Where a thread of that name may run; false: there is none. */
static bool
cpus_of(const char *name, cpu_set_t *cpus)
{
    bool found = false;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    const struct dirent *entry;
    while (!found && (entry = readdir(tasks)) != NULL) {
        char path[300];
        char line[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        found = fgets(line, sizeof(line), file) != NULL && strcmp(line, name) == 0;
        fclose(file);
        if (found)
            CHECK(sched_getaffinity((pid_t)strtol(entry->d_name, NULL, 10), sizeof(*cpus), cpus) ==
                  0);
    }
    closedir(tasks);
    return found;
}

static void *
load_on_last_cpu(void *context)
{
    struct loads *loads = context;
    cpu_set_t all;
    cpu_set_t one;
    int last = CPU_SETSIZE - 1;
    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
    while (!CPU_ISSET(last, &all))
        last--;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    pacer_follow(&loads->pacer);
    pacer_begin(&loads->pacer);
    loads->class_within = sched_getscheduler(0);
    int64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
    while (!cpus_of("shoal:pacer\n", &loads->pacers_cpus) || !CPU_EQUAL(&loads->pacers_cpus, &one))
        CHECK(clock_now_ns() < until_ns);
    pacer_end(&loads->pacer);
    loads->class_after = sched_getscheduler(0);
    loads->nice = getpriority(PRIO_PROCESS, 0);
    return NULL;
}

static void
load_once(enum pacer_class class, struct loads *loads)
{
    struct error error = ERROR_NONE;
    pthread_t thread;
    assert_int_equal(pacer_start(&loads->pacer, class, &error), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, load_on_last_cpu, loads), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pacer_stop(&loads->pacer);
    assert_int_equal(loads->nice, LOADER_NICE);
}

TEST_CASE(test_follows_the_loader)
{
    static struct loads loads;
    load_once(PACER_STAYS, &loads);
    assert_int_equal(loads.class_within, SCHED_OTHER);
    assert_int_equal(loads.class_after, SCHED_OTHER);
    load_once(PACER_MAY_IDLE, &loads);
    assert_int_equal(loads.class_within, SCHED_IDLE);
    /* where it may not leave it, nobody would have said that it may be in it */
    if (idle_class_can_be_left())
        assert_int_equal(loads.class_after, SCHED_OTHER);
}

TEST_MAIN()
